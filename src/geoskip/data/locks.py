"""Locks between processes that end when the process that holds them dies.

The operating system keeps the lock (package ``filelock``: ``flock``, or ``LockFileEx`` on Windows). On file systems
without such locks, a file that names its owner is the lock; a dead owner is noticed if it ran on the same machine.

The owner writes its name to ``<lock file>.owner``, and removes that file before it releases the lock. The lock file
itself stays: if it were removed, another process could hold a lock on the removed file.
"""

from __future__ import annotations

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
# The errors of file systems without locks: some network and FUSE mounts.
_NO_LOCKS = {getattr(errno, name) for name in ("ENOSYS", "ENOLCK", "EOPNOTSUPP", "ENOTSUP") if hasattr(errno, name)}


@dataclass(frozen=True)
class HeldLock:
    """A lock that this process holds: its path, its file, and a token that no other owner has."""

    path: Path
    file: Path
    token: str

    @property
    def is_intact(self) -> bool:
        """Whether the lock file still exists, and no other process has created it again.

        The inode does not tell: some network file systems renumber inodes.
        """
        return self.file.exists() and _read_owner(self.path).get("token", self.token) == self.token


@contextmanager
def try_lock(path: Path, timeout: float) -> Iterator[bool]:
    """Hold the lock at ``path`` during the block, if possible; yields whether it is held.

    For locks that only avoid double work: if another process keeps the lock for longer than ``timeout`` seconds, or the
    folder is read-only, the block runs without it.
    """
    lock = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _acquire(path, timeout)
    except Timeout:
        pass
    except OSError as error:
        log.warning("no lock at %s: %s", path, error.strerror or error)
    if lock is None:
        yield False
        return
    with _owned(path, lock):
        yield True


@contextmanager
def hold_lock(path: Path, error: Callable[[str], Exception]) -> Iterator[HeldLock]:
    """Hold the lock at ``path`` during the block; if another process holds it, raise ``error(name of its owner)``.

    The folder is created. OSError if there cannot be a lock: nothing else could be written there either.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = _acquire(path, timeout=0.0)
    except Timeout:
        raise error(owner(path) or "another process") from None
    with _owned(path, lock) as token:
        yield HeldLock(path, Path(lock.lock_file), token)


def owner(path: Path) -> str:
    """Who holds the lock at ``path``, or died while holding it: ``process 123 on host``; empty if unknown."""
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


def _acquire(path: Path, timeout: float) -> BaseFileLock:
    """Acquire the lock; Timeout if another process keeps it for longer than ``timeout`` seconds."""
    try:
        return _wait(FileLock(path, fallback_to_soft=False), path, timeout)
    except OSError as error:
        if isinstance(error, Timeout) or error.errno not in _NO_LOCKS:
            raise
        # Under another name: the attempt above may have left an empty file at ``path``.
        return _wait(SoftFileLock(path.with_name(f"{path.name}.exists")), path, timeout)


def _wait(lock: BaseFileLock, path: Path, timeout: float) -> BaseFileLock:
    # The first attempt may only remove the file of a dead owner.
    for _ in range(2):
        with suppress(Timeout):
            lock.acquire(timeout=0)
            return lock
    if timeout > 0:
        log.warning("%s: waiting for %s", path.stem, owner(path) or "another process")
    lock.acquire(timeout=timeout, poll_interval=POLL_SECONDS)
    return lock


@contextmanager
def _owned(path: Path, lock: BaseFileLock) -> Iterator[str]:
    """Write the owner's name during the block, and release the lock at its end; yields the owner's token."""
    token = secrets.token_hex(8)
    try:
        if dead := owner(path):
            log.warning("%s: %s ended in the middle of its work; taking over", path.stem, dead)
        entries = {"pid": os.getpid(), "host": socket.gethostname(), "token": token}
        with suppress(OSError):  # the lock works without it
            _owner_file(path).write_text(json.dumps(entries), encoding="utf-8")
        yield token
    finally:
        with suppress(OSError):
            if _read_owner(path).get("token") == token:  # not that of a process that created the folder again
                _owner_file(path).unlink(missing_ok=True)
        lock.release()


def _owner_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.owner")
