"""Quadric decimation onto a subset of the vertices.

Vertices are removed one at a time, cheapest first. The half-edge collapse u → v moves u onto its neighbor v and costs

    Q_u(p_v) + Q_v(p_v),

where Q are quadric error metrics (Garland & Heckbert 1997); v then inherits the sum. As in CoMA (Ranjan et al. 2018)
nothing else moves, so the vertices of a coarse mesh are a subset of the fine ones. Unlike CoMA, faces are weighted by
area, and a collapse must keep the mesh a surface (:class:`Rules`). Equal costs, as on a plane where all are zero, are
ordered by edge length, then by u, then by v, so the result depends on the input alone.

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
from enum import IntEnum
from heapq import heappop, heappush
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from geoskip.arguments import check_type, whole_number
from geoskip.meshes.mesh import Mesh, MeshError, edge_keys
from geoskip.shapes import Float, Int

BORDER_WEIGHT = 1e3
# A collapse that leaves its planes by less than 3e-7 radians counts as flat: its computed error is rounding noise.
FLAT = 1e-13
# A face may rotate by up to acos(0.2) = 78°, and its angle at the fixed vertex may shrink to asin(√0.002) = 2.6°.
MIN_COS = 0.2
MIN_SIN_SQUARED = 0.002

Face = tuple[int, int, int]
Vector = tuple[float, float, float]
Quadric = tuple[float, float, float, float, float, float, float, float, float, float]
"""Axx, Axy, Axz, Ayy, Ayz, Azz, bx, by, bz, c."""

QueueEntry = tuple[float, float, int, int, int, float | None]
"""Cost, squared length, moving vertex, fixed vertex, the sum of their stamps when the entry was made, and the cost of
the reverse collapse if that is not in the queue yet."""

_GONE = (-1, -1, -1)
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
    if not 3 <= target <= mesh.num_vertices:
        raise MeshError(f"target: must be from 3 to {mesh.num_vertices} (the number of vertices), got {target}")
    if target < mesh.num_vertices and not mesh.num_faces:
        raise MeshError(f"mesh: cannot decimate {mesh.num_vertices} vertices without faces")
    # Dividing by a power of two is exact and keeps fourth powers of lengths from overflowing or underflowing.
    scale = float(2.0 ** np.frexp(np.ptp(mesh.verts, axis=0).max())[1])
    _, first = np.unique(np.sort(mesh.faces, axis=1), axis=0, return_index=True)
    fine = Mesh((mesh.verts - mesh.verts.min(axis=0)) / scale, mesh.faces[np.sort(first)])
    surface, queue = MutableMesh(fine), CollapseQueue(fine)
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
    kept, new_index = np.flatnonzero(surface.alive), np.cumsum(surface.alive) - 1
    faces = np.array([face for face in surface.faces if face is not _GONE], dtype=np.int64).reshape(-1, 3)
    cost = sum(queue.quadrics[v][9] for v in kept.tolist())
    return Decimation(Mesh(mesh.verts[kept], new_index[faces]), kept, cost * scale**4)


class Rules(IntEnum):
    """What a collapse must preserve. Decimation starts with the first and relaxes them when no collapse is left."""

    NO_FOLDS = 0  # keep the topology; no face flips or becomes a needle
    TOPOLOGY = 1  # keep the topology: link condition and borders
    ANY_EDGE = 2  # any edge, as long as a face remains


class Plan(NamedTuple):
    """One collapse: the faces that vanish, and the new corners and normals of the other faces of the moving vertex."""

    moving: int
    fixed: int
    gone: list[int]
    turned: list[tuple[int, Face, Vector]]


class MutableMesh:
    """Faces with their unnormalized normals; for each vertex its star (face indices) and ring (neighbors).

    Stars are sets, so any triangle soup can be represented: the faces of an edge are the intersection of two stars. A
    vertex is on the ``border`` if one of its edges does not have two faces, and ``loose`` if it has no faces.
    """

    def __init__(self, mesh: Mesh) -> None:
        a, b, c = (mesh.verts[mesh.faces[:, k]] for k in range(3))
        self.verts: list[Vector] = [tuple(p) for p in mesh.verts.tolist()]
        self.faces: list[Face] = [tuple(f) for f in mesh.faces.tolist()]
        self.normals: list[Vector] = [tuple(n) for n in np.cross(b - a, c - a).tolist()]
        self.stars: list[set[int]] = [set() for _ in self.verts]
        self.rings: list[set[int]] = [set() for _ in self.verts]
        for f, (i, j, k) in enumerate(self.faces):
            for v, left, right in ((i, j, k), (j, k, i), (k, i, j)):
                self.stars[v].add(f)
                self.rings[v].update((left, right))
        borders = np.concatenate([mesh.boundary_edges(), mesh.nonmanifold_edges()])
        self.border: list[bool] = np.isin(np.arange(mesh.num_vertices), borders).tolist()
        self.loose = [v for v, star in enumerate(self.stars) if not star]
        self.alive = [True] * len(self.verts)
        self.num_vertices, self.num_faces = mesh.num_vertices, mesh.num_faces

    def plan(self, u: int, v: int, rules: Rules) -> Plan | None:
        """The collapse of u onto v, or None if the rules do not allow it."""
        stars, faces = self.stars, self.faces
        shared = stars[u] & stars[v]
        if rules < Rules.ANY_EDGE and not self._keeps_topology(u, v, shared):
            return None
        gone, turned = list(shared), []
        for f in stars[u]:
            if f in shared:
                continue
            a, b, c = faces[f]
            if b == u:
                b, c = c, a
            elif c == u:
                b, c = a, b
            if stars[b] & stars[c] & stars[v]:  # the face exists already
                if rules < Rules.ANY_EDGE:
                    return None
                gone.append(f)
                continue
            normal = self._normal_unless_folded(f, v, b, c, rules)
            if normal is None:
                return None
            turned.append((f, (v, b, c), normal))
        return Plan(u, v, gone, turned) if len(gone) < self.num_faces else None

    def collapse(self, plan: Plan) -> None:
        """Perform a collapse planned for the current surface."""
        u, v, gone, turned = plan
        stars, rings, faces = self.stars, self.rings, self.faces
        corners = {w for f in gone for w in faces[f]}
        for f in gone:
            for w in faces[f]:
                stars[w].discard(f)
            faces[f] = _GONE
        for f, face, normal in turned:
            faces[f], self.normals[f] = face, normal
            stars[v].add(f)
        for w in rings[u]:
            rings[w].discard(u)
            rings[w].add(v)
        rings[v] |= rings[u]
        rings[v].discard(v)
        for w in corners - {u, v}:
            if not stars[v] & stars[w]:
                rings[v].discard(w)
                rings[w].discard(v)
        self.loose += [w for w in sorted(corners - {u}) if not stars[w]]
        self.num_faces -= len(gone)
        self.remove(u)

    def remove(self, u: int) -> None:
        """Remove a vertex that no face uses any more."""
        self.stars[u], self.rings[u], self.alive[u] = set(), set(), False
        self.num_vertices -= 1

    def _keeps_topology(self, u: int, v: int, shared: set[int]) -> bool:
        """Whether the link condition holds (Dey et al. 1999) and a border vertex moves along its border only.

        The common neighbors of u and v must be exactly the corners opposite their edge. Two more conditions are checked
        per face: no face becomes a duplicate, and each merged edge keeps a face.
        """
        stars, faces = self.stars, self.faces
        opposite = {w for f in shared for w in faces[f]}
        opposite -= {u, v}
        if self.rings[u] & self.rings[v] != opposite:
            return False
        if not self.border[u]:
            return True
        if len(shared) == 2:
            return False
        return all(len(stars[u] & stars[w]) == 2 or len(stars[v] & stars[w]) == 2 for w in opposite)

    def _normal_unless_folded(self, f: int, v: int, b: int, c: int, rules: Rules) -> Vector | None:
        """The normal of face f as (v, b, c), or None if the face folds and the rules do not allow it."""
        (x, y, z), (bx, by, bz), (cx, cy, cz) = self.verts[v], self.verts[b], self.verts[c]
        bx, by, bz, cx, cy, cz = bx - x, by - y, bz - z, cx - x, cy - y, cz - z
        nx, ny, nz = by * cz - bz * cy, bz * cx - bx * cz, bx * cy - by * cx
        if rules == Rules.NO_FOLDS:
            ox, oy, oz = self.normals[f]
            new, old = nx * nx + ny * ny + nz * nz, ox * ox + oy * oy + oz * oz
            dot = nx * ox + ny * oy + nz * oz
            sides = (bx * bx + by * by + bz * bz) * (cx * cx + cy * cy + cz * cz)
            # A face without area has no normal to compare with.
            if old > 0 and (dot <= 0 or dot * dot < MIN_COS**2 * new * old or new < MIN_SIN_SQUARED * sides):
                return None
        return nx, ny, nz


class CollapseQueue:
    """The half-edges u → v of a surface, ordered by cost, length, u and v: a heap with lazy invalidation.

    An edge is queued in its cheaper direction; the other direction follows only if the first is not allowed. A vertex's
    stamp counts the changes of its quadric. Stamps only grow, so an entry is valid as long as the sum of its two stamps
    is unchanged. A collapse that is not allowed is parked with its moving vertex and returns to the queue when the
    faces around that vertex change, because nothing farther away can make it valid.
    """

    def __init__(self, mesh: Mesh) -> None:
        planes = _vertex_planes(mesh)
        self.verts: list[Vector] = [tuple(p) for p in mesh.verts.tolist()]
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
        self.quadrics[v] = _merge(self.quadrics[u], self.quadrics[v], x - ux, y - uy, z - uz, cost)
        self.stamps[u] = _DEAD
        self.stamps[v] += 1
        for w in ring:
            self._push(v, w)
            for parked in self.parked.pop(w, ()):
                heappush(self.heap, parked)

    def _push(self, v: int, w: int) -> None:
        (vx, vy, vz), (wx, wy, wz) = self.verts[v], self.verts[w]
        x, y, z = wx - vx, wy - vy, wz - vz
        length, stamp = x * x + y * y + z * z, self.stamps[v] + self.stamps[w]
        p, q = self.quadrics[v], self.quadrics[w]
        forward, back = _error(p, x, y, z) + q[9], _error(q, -x, -y, -z) + p[9]
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
    lengths = (moves**2).sum(axis=1)
    up, down = _first_costs(planes[low], moves, lengths), _first_costs(planes[high], moves, lengths)
    rising = up <= down
    u, v = np.where(rising, low, high), np.where(rising, high, low)
    costs, back = np.minimum(up, down), np.maximum(up, down)
    order = np.lexsort([v, u, lengths, costs])
    columns = [column[order].tolist() for column in (costs, lengths, u, v)]
    return list(zip(*columns, repeat(0), back[order].tolist()))


def _first_costs(planes: np.ndarray, moves: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """dᵀ A d for each edge; 0 where flat."""
    errors = _error((*planes.T, 0.0, 0.0, 0.0, 0.0), *moves.T)
    return np.where(errors > FLAT * (planes[:, 0] + planes[:, 3] + planes[:, 5]) * lengths, errors, 0.0)


def _error(quadric: Any, x: Any, y: Any, z: Any) -> Any:
    """Q at the vertex displaced by d = (x, y, z): of one quadric, or of arrays of them."""
    xx, xy, xz, yy, yz, zz, bx, by, bz, c = quadric
    return (
        x * (xx * x + 2.0 * (xy * y + xz * z + bx)) + y * (yy * y + 2.0 * (yz * z + by)) + z * (zz * z + 2.0 * bz) + c
    )


def _merge(moving: Quadric, fixed: Quadric, x: float, y: float, z: float, c: float) -> Quadric:
    """Q_moving + Q_fixed relative to the fixed vertex, which lies at d = (x, y, z) from the moving one.

    A is unchanged and b becomes b + A d. The constant c is the error there, known from the cost of the collapse.
    """
    xx, xy, xz, yy, yz, zz, bx, by, bz, _ = moving
    fxx, fxy, fxz, fyy, fyz, fzz, fbx, fby, fbz, _ = fixed
    bx += xx * x + xy * y + xz * z + fbx
    by += xy * x + yy * y + yz * z + fby
    bz += xz * x + yz * y + zz * z + fbz
    return (xx + fxx, xy + fxy, xz + fxz, yy + fyy, yz + fyz, zz + fzz, bx, by, bz, c)


def _vertex_planes(mesh: Mesh) -> Float[np.ndarray, "vertices 6"]:
    """A of every vertex as (xx, xy, xz, yy, yz, zz), from the planes of its faces and border edges."""
    from scipy.sparse import csr_array

    normals = mesh.face_normals()
    of_faces = mesh.face_areas()[:, None] * _outer(normals)
    start, end = mesh.faces.ravel(), np.roll(mesh.faces, -1, axis=1).ravel()
    keys = edge_keys(start, end, mesh.num_vertices)
    _, edge, counts = np.unique(keys, return_inverse=True, return_counts=True)
    border = counts[edge] != 2
    start, end, face = start[border], end[border], np.repeat(np.arange(mesh.num_faces), 3)[border]
    # |edge × normal| = |edge|, so the outer product already includes the weight |edge|².
    of_borders = BORDER_WEIGHT * _outer(np.cross(mesh.verts[end] - mesh.verts[start], normals[face]))
    face_ids = np.arange(mesh.num_faces)
    border_ids = mesh.num_faces + np.arange(len(face))
    rows = np.concatenate([*mesh.faces.T, start, end])
    columns = np.concatenate([face_ids, face_ids, face_ids, border_ids, border_ids])
    shape = (mesh.num_vertices, mesh.num_faces + len(face))
    return csr_array((np.ones(len(rows)), (rows, columns)), shape=shape) @ np.concatenate([of_faces, of_borders])


def _outer(n: np.ndarray) -> np.ndarray:
    x, y, z = n.T
    return np.stack([x * x, x * y, x * z, y * y, y * z, z * z], axis=1)
