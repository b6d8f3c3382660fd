"""What is said where the system refuses a file."""

import errno
import os
from pathlib import Path

import pytest

from geoskip.records.refusals import A_FILE, A_FOLDER, MISSING, REASONS, UNREADABLE, refusal


def refused(number: int, *path: str | bytes | Path) -> str:
    return refusal(OSError(number, os.strerror(number), *path))


def test_a_missing_file_by_the_name_that_was_given(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as told:
        Path("no", "such", "file.ply").read_bytes()
    assert refusal(told.value) == f"{Path('no/such/file.ply')}: {MISSING}"


@pytest.mark.parametrize("below", ["", "folder", "folder/file"])
def test_a_file_in_the_place_of_a_folder(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"File exists|Not a directory") as told:
        (tmp_path / "file" / below).mkdir(parents=True, exist_ok=True)
    assert refusal(told.value) == f"{tmp_path / 'file'}: {A_FILE}"


def test_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as told:
        tmp_path.read_bytes()
    assert refusal(told.value) == f"{tmp_path}: {A_FOLDER}"


def test_what_may_not_be_read_is_told_from_what_may_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert refused(errno.EACCES, tmp_path / "file") == f"{tmp_path / 'file'}: {REASONS[errno.EACCES]}"
    monkeypatch.setattr(os, "access", lambda *asked: False)
    assert refused(errno.EACCES, tmp_path / "file") == f"{tmp_path / 'file'}: {UNREADABLE}"
    assert refused(errno.EACCES, tmp_path / "new") == f"{tmp_path / 'new'}: {REASONS[errno.EACCES]}"


@pytest.mark.parametrize("number", sorted(REASONS))
def test_every_reason_with_and_without_a_name(number: int) -> None:
    assert refused(number, b"out/file") == f"{Path('out/file')}: {REASONS[number]}"
    assert refused(number) == REASONS[number]


def test_other_errors_keep_their_words() -> None:
    assert refusal(OSError("run: not saved")) == "run: not saved"
    assert refused(errno.EIO, "file") == f"file: the system refused: {os.strerror(errno.EIO)}"
    assert refused(errno.EEXIST, "nowhere") == f"nowhere: the system refused: {os.strerror(errno.EEXIST)}"
    assert refused(errno.EMFILE) == f"the system refused: {os.strerror(errno.EMFILE)}"
