"""Everything that differs between operating systems, in one place.

The rest of the package uses these functions instead of ``os.fsync``, ``os.rename``, ``os.replace`` and signal names
that not every system has; ``tests/test_architecture.py`` checks it.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

# Windows refuses to rename what another program (a virus scanner, an indexer) has open for a moment.
RETRY_SECONDS = (0.01, 0.05, 0.2, 0.5)


def is_windows() -> bool:
    return os.name == "nt"


def sync(path: Path) -> None:
    """Wait until the contents of a file, or the names in a folder, are on the disk."""
    if is_windows() and path.is_dir():  # Windows cannot open folders
        return
    # Windows flushes only what is open for writing.
    descriptor = os.open(path, os.O_RDWR if is_windows() else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(source: Path, target: Path) -> None:
    """Rename a file; a file called ``target`` is replaced."""
    _retried(os.replace, source, target)


def rename_folder(source: Path, target: Path) -> None:
    """Rename a folder; ``target`` must not exist."""
    _retried(os.rename, source, target)


def ending_signals() -> tuple[signal.Signals, ...]:
    """The signals, besides Ctrl-C, that ask a process to end: SIGTERM, and the one of a terminal that closes.

    The latter is SIGHUP, or SIGBREAK on Windows. It is left out when it is ignored: ``nohup`` does that for programs
    that should outlive their terminal.
    """
    closing = getattr(signal, "SIGBREAK" if is_windows() else "SIGHUP", None)
    if closing is None or signal.getsignal(closing) == signal.SIG_IGN:
        return (signal.SIGTERM,)
    return (signal.SIGTERM, closing)


def _retried(rename: Callable[[Path, Path], None], source: Path, target: Path) -> None:
    for seconds in RETRY_SECONDS if is_windows() else ():
        try:
            rename(source, target)
            return
        except PermissionError:
            time.sleep(seconds)
    rename(source, target)


def user_path(path: str | Path) -> Path:
    """The path with ``~`` and ``~name`` replaced by home folders. Without such a user, ``~name`` is an ordinary name,
    as in a shell."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
