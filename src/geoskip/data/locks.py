"""A lock between processes that a dead owner cannot keep."""

import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl

log = logging.getLogger(__name__)

POLL_SECONDS = 0.05


@contextmanager
def exclusive(path: Path, patience: float) -> Iterator[bool]:
    """Hold the lock at ``path`` during the block; yields whether it is held.

    The lock is the kernel's (``flock``), so it ends with its owner: after a kill the next process takes it at
    once, and finds the name of the dead owner in the file, which a living owner removes before it lets go.

    Where it cannot be had (within ``patience`` seconds, on a read-only folder, or on a system without such
    locks) the block still runs, with False: a lock here saves double work, it is not what keeps files whole.
    """
    descriptor, held = _open(path), False
    try:
        held = descriptor is not None and _acquire(descriptor, path, patience)
        if held and descriptor is not None:
            _sign(descriptor, path)
        yield held
    finally:
        if descriptor is not None:
            if held:
                os.ftruncate(descriptor, 0)
            os.close(descriptor)


@contextmanager
def alone(path: Path, refusal: Callable[[str], Exception]) -> Iterator[None]:
    """Hold the lock at ``path``, or raise what ``refusal`` makes of the name of its owner, without waiting.

    Its folder is made; where that cannot be, OSError: nothing could be written beside the lock either.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(path, patience=0.0) as held:
        if not held and (other := owner(path)):
            raise refusal(other)
        yield


def owner(path: Path) -> str:
    """Who holds the lock at ``path``, or died with it: ``process 123 on host``; empty if nobody."""
    try:
        name = json.loads(path.read_text())
        return f"process {int(name['pid'])} on {name['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _open(path: Path) -> int | None:
    if sys.platform == "win32":
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        log.warning("no lock at %s: %s", path, error.strerror)
        return None


def _acquire(descriptor: int, path: Path, patience: float) -> bool:
    assert sys.platform != "win32"
    start, told = time.monotonic(), False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() - start >= patience:
                return False
        except OSError as error:  # a file system without locks
            log.warning("no lock at %s: %s", path, error.strerror)
            return False
        if not told:
            log.warning("%s: waiting for %s", path.stem, owner(path) or "another process")
            told = True
        time.sleep(POLL_SECONDS)


def _sign(descriptor: int, path: Path) -> None:
    if dead := owner(path):
        log.warning("%s: %s ended in the middle of its work; taking over", path.stem, dead)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
