"""Errors of the operating system, and of a machine out of memory, become actionable messages."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from geoskip.records.os_errors import (
    WRITE_ERRORS,
    explain_os_error,
    explain_out_of_memory,
    is_out_of_memory,
    out_of_memory_message,
)


def explained(number: int, *path: str | bytes | Path) -> str:
    return explain_os_error(OSError(number, os.strerror(number), *path))


def test_a_missing_file_by_the_name_that_was_given(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as told:
        Path("no", "such", "file.ply").read_bytes()
    assert (
        explain_os_error(told.value) == f"{Path('no/such/file.ply')}: there is no such file or folder; check the name"
    )


@pytest.mark.parametrize("below", ["", "folder", "folder/file"])
def test_a_file_in_the_place_of_a_folder(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"File exists|Not a directory") as told:
        (tmp_path / "file" / below).mkdir(parents=True, exist_ok=True)
    fault = "is a file, and a folder is needed; choose another (for output, another -o)"
    assert explain_os_error(told.value) == f"{tmp_path / 'file'}: {fault}"


def test_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as told:
        tmp_path.read_bytes()
    assert explain_os_error(told.value) == f"{tmp_path}: is a folder, and a file is needed; name a file"


def test_what_may_not_be_read_is_told_from_what_may_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert explained(errno.EACCES, tmp_path / "file") == f"{tmp_path / 'file'}: {WRITE_ERRORS[errno.EACCES]}"
    monkeypatch.setattr(os, "access", lambda *asked: False)
    assert explained(errno.EACCES, tmp_path / "file") == f"{tmp_path / 'file'}: may not be read; change its permissions"
    assert explained(errno.EACCES, tmp_path / "new") == f"{tmp_path / 'new'}: {WRITE_ERRORS[errno.EACCES]}"


@pytest.mark.parametrize("number", sorted(WRITE_ERRORS))
def test_every_reason_with_and_without_a_name(number: int) -> None:
    assert explained(number, b"out/file") == f"{Path('out/file')}: {WRITE_ERRORS[number]}"
    assert explained(number) == WRITE_ERRORS[number]


def test_other_errors_keep_their_words() -> None:
    assert explain_os_error(OSError("run: not saved")) == "run: not saved"
    assert explained(errno.EIO, "file") == f"file: the operating system reports: {os.strerror(errno.EIO)}"
    assert explained(errno.EEXIST, "nowhere") == f"nowhere: the operating system reports: {os.strerror(errno.EEXIST)}"
    assert explained(errno.EMFILE) == f"the operating system reports: {os.strerror(errno.EMFILE)}"


ALLOCATIONS: dict[str, tuple[Callable[[], object], str]] = {
    "torch": (lambda: torch.empty(2**50, dtype=torch.uint8), ": 1.13 PB more were needed"),
    "torch, beyond 64 bits": (lambda: torch.empty(2**61, 2**61), ""),
    "numpy": (lambda: np.empty(2**50, np.uint8), ": 1.13 PB more were needed"),
    "python": (lambda: bytearray(2**62), ""),
}


@pytest.mark.parametrize(("allocate", "size"), ALLOCATIONS.values(), ids=ALLOCATIONS)
def test_real_failures_are_recognized_and_explained(allocate: Callable[[], object], size: str) -> None:
    with (
        pytest.raises(ValueError, match="out of memory") as explained,
        explain_out_of_memory("reading meshes", "Read fewer"),
    ):
        allocate()
    assert str(explained.value) == f"out of memory reading meshes{size}. Read fewer"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has"),
            ": 2.15 GB more were needed",
        ),
        (
            RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 4000 bytes."),
            ": 4 KB more were needed",
        ),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), ""),
        (MemoryError(), ""),
    ],
)
def test_the_size_is_given_where_it_is_known(error: Exception, message: str) -> None:
    assert is_out_of_memory(error)
    assert out_of_memory_message(error, "here", "Stop") == f"out of memory here{message}. Stop"


@pytest.mark.parametrize("error", [RuntimeError("size mismatch"), ValueError("memory"), OSError(errno.ENOENT, "no")])
def test_other_errors_pass_through(error: Exception) -> None:
    assert not is_out_of_memory(error)
    with pytest.raises(type(error)) as raised, explain_out_of_memory("here", "Stop"):
        raise error
    assert raised.value is error
