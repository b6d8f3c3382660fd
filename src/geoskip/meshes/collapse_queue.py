"""The half-edges of a surface in order of cost."""

from heapq import heappop, heappush
from itertools import repeat

import numpy as np

from geoskip.meshes.mesh import Mesh
from geoskip.meshes.quadrics import FLAT, Quadric, error, flat_errors, merge, vertex_planes

Entry = tuple[float, float, int, int, int, float | None]
"""Cost, squared length, moving vertex, fixed vertex, the sum of their stamps when this was computed, and the cost of
the way back where that is not in the queue yet."""

_DEAD = 1 << 60


class CollapseQueue:
    """The half-edges u → v of a surface by cost, length, u and v: a heap with lazy invalidation.

    An edge waits in its cheaper direction; the other one follows only when that is forbidden. A vertex's stamp counts
    the changes of its quadric; stamps only grow, so an entry is current exactly while the sum of its two stamps stands.
    A forbidden collapse is parked with its moving vertex and comes back when the faces around that vertex change:
    nothing farther away can make it legal.
    """

    def __init__(self, mesh: Mesh) -> None:
        planes = vertex_planes(mesh)
        self.verts: list[tuple[float, float, float]] = [tuple(p) for p in mesh.verts.tolist()]
        self.quadrics: list[Quadric] = [(*p, 0.0, 0.0, 0.0, 0.0) for p in planes.tolist()]
        self.stamps = [0] * mesh.num_verts
        self.parked: dict[int, list[Entry]] = {}
        self.heap = _first_entries(mesh, planes)

    def pop(self) -> Entry | None:
        """The cheapest current entry, if any."""
        stamps = self.stamps
        while self.heap:
            entry = heappop(self.heap)
            if stamps[entry[2]] + stamps[entry[3]] == entry[4]:
                return entry
        return None

    def park(self, entry: Entry) -> None:
        cost, length, u, v, stamp, back = entry
        self.parked.setdefault(u, []).append((cost, length, u, v, stamp, None))
        if back is not None:
            heappush(self.heap, (back, length, v, u, stamp, None))

    def release_all(self) -> None:
        self.heap = sorted(entry for entries in self.parked.values() for entry in entries)
        self.parked = {}

    def collapse(self, entry: Entry, ring: set[int]) -> None:
        """After u → v: v inherits u's quadric; its half-edges get new costs, its ring's parked ones return."""
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
        there, back = error(p, x, y, z) + q[9], error(q, -x, -y, -z) + p[9]
        there = there if there > FLAT * (p[0] + p[3] + p[5]) * length else 0.0
        back = back if back > FLAT * (q[0] + q[3] + q[5]) * length else 0.0
        if there < back or (there == back and v < w):
            heappush(self.heap, (there, length, v, w, stamp, back))
        else:
            heappush(self.heap, (back, length, w, v, stamp, there))


def _first_entries(mesh: Mesh, planes: np.ndarray) -> list[Entry]:
    """Every edge in its cheaper direction, in ascending order, which is a heap."""
    low, high = mesh.edges().T
    moves = mesh.verts[high] - mesh.verts[low]
    up, down = flat_errors(planes[low], moves), flat_errors(planes[high], moves)
    rising = up <= down
    u, v = np.where(rising, low, high), np.where(rising, high, low)
    costs, back, lengths = np.minimum(up, down), np.maximum(up, down), (moves**2).sum(axis=1)
    order = np.lexsort([v, u, lengths, costs])
    columns = [column[order].tolist() for column in (costs, lengths, u, v)]
    return list(zip(*columns, repeat(0), back[order].tolist()))
