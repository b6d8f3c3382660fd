"""Quadric decimation onto a subset of the vertices.

Vertices are removed one at a time, cheapest first. The half-edge collapse u → v moves u onto its neighbor v and costs

    Q_u(p_v) + Q_v(p_v),

where Q are quadric error metrics (Garland & Heckbert 1997); v then inherits the sum. As in CoMA (Ranjan et al. 2018)
nothing else moves, so the vertices of a coarse mesh are a subset of the fine ones. Unlike CoMA, faces are weighted by
area, and a collapse must keep the mesh a surface (``collapse.Rules``). Equal costs, as on a plane where all are zero,
are ordered by edge length, then by u, then by v, so the result depends on the input alone.

The target is always reached. Vertices without faces are removed first, at no cost, highest index first. When no
collapse satisfies the rules, the next weaker rules apply until the end: faces may fold, and after that the topology may
change (handles, holes and small components close or vanish, down to one triangle).

A quadric is the weighted sum of squared distances to planes nᵀx = h. It is stored relative to its own vertex at p. With
d = x - p,

    Q(x) = dᵀ A d + 2 bᵀ d + c,      A = Σ w n nᵀ,   b = Σ w r n,   c = Σ w r²,   r = nᵀp - h.

A plane through p adds to A only, so at the start b = c = 0 everywhere, and c is always the error at the vertex itself.
Relative to a common origin, the same sum would cancel to rounding noise on fine meshes.

The weight w of the plane of a face is its area, as in Garland's thesis. (CoMA's code gives every face the same weight,
which makes the result depend on the tessellation.) Along an edge that does not have exactly two faces, a plane
perpendicular to the face is added with weight ``BORDER_WEIGHT`` · |edge|².
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import repeat

import numpy as np
from scipy.sparse import csr_array

from geoskip.arguments import check_type, whole_number
from geoskip.meshes.collapse import GONE, Rules, Surface
from geoskip.meshes.mesh import Mesh, MeshError
from geoskip.shapes import Float, Int

BORDER_WEIGHT = 1e3
# A collapse that leaves its planes by less than 3e-7 radians counts as flat: its computed error is rounding noise.
FLAT = 1e-13

Quadric = tuple[float, float, float, float, float, float, float, float, float, float]
"""Axx, Axy, Axz, Ayy, Ayz, Azz, bx, by, bz, c."""

QueueEntry = tuple[float, float, int, int, int, float | None]
"""Cost, squared length, moving vertex, fixed vertex, the sum of their stamps when the entry was made, and the cost of
the reverse collapse if that is not in the queue yet."""

_DEAD = 1 << 60


@dataclass(frozen=True, eq=False)
class Decimation:
    """A coarse mesh and its relation to the fine one.

    mesh: the kept vertices and the faces between them.
    kept: the index of each of its vertices in the fine mesh, ascending.
    cost: the sum of the kept vertices' quadrics at their own positions, in units of length⁴; 0 for a plane.
    """

    mesh: Mesh
    kept: Int[np.ndarray, "kept"]
    cost: float


def decimate(mesh: Mesh, target: int) -> Decimation:
    """Collapse half-edges until exactly ``target`` vertices remain.

    Takes O(n log n) time if vertex degrees are bounded. Faces with the same corners as an earlier face are dropped
    first. Winding and face order are kept.
    """
    check_type("mesh", mesh, Mesh)
    target = whole_number("target", target, "a decimation", least=None)
    _check_target(mesh, target)
    scale = _power_of_two_above(np.ptp(mesh.verts, axis=0).max())
    fine = Mesh((mesh.verts - mesh.verts.min(axis=0)) / scale, _without_duplicates(mesh.faces))
    surface, queue = Surface(fine), CollapseQueue(fine)
    rules = Rules.NO_FOLDS
    while surface.num_vertices > target:
        if surface.loose:
            surface.remove(surface.loose.pop())
        elif (entry := queue.pop()) is None:
            rules = Rules(rules + 1)
            queue.release_all()
        elif (plan := surface.plan(entry[2], entry[3], rules)) is None:
            queue.park(entry)
        else:
            surface.collapse(plan)
            queue.collapse(entry, surface.rings[plan.fixed])
    return _result(mesh, surface, queue.cost(surface.alive) * scale**4)


def _check_target(mesh: Mesh, target: int) -> None:
    if not 3 <= target <= mesh.num_vertices:
        raise MeshError(f"target: must be from 3 to {mesh.num_vertices} (the number of vertices), got {target}")
    if target < mesh.num_vertices and not mesh.num_faces:
        raise MeshError(f"mesh: cannot decimate {mesh.num_vertices} vertices without faces")


def _power_of_two_above(extent: float) -> float:
    """Dividing by it is exact and keeps fourth powers of lengths from overflowing or underflowing."""
    return float(2.0 ** np.frexp(extent)[1])


def _without_duplicates(faces: np.ndarray) -> np.ndarray:
    _, first = np.unique(np.sort(faces, axis=1), axis=0, return_index=True)
    return faces[np.sort(first)]


def _result(mesh: Mesh, surface: Surface, cost: float) -> Decimation:
    kept = np.flatnonzero(surface.alive)
    new_index = np.cumsum(surface.alive) - 1
    faces = np.array([face for face in surface.faces if face is not GONE], dtype=np.int64).reshape(-1, 3)
    return Decimation(Mesh(mesh.verts[kept], new_index[faces]), kept, cost)


class CollapseQueue:
    """The half-edges u → v of a surface, ordered by cost, length, u and v: a heap with lazy invalidation.

    An edge is queued in its cheaper direction; the other direction follows only if the first is not allowed. A vertex's
    stamp counts the changes of its quadric. Stamps only grow, so an entry is valid as long as the sum of its two stamps
    is unchanged. A collapse that is not allowed is parked with its moving vertex and returns to the queue when the
    faces around that vertex change, because nothing farther away can make it valid.
    """

    def __init__(self, mesh: Mesh) -> None:
        planes = vertex_planes(mesh)
        self.verts: list[tuple[float, float, float]] = [tuple(p) for p in mesh.verts.tolist()]
        self.quadrics: list[Quadric] = [(*p, 0.0, 0.0, 0.0, 0.0) for p in planes.tolist()]
        self.stamps = [0] * mesh.num_vertices
        self.parked: dict[int, list[QueueEntry]] = {}
        self.heap = _first_entries(mesh, planes)

    def pop(self) -> QueueEntry | None:
        """The cheapest valid entry, if any."""
        stamps = self.stamps
        while self.heap:
            entry = heappop(self.heap)
            if stamps[entry[2]] + stamps[entry[3]] == entry[4]:
                return entry
        return None

    def park(self, entry: QueueEntry) -> None:
        """Set aside a collapse that is not allowed now, and queue its reverse."""
        cost, length, u, v, stamp, back = entry
        self.parked.setdefault(u, []).append((cost, length, u, v, stamp, None))
        if back is not None:
            heappush(self.heap, (back, length, v, u, stamp, None))

    def release_all(self) -> None:
        """Queue all parked collapses again, because the rules have changed."""
        self.heap = sorted(entry for entries in self.parked.values() for entry in entries)
        self.parked = {}

    def collapse(self, entry: QueueEntry, ring: set[int]) -> None:
        """Update after u → v: v inherits u's quadric, its half-edges get new costs, collapses parked nearby return."""
        cost, _, u, v, _, _ = entry
        (ux, uy, uz), (x, y, z) = self.verts[u], self.verts[v]
        self.quadrics[v] = merge(self.quadrics[u], self.quadrics[v], x - ux, y - uy, z - uz, cost)
        self.stamps[u] = _DEAD
        self.stamps[v] += 1
        for w in ring:
            self._push(v, w)
            for parked in self.parked.pop(w, ()):
                heappush(self.heap, parked)

    def cost(self, alive: list[bool]) -> float:
        return sum(quadric[9] for quadric, here in zip(self.quadrics, alive, strict=True) if here)

    def _push(self, v: int, w: int) -> None:
        (vx, vy, vz), (wx, wy, wz) = self.verts[v], self.verts[w]
        x, y, z = wx - vx, wy - vy, wz - vz
        length, stamp = x * x + y * y + z * z, self.stamps[v] + self.stamps[w]
        p, q = self.quadrics[v], self.quadrics[w]
        forward, back = error(p, x, y, z) + q[9], error(q, -x, -y, -z) + p[9]
        forward = forward if forward > FLAT * (p[0] + p[3] + p[5]) * length else 0.0
        back = back if back > FLAT * (q[0] + q[3] + q[5]) * length else 0.0
        if forward < back or (forward == back and v < w):
            heappush(self.heap, (forward, length, v, w, stamp, back))
        else:
            heappush(self.heap, (back, length, w, v, stamp, forward))


def _first_entries(mesh: Mesh, planes: np.ndarray) -> list[QueueEntry]:
    """Every edge in its cheaper direction, sorted; a sorted list is a valid heap."""
    low, high = mesh.edges().T
    moves = mesh.verts[high] - mesh.verts[low]
    up, down = flat_errors(planes[low], moves), flat_errors(planes[high], moves)
    rising = up <= down
    u, v = np.where(rising, low, high), np.where(rising, high, low)
    costs, back, lengths = np.minimum(up, down), np.maximum(up, down), (moves**2).sum(axis=1)
    order = np.lexsort([v, u, lengths, costs])
    columns = [column[order].tolist() for column in (costs, lengths, u, v)]
    return list(zip(*columns, repeat(0), back[order].tolist()))


def error(quadric: Quadric, x: float, y: float, z: float) -> float:
    """Q at the vertex displaced by d = (x, y, z)."""
    xx, xy, xz, yy, yz, zz, bx, by, bz, c = quadric
    return (
        x * (xx * x + 2.0 * (xy * y + xz * z + bx)) + y * (yy * y + 2.0 * (yz * z + by)) + z * (zz * z + 2.0 * bz) + c
    )


def merge(moving: Quadric, fixed: Quadric, x: float, y: float, z: float, c: float) -> Quadric:
    """Q_moving + Q_fixed relative to the fixed vertex, which lies at d = (x, y, z) from the moving one.

    A is unchanged and b becomes b + A d. The constant c is the error there, known from the cost of the collapse.
    """
    xx, xy, xz, yy, yz, zz, bx, by, bz, _ = moving
    fxx, fxy, fxz, fyy, fyz, fzz, fbx, fby, fbz, _ = fixed
    bx += xx * x + xy * y + xz * z + fbx
    by += xy * x + yy * y + yz * z + fby
    bz += xz * x + yz * y + zz * z + fbz
    return (xx + fxx, xy + fxy, xz + fxz, yy + fyy, yz + fyz, zz + fzz, bx, by, bz, c)


def vertex_planes(mesh: Mesh) -> Float[np.ndarray, "vertices 6"]:
    """A of every vertex as (xx, xy, xz, yy, yz, zz), from the planes of its faces and border edges."""
    normals = mesh.face_normals()
    of_faces = mesh.face_areas()[:, None] * _outer(normals)
    start, end, face = border_sides(mesh)
    # |edge × normal| = |edge|, so the outer product already includes the weight |edge|².
    of_borders = BORDER_WEIGHT * _outer(np.cross(mesh.verts[end] - mesh.verts[start], normals[face]))
    face_ids = np.arange(mesh.num_faces)
    border_ids = mesh.num_faces + np.arange(len(face))
    rows = np.concatenate([*mesh.faces.T, start, end])
    columns = np.concatenate([face_ids, face_ids, face_ids, border_ids, border_ids])
    shape = (mesh.num_vertices, mesh.num_faces + len(face))
    return csr_array((np.ones(len(rows)), (rows, columns)), shape=shape) @ np.concatenate([of_faces, of_borders])


def flat_errors(
    planes: Float[np.ndarray, "edges 6"], moves: Float[np.ndarray, "edges 3"]
) -> Float[np.ndarray, "edges"]:
    """dᵀ A d for the first collapse of many edges; 0 where flat."""
    xx, xy, xz, yy, yz, zz = planes.T
    x, y, z = moves.T
    errors = x * (xx * x + 2.0 * (xy * y + xz * z)) + y * (yy * y + 2.0 * yz * z) + z * zz * z
    return np.where(errors > FLAT * (xx + yy + zz) * (moves**2).sum(axis=1), errors, 0.0)


def border_sides(
    mesh: Mesh,
) -> tuple[Int[np.ndarray, "sides"], Int[np.ndarray, "sides"], Int[np.ndarray, "sides"]]:
    """Start, end and face of every side of a face whose edge does not have exactly two faces."""
    start, end = mesh.faces.ravel(), np.roll(mesh.faces, -1, axis=1).ravel()
    keys = np.minimum(start, end) * mesh.num_vertices + np.maximum(start, end)
    _, edge, counts = np.unique(keys, return_inverse=True, return_counts=True)
    border = counts[edge] != 2
    return start[border], end[border], np.repeat(np.arange(mesh.num_faces), 3)[border]


def _outer(n: np.ndarray) -> np.ndarray:
    x, y, z = n.T
    return np.stack([x * x, x * y, x * z, y * y, y * z, z * z], axis=1)
