"""Locks between processes: many that start at once, killed owners, and file systems or platforms without locks."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import filelock
import pytest

from geoskip.data import locks
from geoskip.data.locks import hold_lock, owner, try_lock

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.data.test_locks"])


class Refused(Exception):
    """Another process has the lock."""


def no_flock(number: int) -> None:
    """Make this process see a file system whose flock fails with an error."""

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    import fcntl

    fcntl.flock = flock  # type: ignore[assignment]


def take(path: Path, start: Any, inside: Any, most: Any, number: int) -> None:
    """Take the lock if it is free, as soon as all may start; count how many have it at once."""
    if number:
        no_flock(number)
    start.wait()
    for _ in range(20):
        try:
            with hold_lock(path, Refused):
                with inside.get_lock():
                    inside.value += 1
                    most.value = max(most.value, inside.value)
                time.sleep(0.001)
                with inside.get_lock():
                    inside.value -= 1
        except Refused:
            continue


@pytest.mark.parametrize("number", [0, errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_of_many_processes_at_once_one_has_the_lock(tmp_path: Path, number: int) -> None:
    """With flock, and where the file system has none."""
    start, inside, most = CONTEXT.Event(), CONTEXT.Value("i", 0), CONTEXT.Value("i", 0)
    arguments = (tmp_path / "lock", start, inside, most, number)
    processes = [CONTEXT.Process(target=take, args=arguments) for _ in range(12)]
    for process in processes:
        process.start()
    start.set()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 12
    assert most.value == 1


def test_an_owner_that_has_not_yet_written_its_name_is_respected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is only for messages: without it a second process would once go on as if the lock were free."""
    with hold_lock(tmp_path / "lock", Refused):
        (tmp_path / "lock.owner").unlink()
        with pytest.raises(Refused, match=r"^another process$"), hold_lock(tmp_path / "lock", Refused):
            pass


def test_the_owner_is_named_while_it_has_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with hold_lock(path, Refused):
        assert owner(path).startswith(f"process {os.getpid()} on ")
        with pytest.raises(Refused, match=rf"^process {os.getpid()} on "), hold_lock(path, Refused):
            pass
    assert owner(path) == ""
    assert [entry.name for entry in tmp_path.iterdir()] == ["lock"]


@pytest.mark.parametrize("number", [0, errno.ENOSYS])
def test_a_killed_owner_does_not_keep_the_lock(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    process = CONTEXT.Process(target=hold, args=(tmp_path / "lock", tmp_path / "held", number))
    process.start()
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    if number:
        import fcntl

        monkeypatch.setattr(fcntl, "flock", fcntl.flock)
        no_flock(number)
    with pytest.raises(Refused, match=f"process {process.pid} on"), hold_lock(tmp_path / "lock", Refused):
        pass
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    with hold_lock(tmp_path / "lock", Refused):
        pass
    assert f"process {process.pid}" in caplog.text
    assert "taking over" in caplog.text


def hold(path: Path, sign: Path, number: int) -> None:
    if number:
        no_flock(number)
    with hold_lock(path, Refused):
        sign.touch()
        time.sleep(600)


def test_a_lock_whose_file_is_removed_is_not_intact(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with hold_lock(folder / "lock", Refused) as lock:
        assert lock.is_intact
        (folder / "lock").unlink()
        assert not lock.is_intact
        # Another process gets a lock of the same name now; the first one can still tell.
        with hold_lock(folder / "lock", Refused) as second:
            assert second.is_intact
            assert not lock.is_intact
            with pytest.raises(Refused, match="process"), hold_lock(folder / "lock", Refused):
                pass


def test_a_lock_that_is_not_kept_is_not_reported_as_held(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with try_lock(tmp_path / "file" / "lock", 0.0) as held:
        assert not held
    with pytest.raises(OSError, match="file"), hold_lock(tmp_path / "file" / "lock", Refused):
        pass


class WindowsLock(filelock.UnixFileLock):
    """As Windows has it: what is locked can be neither opened nor removed by anyone else."""

    locked: ClassVar[list[str]] = []

    def _acquire(self) -> None:
        super()._acquire()
        if self.is_locked:
            self.locked.append(self.lock_file)

    def _release(self) -> None:
        self.locked.remove(self.lock_file)
        super()._release()


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            if str(path) in WindowsLock.locked:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return real(path, *arguments, **options)

        return call

    monkeypatch.setattr(locks, "FileLock", WindowsLock)
    for name in ("open", "unlink"):
        monkeypatch.setattr(Path, name, refusing(getattr(Path, name)))


@pytest.mark.usefixtures("windows")
def test_locks_work_where_locked_files_cannot_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with try_lock(path, 0.0) as held:
        assert held
        with pytest.raises(PermissionError):
            path.read_text()
        assert owner(path).startswith(f"process {os.getpid()} on ")
        with try_lock(path, 0.1) as again:
            assert not again
        with pytest.raises(Refused, match="process"), hold_lock(path, Refused):
            pass
    with hold_lock(path, Refused) as lock:
        assert lock.is_intact


@pytest.mark.usefixtures("windows")
def test_the_cache_is_cleared_where_open_files_cannot_be_removed(tmp_path: Path) -> None:
    import numpy as np

    from geoskip.data.cache import CacheEntry, cached, clear, entries

    cached("test", {"a": 1}, lambda: CacheEntry({"x": np.zeros(1)}), root=tmp_path)
    removed, kept = clear(root=tmp_path)
    assert (len(removed), kept) == (1, [])
    assert entries(tmp_path) == []


def test_a_python_without_fcntl_has_locks(tmp_path: Path) -> None:
    """Then their files are held by existing."""
    program = f"""
        import sys, warnings
        from pathlib import Path
        sys.modules["fcntl"] = None
        warnings.simplefilter("ignore")
        from geoskip.data.locks import hold_lock, try_lock
        path = Path({str(tmp_path / "lock")!r})
        with hold_lock(path, ValueError) as lock, try_lock(path, 0.0) as again:
            print(lock.is_intact, again)
        with hold_lock(path, ValueError):
            print("free again")
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "True False\nfree again\n"
