"""Errors of a machine that is out of memory, from every library that allocates."""

import errno
import os
from collections.abc import Callable

import numpy as np
import pytest
import torch

from geoskip.records.memory import explaining_out_of_memory, is_out_of_memory, out_of_memory_message

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
        explaining_out_of_memory("reading meshes", "Read fewer"),
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
    with pytest.raises(type(error)) as raised, explaining_out_of_memory("here", "Stop"):
        raise error
    assert raised.value is error
