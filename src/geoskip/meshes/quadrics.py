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

from geoskip.meshes.mesh import Mesh
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


def vertex_planes(mesh: Mesh) -> Float[np.ndarray, "vertices 6"]:
    """A of every vertex, as (xx, xy, xz, yy, yz, zz): the planes of its faces and of its borders."""
    normals = mesh.face_normals()
    of_faces = mesh.face_areas()[:, None] * _outer(normals)
    start, end, face = border_sides(mesh)
    # |edge × normal| = |edge|: the outer product brings the weight |edge|² with it.
    of_borders = BORDER_WEIGHT * _outer(np.cross(mesh.verts[end] - mesh.verts[start], normals[face]))
    face_ids = np.arange(mesh.num_faces)
    border_ids = mesh.num_faces + np.arange(len(face))
    rows = np.concatenate([*mesh.faces.T, start, end])
    columns = np.concatenate([face_ids, face_ids, face_ids, border_ids, border_ids])
    shape = (mesh.num_verts, mesh.num_faces + len(face))
    return csr_array((np.ones(len(rows)), (rows, columns)), shape=shape) @ np.concatenate([of_faces, of_borders])


def flat_errors(
    planes: Float[np.ndarray, "edges 6"], moves: Float[np.ndarray, "edges 3"]
) -> Float[np.ndarray, "edges"]:
    """dᵀ A d for many first collapses, zero where flat."""
    xx, xy, xz, yy, yz, zz = planes.T
    x, y, z = moves.T
    errors = x * (xx * x + 2.0 * (xy * y + xz * z)) + y * (yy * y + 2.0 * yz * z) + z * zz * z
    return np.where(errors > FLAT * (xx + yy + zz) * (moves**2).sum(axis=1), errors, 0.0)


def border_sides(
    mesh: Mesh,
) -> tuple[Int[np.ndarray, "sides"], Int[np.ndarray, "sides"], Int[np.ndarray, "sides"]]:
    """Start, end and face of every side of a face whose edge does not have exactly two faces."""
    start, end = mesh.faces.ravel(), np.roll(mesh.faces, -1, axis=1).ravel()
    keys = np.minimum(start, end) * mesh.num_verts + np.maximum(start, end)
    _, edge, counts = np.unique(keys, return_inverse=True, return_counts=True)
    border = counts[edge] != 2
    return start[border], end[border], np.repeat(np.arange(mesh.num_faces), 3)[border]


def _outer(n: np.ndarray) -> np.ndarray:
    x, y, z = n.T
    return np.stack([x * x, x * y, x * z, y * y, y * z, z * z], axis=1)
