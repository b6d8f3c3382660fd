"""A file that is there whole or not at all, whatever interrupts its writing."""

import errno
import os
import secrets
from pathlib import Path


def write_whole(path: str | Path, data: bytes) -> None:
    """Write ``data`` beside ``path``, sync it and rename it there; what ``path`` held before stays until then.

    Folders on the way are made. After a kill a hidden file ``.<name>.<8 hex>`` may be left, never half of ``path``.
    Errors of the system name ``path``, not the hidden file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with aside.open("xb") as file:
            file.write(data)
        sync(aside)
        os.replace(aside, path)
    except OSError as error:
        raise _naming(path, error) from error
    finally:
        aside.unlink(missing_ok=True)
    sync(path.parent)


def _naming(path: Path, error: OSError) -> OSError:
    """The same error about ``path``; that its folder, which is there, has no such file means that it takes none."""
    if error.errno is None:
        return error
    number = errno.EACCES if error.errno == errno.ENOENT and path.parent.is_dir() else error.errno
    return OSError(number, error.strerror, str(path))


def sync(path: Path) -> None:
    """Wait until a file is on the disk, or the names in a folder."""
    if os.name != "posix" and path.is_dir():  # folders cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
