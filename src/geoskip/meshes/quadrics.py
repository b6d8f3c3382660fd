"""Quadric error metrics (Garland & Heckbert 1997), each kept in the frame of its own vertex.

A quadric is the weighted sum of squared distances to planes nᵀx = h. About a vertex at p, with d = x - p,

    Q(x) = dᵀ A d + 2 bᵀ d + c,      A = Σ w n nᵀ,   b = Σ w r n,   c = Σ w r²,   r = nᵀp - h,

so a plane through p adds to A alone: at first b = c = 0 everywhere, and c is always the error at the vertex
itself. About a common origin the same sum would cancel to rounding noise on fine meshes.

Weights: w is the area for a face's plane, as in Garland's thesis (CoMA's code counts every face alike, which
makes the result depend on the tessellation), and ``BORDER_WEIGHT`` · |edge|² for the plane that stands
perpendicular on a face along an edge which is not shared by exactly two faces.
"""

import numpy as np
from scipy.sparse import csr_array

from geoskip.shapes import Float, Int

BORDER_WEIGHT = 1e3
# A collapse that leaves its planes by less than 3e-7 radians is flat: what is computed there is rounding.
FLAT = 1e-13

Quadric = tuple[float, float, float, float, float, float, float, float, float, float]
"""Axx, Axy, Axz, Ayy, Ayz, Azz, bx, by, bz, c."""


def error(quadric: Quadric, x: float, y: float, z: float) -> float:
    """Q at the vertex displaced by d = (x, y, z)."""
    xx, xy, xz, yy, yz, zz, bx, by, bz, c = quadric
    return (
        x * (xx * x + 2.0 * (xy * y + xz * z + bx)) + y * (yy * y + 2.0 * (yz * z + by)) + z * (zz * z + 2.0 * bz) + c
    )


def merge(moving: Quadric, fixed: Quadric, x: float, y: float, z: float, c: float) -> Quadric:
    """Q_moving + Q_fixed in the frame of the fixed vertex, which lies at d = (x, y, z) from the moving one.

    A stays, b becomes b + A d; the constant c, the error there, is known from the cost of the collapse.
    """
    xx, xy, xz, yy, yz, zz, bx, by, bz, _ = moving
    fxx, fxy, fxz, fyy, fyz, fzz, fbx, fby, fbz, _ = fixed
    bx += xx * x + xy * y + xz * z + fbx
    by += xy * x + yy * y + yz * z + fby
    bz += xz * x + yz * y + zz * z + fbz
    return (xx + fxx, xy + fxy, xz + fxz, yy + fyy, yz + fyz, zz + fzz, bx, by, bz, c)


def vertex_planes(
    verts: Float[np.ndarray, "vertices 3"], faces: Int[np.ndarray, "faces 3"]
) -> Float[np.ndarray, "vertices 6"]:
    """A of every vertex, as (xx, xy, xz, yy, yz, zz): its faces' planes and its border planes."""
    a, b, c = (verts[faces[:, k]] for k in range(3))
    cross = np.cross(b - a, c - a)
    double_area = np.linalg.norm(cross, axis=1, keepdims=True)
    normal = np.divide(cross, double_area, out=np.zeros_like(cross), where=double_area > 0)
    of_faces = _outer(normal) * double_area / 2

    start, end, face = border_half_edges(faces, len(verts))
    # |edge × normal| = |edge|: the outer product brings the weight |edge|² with it.
    of_borders = BORDER_WEIGHT * _outer(np.cross(verts[end] - verts[start], normal[face]))

    rows = np.concatenate([faces.T.ravel(), start, end])
    face_ids = np.arange(len(faces))
    border_ids = len(faces) + np.arange(len(start))
    columns = np.concatenate([face_ids, face_ids, face_ids, border_ids, border_ids])
    num_planes = len(faces) + len(start)
    touches = csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(verts), num_planes))
    return touches @ np.concatenate([of_faces, of_borders])


def flat_errors(
    planes: Float[np.ndarray, "edges 6"], moves: Float[np.ndarray, "edges 3"]
) -> Float[np.ndarray, "edges"]:
    """dᵀ A d for many first collapses, zero where flat."""
    xx, xy, xz, yy, yz, zz = planes.T
    x, y, z = moves.T
    errors = x * (xx * x + 2.0 * (xy * y + xz * z)) + y * (yy * y + 2.0 * yz * z) + z * zz * z
    return np.where(errors > FLAT * (xx + yy + zz) * (moves**2).sum(axis=1), errors, 0.0)


def border_half_edges(
    faces: Int[np.ndarray, "faces 3"], num_verts: int
) -> tuple[Int[np.ndarray, "borders"], Int[np.ndarray, "borders"], Int[np.ndarray, "borders"]]:
    """Start, end and face of every side of a face whose edge does not have exactly two faces."""
    start, end = faces.ravel(), np.roll(faces, -1, axis=1).ravel()
    keys = np.minimum(start, end) * num_verts + np.maximum(start, end)
    _, edge, counts = np.unique(keys, return_inverse=True, return_counts=True)
    border = counts[edge] != 2
    return start[border], end[border], np.repeat(np.arange(len(faces)), 3)[border]


def _outer(n: np.ndarray) -> np.ndarray:
    x, y, z = n.T
    return np.stack([x * x, x * y, x * z, y * y, y * z, z * z], axis=1)
