"""The file system as Windows has it, simulated: what is open can be neither renamed nor removed, and so on."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geoskip.records import files


def simulate_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    fsync, open_file = os.fsync, os.open

    def windows_fsync(descriptor: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        fsync(descriptor)

    def windows_open(path: Any, *arguments: Any, **options: Any) -> int:
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open_file(path, *arguments, **options)

    def refusing_open_files(real: Callable[..., None]) -> Callable[..., None]:
        def call(path: Any, *arguments: Any, **options: Any) -> None:
            if is_open(Path(path)):
                raise PermissionError(errno.EACCES, "The process cannot access the file", str(path))
            if real is replace and os.path.isdir(arguments[0]):
                raise PermissionError(errno.EACCES, "Access is denied", str(arguments[0]))
            real(path, *arguments, **options)

        return call

    replace = os.replace
    monkeypatch.setattr(files, "is_windows", lambda: True)
    monkeypatch.setattr(files, "RETRY_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(os, "fsync", windows_fsync)
    monkeypatch.setattr(os, "open", windows_open)
    for name in ("replace", "unlink"):
        monkeypatch.setattr(os, name, refusing_open_files(getattr(os, name)))


def is_open(path: Path) -> bool:
    """Whether this process has the file, or one in the folder, open."""
    target = os.path.realpath(path)
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            opened = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if opened == target or opened.startswith(target + os.sep):
            return True
    return False
