"""A z-buffer in numpy: finds the triangle that each pixel shows, without OpenGL."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from geoskip.shapes import Float, Int

# Bounds the memory of one step: about 50 bytes per fragment.
FRAGMENTS_PER_STEP = 4_000_000
# In barycentric coordinates: a pixel on a shared edge belongs to both triangles rather than to none.
OVERLAP = 1e-7


@dataclass(frozen=True, eq=False)
class Visible:
    """The pixels that show a triangle.

    pixel: row · width + column, each at most once, ascending.
    face: the triangle seen there.
    weights: barycentric coordinates of the pixel's center in it.
    """

    pixel: Int[np.ndarray, "seen"]
    face: Int[np.ndarray, "seen"]
    weights: Float[np.ndarray, "seen 3"]


def visible(corners: Float[np.ndarray, "faces 3 3"], height: int, width: int) -> Visible:
    """The nearest triangle at each pixel center that is covered by one.

    corners: column, row (in pixels, the first center at one half) and depth (larger is nearer) of each
        triangle's corners. Both sides are seen; triangles without area on the screen are not.
    """
    to_weights = _barycentric_maps(corners[:, :, :2])
    plane = np.einsum("fk,fkj->fj", corners[:, :, 2], to_weights)
    depth = np.full(height * width, -np.inf)
    face = np.full(height * width, -1, dtype=np.int64)
    for spans in _steps(_spans(corners, to_weights, height, width)):
        owner, row, column = _fragments(*spans)
        z = plane[owner, 0] * column + plane[owner, 1] * row + plane[owner, 2]
        pixel = np.int64(width) * np.floor(row).astype(np.int64) + np.floor(column).astype(np.int64)
        np.maximum.at(depth, pixel, z)
        nearest = z == depth[pixel]
        face[pixel[nearest]] = owner[nearest]
    seen = np.flatnonzero(face >= 0)
    row, column = np.divmod(seen, width)
    center = np.stack([column + 0.5, row + 0.5, np.ones(len(seen))], axis=1)
    return Visible(seen, face[seen], np.einsum("pkj,pj->pk", to_weights[face[seen]], center))


def _barycentric_maps(corners: np.ndarray) -> np.ndarray:
    """For each triangle, the matrix from (column, row, 1) to barycentric coordinates; zero if it has no area."""
    system = np.concatenate([corners.transpose(0, 2, 1), np.ones((len(corners), 1, 3))], axis=1)
    flat = np.abs(np.linalg.det(system)) < 1e-9
    system[flat] = np.eye(3)
    maps = np.linalg.inv(system)
    maps[flat] = 0
    return maps


Spans = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _spans(corners: np.ndarray, to_weights: np.ndarray, height: int, width: int) -> Spans:
    """One entry for each pixel row that a triangle covers: triangle, row, first column, number of columns.

    On a row each barycentric coordinate is a·column + b: it bounds the columns from the left where a > 0,
    from the right where a < 0, and where a = 0 admits all or none.
    """
    drawn = to_weights.any(axis=(1, 2))
    first = np.clip(np.ceil(corners[:, :, 1].min(axis=1) - 0.5), 0, height).astype(np.int64)
    last = np.clip(np.floor(corners[:, :, 1].max(axis=1) - 0.5) + 1, 0, height).astype(np.int64)
    rows = np.where(drawn, np.maximum(last - first, 0), 0)
    owner = np.repeat(np.arange(len(corners)), rows)
    row = first[owner] + _ramps(rows)
    a = to_weights[owner, :, 0]
    b = to_weights[owner, :, 1] * (row + 0.5)[:, None] + to_weights[owner, :, 2] + OVERLAP
    crossing = -b / np.where(a == 0, 1, a)
    left = np.where(a > 0, crossing, np.where((a == 0) & (b < 0), np.inf, -np.inf)).max(axis=1)
    right = np.where(a < 0, crossing, np.inf).min(axis=1)
    begin = np.clip(np.ceil(left - 0.5), 0, width).astype(np.int64)
    end = np.clip(np.floor(right - 0.5) + 1, 0, width).astype(np.int64)
    kept = end > begin
    return owner[kept], row[kept], begin[kept], (end - begin)[kept]


def _steps(spans: Spans) -> Iterator[Spans]:
    """The spans in chunks of about ``FRAGMENTS_PER_STEP`` pixels."""
    step = np.cumsum(spans[3]) // FRAGMENTS_PER_STEP
    cuts = np.flatnonzero(np.diff(step)) + 1
    for part in np.split(np.arange(len(step)), cuts):
        owner, row, begin, length = (entry[part] for entry in spans)
        yield owner, row, begin, length


def _fragments(
    owner: np.ndarray, row: np.ndarray, begin: np.ndarray, length: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Triangle, row and column of the center of every covered pixel."""
    column = np.repeat(begin + 0.5, length) + _ramps(length)
    return np.repeat(owner, length), np.repeat(row + 0.5, length), column


def _ramps(lengths: np.ndarray) -> np.ndarray:
    """0, 1, …, length - 1 for each length, concatenated."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
