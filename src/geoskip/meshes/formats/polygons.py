"""What all readers share: polygons before they are checked, and numbers in text."""

import re
from typing import NamedTuple

import numpy as np

from geoskip.meshes.mesh import MeshError
from geoskip.shapes import Float, Int


class Polygons(NamedTuple):
    """Positions and polygons as they are in a file, not checked yet.

    verts: positions.
    sizes: the number of corners of each polygon.
    corners: the vertex indices of all polygons, one polygon after another.
    """

    verts: Float[np.ndarray, "vertices 3"]
    sizes: Int[np.ndarray, "polygons"]
    corners: Int[np.ndarray, "corners"]

    def triangles(self) -> Int[np.ndarray, "faces 3"]:
        """Each polygon p0 … pk as the fan (p0, pi, pi+1), in file order."""
        if (self.sizes == 3).all():
            return self.corners.astype(np.int64, copy=False).reshape(-1, 3)
        if (self.sizes < 3).any():
            i = int((self.sizes < 3).argmax())
            raise MeshError(f"face {i} has {self.sizes[i]} corners")
        counts = self.sizes - 2
        first = np.repeat(np.cumsum(self.sizes) - self.sizes, counts)
        step = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
        corners = self.corners.astype(np.int64, copy=False)
        return corners[np.stack([first, first + step + 1, first + step + 2], axis=1)]

    @classmethod
    def of_triangles(cls, verts: np.ndarray, faces: np.ndarray) -> "Polygons":
        return cls(verts, np.full(len(faces), 3), faces.reshape(-1))


def split_lines(text: bytes) -> list[list[bytes]]:
    """The words of every line that has any, without comments. A line that ends in a backslash includes the next one."""
    # Comments first: one that ends in a backslash, as in a path of Windows, does not include the next line.
    without_comments = re.sub(rb"#[^\r\n]*", b"", text)
    joined = re.sub(rb"\\(?:\r?\n|\r)", b" ", without_comments)
    return [words for line in joined.splitlines() if (words := line.split())]


def int_array(words: list[bytes]) -> Int[np.ndarray, "words"]:
    """Words of text as int64; raises ``MeshError`` for a word that is not an integer."""
    return _array(words, int, np.int64, "an integer")


def float_array(words: list[bytes]) -> Float[np.ndarray, "words"]:
    """Words of text as float64; raises ``MeshError`` for a word that is not a number."""
    return _array(words, float, np.float64, "a number")


def _array(words: list[bytes], convert: type, dtype: type, expected: str) -> np.ndarray:
    try:
        if b"_" not in b"".join(words):  # Python would accept underscores in numbers
            return np.array(list(map(convert, words)), dtype=dtype)
    except (ValueError, OverflowError):
        pass
    for word in words if len(words) > 1 else ():
        _array([word], convert, dtype, expected)
    raise MeshError(f"{words[0][:40].decode('latin-1')!r} is not {expected}")
