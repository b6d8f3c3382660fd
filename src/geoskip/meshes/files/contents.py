"""The bytes of a file, if it is one that can be read to its end."""

import stat
from pathlib import Path

from geoskip.meshes.mesh import MeshError

MAX_FILE_BYTES = 4 << 30


def read_bytes(path: Path) -> bytes:
    """The whole of a regular file: a pipe would block, and a device has no end."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise MeshError(f"{path.name} is not a regular file")
    if status.st_size > MAX_FILE_BYTES:
        raise MeshError(f"{path.name} has {status.st_size} bytes, more than the {MAX_FILE_BYTES} that are read")
    return path.read_bytes()
