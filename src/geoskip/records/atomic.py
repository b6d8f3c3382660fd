"""Files that are complete or absent, whatever interrupts their writing, and no remains of interrupted writers.

A file is written under a temporary name and renamed. Its writer keeps it locked until then, so that other processes
can tell a file that is being written from one whose writer was killed: the operating system drops the locks of a dead
process. Before its first write in a folder, a process removes what dead writers left there.
"""

import errno
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from filelock import lock_descriptor

from geoskip.records import system
from geoskip.records.system import sync

__all__ = ["open_if_abandoned", "open_locked", "remove_leftovers", "sync", "temporary_name", "write_whole"]

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.geoskip")
# Where locks cannot tell, a file this old has no writer.
_OLD_SECONDS = 24 * 3600.0
# Windows renames closed files only, so a file is unlocked for a moment before it gets its name.
_WINDOWS_SECONDS = 60.0
_ATTEMPTS = 5


def write_whole(path: str | Path, data: bytes) -> None:
    """Write ``data`` to a temporary file next to ``path``, sync it and rename it to ``path``.

    Missing folders are created. Until the rename, ``path`` keeps its old contents. A killed process can leave the
    temporary file (see :func:`remove_leftovers`), never a part of ``path``. Errors name ``path``.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers_once(path.parent.resolve())
    temporary = path.with_name(temporary_name(path.name))
    try:
        with open_locked(temporary) as file:
            file.write(data)
            file.flush()
            sync(temporary)
            if not system.is_windows():
                system.replace_file(temporary, path)
        if system.is_windows():
            system.replace_file(temporary, path)
    except OSError as error:
        raise _about(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def temporary_name(name: str) -> str:
    """A new hidden name for what will become ``name``; a long name is cut, so that the result is a valid one."""
    return f".{name[:50]}.{secrets.token_hex(4)}.geoskip"


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of dead writers from a folder. Those of running writers stay."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in list(entries):
            if _TEMPORARY.fullmatch(entry.name) and entry.is_file():
                with suppress(OSError):
                    remove_if_abandoned(Path(entry.path))


def remove_if_abandoned(path: Path) -> None:
    """Remove a file if the process that created it with :func:`open_locked` is dead."""
    with open_if_abandoned(path) as file:
        if file is not None and not system.is_windows():
            path.unlink()  # while it is locked here, nobody else takes it for their own
    if file is not None and system.is_windows():
        path.unlink()


def open_locked(path: Path) -> BinaryIO:
    """Create a file and lock it until it is closed. FileExistsError if it exists already."""
    for attempt in range(_ATTEMPTS):
        file = path.open("x+b")
        with suppress(OSError):  # a file system without locks
            lock_descriptor(file.fileno())
            # Between its creation and the lock, a cleaner can have removed the file: create it again.
            if os.fstat(file.fileno()).st_nlink == 0 and attempt < _ATTEMPTS - 1:
                file.close()
                continue
        break
    return file


@contextmanager
def open_if_abandoned(path: Path) -> Iterator[BinaryIO | None]:
    """The file, opened and locked, if the process that created it with :func:`open_locked` is dead; else None.

    Where the file system has no locks, a file counts as abandoned one day after its last change.
    """
    with path.open("r+b") as file:
        try:
            unlocked = lock_descriptor(file.fileno(), blocking=False)
            seconds = _WINDOWS_SECONDS if system.is_windows() else 0.0
        except OSError:
            unlocked, seconds = True, _OLD_SECONDS
        age = time.time() - os.fstat(file.fileno()).st_mtime
        yield file if unlocked and (not seconds or age >= seconds) else None


@lru_cache(maxsize=256)
def _remove_leftovers_once(folder: Path) -> None:
    remove_leftovers(folder)


def _about(path: Path, error: OSError) -> OSError:
    """The same error about ``path``. If its folder exists, "no such file" means that the folder takes no files."""
    if error.errno is None:
        return error
    number = errno.EACCES if error.errno == errno.ENOENT and path.parent.is_dir() else error.errno
    return OSError(number, error.strerror, str(path))
