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
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

log = logging.getLogger(__name__)

POLL_SECONDS = 0.05
# What file systems answer that have no locks: some network and FUSE mounts.
_NO_LOCKS = {getattr(errno, name) for name in ("ENOSYS", "ENOLCK", "EOPNOTSUPP", "ENOTSUP") if hasattr(errno, name)}


@dataclass(frozen=True)
class HeldLock:
    """A lock that this process holds: where it was asked for, its file, and a token that no other owner has."""

    path: Path
    file: Path
    token: str

    @property
    def is_intact(self) -> bool:
        """Whether the lock file is still in its folder, and not one that another process made since.

        Not by its inode, which some network file systems renumber.
        """
        return self.file.exists() and _read_owner(self.path).get("token", self.token) == self.token


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
    with _owned(path, lock) as token:
        yield HeldLock(path, Path(lock.lock_file), token)


def owner(path: Path) -> str:
    """Who holds the lock at ``path``, or died with it: ``process 123 on host``; empty if unknown."""
    entries = _read_owner(path)
    return f"process {entries['pid']} on {entries['host']}" if {"pid", "host"} <= entries.keys() else ""


def owned_locks(folder: Path) -> list[Path]:
    """The locks in a folder with a named owner, running or dead. Taking a dead owner's lock removes its name."""
    try:
        return sorted(path.with_suffix("") for path in folder.iterdir() if path.suffix == ".owner")
    except OSError:
        return []


def _read_owner(path: Path) -> dict[str, Any]:
    try:
        entries = json.loads(_owner_file(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return entries if isinstance(entries, dict) else {}


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
def _owned(path: Path, lock: BaseFileLock | None) -> Iterator[str]:
    """Write the owner's name for the time of the block, and release the lock at its end; yields the owner's token."""
    token = secrets.token_hex(8)
    if lock is None:
        yield token
        return
    try:
        if dead := owner(path):
            log.warning("%s: %s ended in the middle of its work; taking over", path.stem, dead)
        entries = {"pid": os.getpid(), "host": socket.gethostname(), "token": token}
        with suppress(OSError):  # the lock holds without it
            _owner_file(path).write_text(json.dumps(entries), encoding="utf-8")
        yield token
    finally:
        with suppress(OSError):
            if _read_owner(path).get("token") == token:  # not that of a process that made the folder again
                _owner_file(path).unlink(missing_ok=True)
        lock.release()


def _owner_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.owner")
