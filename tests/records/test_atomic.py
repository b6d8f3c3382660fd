"""Files that are there whole or not at all."""

import os
from pathlib import Path
from typing import Any

import pytest

from geoskip.records.atomic import write_whole


def test_a_file_is_written_in_folders_that_are_made(tmp_path: Path) -> None:
    write_whole(tmp_path / "new" / "folder" / "file", b"whole")
    assert (tmp_path / "new" / "folder" / "file").read_bytes() == b"whole"
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["file"]


def test_an_older_file_is_replaced(tmp_path: Path) -> None:
    for data in (b"first, and longer", b"second"):
        write_whole(tmp_path / "file", data)
    assert (tmp_path / "file").read_bytes() == b"second"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_what_is_interrupted_leaves_the_older_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    write_whole(tmp_path / "file", b"old")

    def fail(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "file", b"new")
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
    write_whole(tmp_path / "file", b"data")
    assert steps == ["fsync", "replace", "fsync"]


def test_errors_name_the_file_and_not_the_hidden_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as told:
        write_whole(tmp_path / "folder", b"data")
    assert told.value.filename == str(tmp_path / "folder")

    def closed(*arguments: Any, **options: Any) -> None:
        raise FileNotFoundError(2, "No such file or directory", ".file.0123abcd")

    monkeypatch.setattr(Path, "open", closed)
    with pytest.raises(PermissionError) as denied:  # as in /proc, which takes no files
        write_whole(tmp_path / "file", b"data")
    assert denied.value.filename == str(tmp_path / "file")


def test_an_error_without_a_number_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError("in words")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match=r"^in words$"):
        write_whole(tmp_path / "file", b"data")
