"""Turns the many errors of a machine that is out of memory into one that says what to change."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

# What torch's plain RuntimeErrors say: of the CPU's allocator, of a mapped file, and of sizes beyond 64 bits.
_SIGNS = ("DefaultCPUAllocator", "Cannot allocate memory", "Storage size calculation overflowed", "std::bad_alloc")
_SIZE = re.compile(r"allocate (\d[\d.]*) ([KMGTPE]i?B|bytes)")
_UNITS = {"bytes": 1} | {f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGTPE", 1)}


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that memory ran out: numpy raises MemoryError, torch.cuda a type of its own, torch on the
    CPU a plain RuntimeError, and the system an OSError."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


def out_of_memory_message(error: BaseException, doing: str, advice: str) -> str:
    """Two sentences: what was being done, with the size that was asked for where it is known, and what to change."""
    found = _SIZE.search(str(error))
    size = f": {_words(float(found[1]) * _UNITS[found[2]])} more were needed" if found else ""
    return f"out of memory {doing}{size}. {advice}"


@contextmanager
def explaining_out_of_memory(doing: str, advice: str) -> Iterator[None]:
    """Raise ValueError with :func:`out_of_memory_message` where memory runs out."""
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        if not is_out_of_memory(error):
            raise
        raise ValueError(out_of_memory_message(error, doing, advice)) from error


def _words(size: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} PB"
