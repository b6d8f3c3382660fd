"""Writes arrays as PNG files, with the standard library only."""

import struct
import zlib
from pathlib import Path

import numpy as np

from geoskip.records.files import atomic_write
from geoskip.shapes import Shaped


def png_bytes(picture: Shaped[np.ndarray, "height width channels"]) -> bytes:
    """A picture (uint8, RGB or RGBA) as the bytes of a PNG file with 8 bits per channel."""
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] not in (3, 4) or picture.size == 0:
        raise ValueError(f"picture must be uint8 of shape (height, width, 3 or 4), not {picture.dtype} {picture.shape}")
    height, width, channels = picture.shape
    # Filter 2 ("up") stores each row's difference from the one above, which compresses smooth shading well.
    above = np.concatenate([np.zeros_like(picture[:1]), picture[:-1]])
    rows = (picture - above).reshape(height, width * channels)
    filtered = np.concatenate([np.full((height, 1), 2, dtype=np.uint8), rows], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 6, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes(), 6)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def write_png(path: str | Path, picture: Shaped[np.ndarray, "height width channels"]) -> None:
    """Write a picture (uint8, RGB or RGBA) to ``path``."""
    atomic_write(path, png_bytes(picture))


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
