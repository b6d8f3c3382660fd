"""What to say where the system refuses a file: which one, why, and what to do."""

import errno
import os
from pathlib import Path

# Of what was to be written; the rest depends on what is there.
REASONS = {
    errno.ENOSPC: "the disk is full; make room",
    errno.EDQUOT: "the disk quota is used up; make room",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.EACCES: "the folder may not be written to; change its permissions or choose another",
    errno.EPERM: "the folder may not be written to; change its permissions or choose another",
}
MISSING = "there is no such file or folder; check the name"
UNREADABLE = "may not be read; change its permissions"
A_FILE = "is a file, and a folder is needed; choose another (for output, another -o)"
A_FOLDER = "is a folder, and a file is needed; name a file"


def refusal(error: OSError) -> str:
    """One line on an error of the system; those that carry words of their own keep them."""
    if len(error.args) < 2:
        return str(error)
    if not isinstance(error.filename, str | bytes | os.PathLike):
        return REASONS.get(error.errno or 0, f"the system refused: {error.strerror}")
    path = Path(os.fsdecode(error.filename))
    if error.errno in (errno.EEXIST, errno.ENOTDIR) and (file := _in_the_way(path)):
        return f"{file}: {A_FILE}"
    return f"{path}: {_reason(error, path)}"


def _reason(error: OSError, path: Path) -> str:
    if error.errno == errno.ENOENT:
        return MISSING
    if error.errno == errno.EISDIR:
        return A_FOLDER
    if error.errno in (errno.EACCES, errno.EPERM) and path.is_file() and not os.access(path, os.R_OK):
        return UNREADABLE
    return REASONS.get(error.errno or 0, f"the system refused: {error.strerror}")


def _in_the_way(path: Path) -> Path | None:
    """The file where a folder is needed: ``path``, or what it is said to lie in."""
    return next((at for at in (path, *path.parents) if os.path.lexists(at) and not at.is_dir()), None)
