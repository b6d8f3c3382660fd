"""IDX files, as MNIST comes in: a header with the sizes, then bytes; gzipped or plain."""

import gzip
import io
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from geoskip.shapes import Shaped

MAX_BYTES = 4 << 30
GROWTH = 1100  # gzip packs no more than 1032 bytes into one
Stream = gzip.GzipFile | io.BufferedReader


class IdxError(ValueError):
    """A file that is no IDX file of bytes, or not the one expected; the message says why."""


def read_idx(path: Path, num_axes: int) -> Shaped[np.ndarray, "..."]:
    """The bytes of an IDX file as an array of ``num_axes`` axes (3 for images, 1 for labels).

    The format: two zero bytes, type 8 (unsigned byte), the number of axes, each size in four bytes (big-endian), then
    the data. The data must be exactly as long as the sizes say; no more than that is ever unpacked.
    """
    try:
        with _open(path) as file:
            return _parse(file, path, num_axes)
    except (gzip.BadGzipFile, zlib.error, EOFError, struct.error, OverflowError) as error:
        raise IdxError(f"{path}: damaged: {error}") from error


def _open(path: Path) -> Stream:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else path.open("rb")


def _parse(file: Stream, path: Path, num_axes: int) -> np.ndarray:
    magic = file.read(4)
    if magic != bytes([0, 0, 8, num_axes]):
        raise IdxError(f"{path}: not an IDX file of bytes with {num_axes} axes (it begins with {magic.hex(' ')})")
    shape = struct.unpack(f">{num_axes}I", file.read(4 * num_axes))
    size = math.prod(shape)
    if size > min(MAX_BYTES, GROWTH * path.stat().st_size):
        raise IdxError(f"{path}: claims {size:,} bytes of data")
    data = file.read(size + 1)
    if len(data) != size:
        held = "fewer" if len(data) < size else "more"
        raise IdxError(f"{path}: its header, shape {shape}, asks for {size:,} bytes of data, and it holds {held}")
    return np.frombuffer(bytearray(data), dtype=np.uint8).reshape(shape)
