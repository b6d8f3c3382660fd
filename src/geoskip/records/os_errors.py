"""Turns operating-system errors, and the many errors of a machine out of memory, into actionable messages."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Errors of writing that have one cause each.
WRITE_ERRORS = {
    errno.ENOSPC: "the disk is full; make room",
    errno.EDQUOT: "the disk quota is used up; make room",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.EACCES: "the folder may not be written to; change its permissions or choose another",
    errno.EPERM: "the folder may not be written to; change its permissions or choose another",
}
# What torch's plain RuntimeErrors say: of the CPU's allocator, of a mapped file, and of sizes beyond 64 bits.
_OUT_OF_MEMORY = (
    "DefaultCPUAllocator",
    "Cannot allocate memory",
    "Storage size calculation overflowed",
    "std::bad_alloc",
)
_SIZE = re.compile(r"allocate (\d[\d.]*) ([KMGTPE]i?B|bytes)")
_UNITS = {"bytes": 1} | {f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGTPE", 1)}


def explain_os_error(error: OSError) -> str:
    """One line that names the file and says what to do. An error without an error number keeps its own message."""
    if len(error.args) < 2:
        return str(error)
    reason = WRITE_ERRORS.get(error.errno or 0, f"the operating system reports: {error.strerror}")
    if not isinstance(error.filename, str | bytes | os.PathLike):
        return reason
    path = Path(os.fsdecode(error.filename))
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        # The path itself, or one of the folders that it names, is a file.
        for part in (path, *path.parents):
            if os.path.lexists(part) and not part.is_dir():
                return f"{part}: is a file, and a folder is needed; choose another (for output, another -o)"
    if error.errno == errno.ENOENT:
        reason = "there is no such file or folder; check the name"
    elif error.errno == errno.EISDIR:
        reason = "is a folder, and a file is needed; name a file"
    elif error.errno in (errno.EACCES, errno.EPERM) and path.is_file() and not os.access(path, os.R_OK):
        reason = "may not be read; change its permissions"
    return f"{path}: {reason}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: numpy raises MemoryError, torch.cuda its own type, torch on the CPU a plain
    RuntimeError, and the operating system an OSError."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY)


def out_of_memory_message(error: BaseException, doing: str, advice: str) -> str:
    """Two sentences: what was being done, with the size that was requested if it is known, and what to change."""
    match = _SIZE.search(str(error))
    size = f": {_format_bytes(float(match[1]) * _UNITS[match[2]])} more were needed" if match else ""
    return f"out of memory {doing}{size}. {advice}"


@contextmanager
def explain_out_of_memory(doing: str, advice: str) -> Iterator[None]:
    """Raise ValueError with :func:`out_of_memory_message` if memory runs out in the block."""
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        if not is_out_of_memory(error):
            raise
        raise ValueError(out_of_memory_message(error, doing, advice)) from error


def _format_bytes(size: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} PB"
