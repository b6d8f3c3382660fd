"""A file that is there whole or not at all, whatever interrupts its writing."""

import os
import secrets
from pathlib import Path


def write_whole(path: str | Path, data: bytes) -> None:
    """Write ``data`` beside ``path``, sync it and rename it there; what ``path`` held before stays until then.

    Folders on the way are made. After a kill a hidden file ``.<name>.<8 hex>`` may be left, never half of ``path``.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with aside.open("xb") as file:
            file.write(data)
        sync(aside)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file is on the disk, or the names in a folder."""
    if os.name != "posix" and path.is_dir():  # folders cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
