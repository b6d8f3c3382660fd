"""Files are complete or absent, whatever interrupts their writing."""

import errno
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from geoskip.records import files
from geoskip.records.files import atomic_write, open_locked, remove_leftovers, temporary_name
from tests.records.windows import simulate_windows

CONTEXT = multiprocessing.get_context("forkserver")


def test_a_file_is_written_in_folders_that_are_made(tmp_path: Path) -> None:
    atomic_write(tmp_path / "new" / "folder" / "file", b"whole")
    assert (tmp_path / "new" / "folder" / "file").read_bytes() == b"whole"
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["file"]


def test_an_older_file_is_replaced(tmp_path: Path) -> None:
    for data in (b"first, and longer", b"second"):
        atomic_write(tmp_path / "file", data)
    assert (tmp_path / "file").read_bytes() == b"second"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_what_is_interrupted_leaves_the_older_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    atomic_write(tmp_path / "file", b"old")

    def fail(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space left"):
        atomic_write(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_bytes_are_synced_before_they_get_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the folder after: otherwise a power loss could leave the name with nothing behind it."""
    steps: list[str] = []

    def noted(name: str, real: Any) -> Any:
        def call(*given: Any) -> None:
            steps.append(name)
            real(*given)

        return call

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, noted(name, getattr(os, name)))
    atomic_write(tmp_path / "file", b"data")
    assert steps == ["fsync", "replace", "fsync"]


def test_errors_name_the_file_and_not_the_hidden_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as told:
        atomic_write(tmp_path / "folder", b"data")
    assert told.value.filename == str(tmp_path / "folder")

    def closed(*arguments: Any, **options: Any) -> None:
        raise FileNotFoundError(2, "No such file or directory", ".file.0123abcd")

    monkeypatch.setattr(Path, "open", closed)
    with pytest.raises(PermissionError) as denied:  # as in /proc, which takes no files
        atomic_write(tmp_path / "file", b"data")
    assert denied.value.filename == str(tmp_path / "file")


def test_errors_name_the_file_on_a_file_system_that_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *arguments: Any, **options: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OSError, match="Read-only") as told:
        atomic_write(tmp_path / "file", b"data")
    assert told.value.filename == str(tmp_path / "file")


def test_an_error_without_a_number_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError("in words")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match=r"^in words$"):
        atomic_write(tmp_path / "file", b"data")


def killed_while_writing(path: Path) -> None:
    """A process that dies before its file gets its name."""
    files.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    atomic_write(path, b"new")


def slow_writer(path: Path) -> None:
    """A process that writes until it is told to go on."""
    replace = files.rename

    def wait(source: Path, target: Path) -> None:
        (path.parent / "waiting").touch()
        while not (path.parent / "go").exists():
            time.sleep(0.01)
        replace(source, target)

    files.rename = wait
    atomic_write(path, b"slow")


def start(target: Any, path: Path) -> Any:
    process = CONTEXT.Process(target=target, args=(path,), daemon=True)
    process.start()
    return process


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_the_first_write_in_a_folder_removes_what_killed_writers_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    process = start(killed_while_writing, tmp_path / "file")
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert len(hidden(tmp_path)) == 1
    assert (tmp_path / "file").read_bytes() == b"old"
    atomic_write(tmp_path / "another", b"data")
    assert hidden(tmp_path) == []


def test_a_file_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    process = start(slow_writer, tmp_path / "file")
    while not (tmp_path / "waiting").exists():
        time.sleep(0.01)
    remove_leftovers(tmp_path)
    assert len(hidden(tmp_path)) == 1
    (tmp_path / "go").touch()
    process.join(60)
    assert process.exitcode == 0
    assert (tmp_path / "file").read_bytes() == b"slow"


def test_a_file_that_is_removed_before_it_is_locked_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lock = tmp_path / "file", files.lock_descriptor
    removed: list[Path] = []

    def overtaken(descriptor: int, **options: Any) -> bool:
        if not removed:
            path.unlink()
            removed.append(path)
        return lock(descriptor, **options)

    monkeypatch.setattr(files, "lock_descriptor", overtaken)
    with open_locked(path) as file:
        file.write(b"data")
    assert removed
    assert path.read_bytes() == b"data"


def test_other_hidden_files_stay(tmp_path: Path) -> None:
    names = [".gitignore", ".file.0123abcd", ".geoskip", ".a.b.geoskip", "file.0123abcd.geoskip"]
    for name in names:
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_without_locks_age_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(descriptor: int, **options: Any) -> bool:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(files, "lock_descriptor", unsupported)
    young, old = tmp_path / temporary_name("young"), tmp_path / temporary_name("old")
    for path in (young, old):
        path.touch()
    os.utime(old, (time.time() - 2 * 24 * 3600,) * 2)
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [young.name]
    atomic_write(tmp_path / "file", b"data")
    assert (tmp_path / "file").read_bytes() == b"data"


@pytest.mark.parametrize("name", ["file", "n" * 255, "ü" * 127, ".hidden"])
def test_temporary_names_are_valid_and_recognized(tmp_path: Path, name: str) -> None:
    (tmp_path / temporary_name(name)).touch()
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_on_windows_files_are_written_and_leftovers_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_windows(monkeypatch)
    old = tmp_path / temporary_name("old")
    old.touch()
    os.utime(old, (0, 0))
    for data in (b"first", b"second"):
        atomic_write(tmp_path / "folder" / "file", data)
        atomic_write(tmp_path / "file", data)
    assert (tmp_path / "folder" / "file").read_bytes() == (tmp_path / "file").read_bytes() == b"second"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_on_windows_a_file_that_a_scanner_has_open_is_renamed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace
    attempts: list[Any] = []

    def scanned(*arguments: Any) -> None:
        if not attempts:
            attempts.append(arguments)
            raise PermissionError(errno.EACCES, "Permission denied")
        replace(*arguments)

    monkeypatch.setattr(os, "replace", scanned)
    simulate_windows(monkeypatch)
    atomic_write(tmp_path / "file", b"data")
    assert attempts
    assert (tmp_path / "file").read_bytes() == b"data"
