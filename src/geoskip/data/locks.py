"""Locks between processes, on every platform, that a dead process cannot keep.

The lock is the operating system's (package ``filelock``: ``flock``, or ``LockFileEx`` on Windows), so it ends with the
process that holds it. On file systems without such locks it is the existence of a file that names its owner; a dead
owner on the same machine is noticed, one on another machine is not.

The name of the owner is kept in ``<lock file>.owner``, which the owner removes before it releases the lock. Lock files
themselves stay: removing one could leave two processes with a lock each, one on the removed file.
"""

import errno
import json
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

log = logging.getLogger(__name__)

POLL_SECONDS = 0.05
# What file systems answer that have no locks: some network and FUSE mounts.
_NO_LOCKS = {getattr(errno, name) for name in ("ENOSYS", "ENOLCK", "EOPNOTSUPP", "ENOTSUP") if hasattr(errno, name)}


@dataclass(frozen=True)
class HeldLock:
    """A lock that this process holds: its file, and which file that was when it was locked."""

    path: Path
    identity: tuple[int, int]

    @property
    def is_intact(self) -> bool:
        """Whether the lock file is still in its folder. If not, another process can hold a lock of the same name."""
        return _identity(self.path) == self.identity


@contextmanager
def exclusive(path: Path, patience: float) -> Iterator[bool]:
    """Hold the lock at ``path`` during the block; yields whether it is held.

    For locks that only save double work: if the lock cannot be had (within ``patience`` seconds, or because the folder
    is read-only), the block still runs, with False.
    """
    lock = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _acquire(path, patience)
    except Timeout:
        pass
    except OSError as error:
        log.warning("no lock at %s: %s", path, error.strerror or error)
    with _owned(path, lock):
        yield lock is not None


@contextmanager
def alone(path: Path, refusal: Callable[[str], Exception]) -> Iterator[HeldLock]:
    """Hold the lock at ``path`` during the block; if another process has it, raise ``refusal(name of its owner)``.

    The folder is created. OSError if there cannot be a lock: nothing else could be written there either.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = _acquire(path, patience=0.0)
    except Timeout:
        raise refusal(owner(path) or "another process") from None
    with _owned(path, lock):
        file = Path(lock.lock_file)
        yield HeldLock(file, _identity(file) or (0, 0))


def owner(path: Path) -> str:
    """Who holds the lock at ``path``, or died with it: ``process 123 on host``; empty if unknown."""
    try:
        entries = json.loads(_owner_file(path).read_text(encoding="utf-8"))
        return f"process {int(entries['pid'])} on {entries['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _acquire(path: Path, patience: float) -> BaseFileLock:
    """The lock, acquired. Timeout if another process has it for longer than ``patience`` seconds."""
    try:
        return _wait(FileLock(path, fallback_to_soft=False), path, patience)
    except OSError as error:
        if isinstance(error, Timeout) or error.errno not in _NO_LOCKS:
            raise
        # Under a name of its own: the attempt above may have left an empty file at ``path``.
        return _wait(SoftFileLock(path.with_name(f"{path.name}.exists")), path, patience)


def _wait(lock: BaseFileLock, path: Path, patience: float) -> BaseFileLock:
    # The first attempt may only remove the file of a dead owner.
    for _ in range(2):
        with suppress(Timeout):
            lock.acquire(timeout=0)
            return lock
    if patience > 0:
        log.warning("%s: waiting for %s", path.stem, owner(path) or "another process")
    lock.acquire(timeout=patience, poll_interval=POLL_SECONDS)
    return lock


@contextmanager
def _owned(path: Path, lock: BaseFileLock | None) -> Iterator[None]:
    """Write the owner's name for the time of the block, and release the lock at its end."""
    if lock is None:
        yield
        return
    try:
        if dead := owner(path):
            log.warning("%s: %s ended in the middle of its work; taking over", path.stem, dead)
        name = json.dumps({"pid": os.getpid(), "host": socket.gethostname()})
        with suppress(OSError):  # the name is for messages only
            _owner_file(path).write_text(name, encoding="utf-8")
        yield
    finally:
        with suppress(OSError):
            _owner_file(path).unlink(missing_ok=True)
        lock.release()


def _owner_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.owner")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
