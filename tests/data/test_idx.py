"""IDX files, honest and not."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from geoskip.data.idx import read_idx
from geoskip.records.reading import ReadError


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_plain_and_packed_files_read_alike(tmp_path: Path, pack) -> None:
    (tmp_path / "a").write_bytes(pack(idx_bytes(IMAGES)))
    read = read_idx(tmp_path / "a", 3)
    assert (read == IMAGES).all()
    read += 1  # the caller's own


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "not an IDX file"),
        (idx_bytes(IMAGES[0]), "not an IDX file of bytes with 3 axes"),
        (b"\0\0\x0d\3" + idx_bytes(IMAGES)[4:], "not an IDX file of bytes"),
        (idx_bytes(IMAGES)[:10], "damaged"),
        (idx_bytes(IMAGES)[:-1], "has fewer"),
        (idx_bytes(IMAGES) + b"x", "has more"),
        (b"\0\0\x08\3" + struct.pack(">3I", 2**31, 2**31, 2**31), "claims"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, content: bytes, fault: str) -> None:
    for pack in (bytes, gzip.compress):
        (tmp_path / "a").write_bytes(pack(content))
        with pytest.raises(ReadError, match=fault):
            read_idx(tmp_path / "a", 3)


def test_damaged_and_endless_gzip_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(idx_bytes(IMAGES))
    for content in (packed[:-4], packed[:20], packed[:30] + b"xxxx" + packed[34:]):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(ReadError, match="damaged"):
            read_idx(tmp_path / "a", 3)
    (tmp_path / "bomb").write_bytes(gzip.compress(idx_bytes(IMAGES) + bytes(10**7)))
    with pytest.raises(ReadError, match="has more"):
        read_idx(tmp_path / "bomb", 3)
