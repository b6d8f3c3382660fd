"""The half-edges of a surface in order of cost."""

from heapq import heappop, heappush
from itertools import repeat

import numpy as np

from geoskip.meshes.quadrics import FLAT, Quadric, error, flat_errors, merge, vertex_planes
from geoskip.shapes import Float, Int

Entry = tuple[float, float, int, int, int]
"""Cost, squared length, moving vertex, fixed vertex, and the sum of their stamps when this was computed."""

_DEAD = 1 << 60


class CollapseQueue:
    """Every half-edge u → v with its cost, in a heap with lazy invalidation.

    A vertex's stamp counts the changes of its quadric; stamps only grow, so an entry is current exactly
    while the sum of its two stamps stands. A forbidden collapse is parked with its moving vertex and comes
    back when the faces around that vertex change: nothing farther away can make it legal.
    """

    def __init__(self, verts: Float[np.ndarray, "vertices 3"], faces: Int[np.ndarray, "faces 3"]) -> None:
        planes = vertex_planes(verts, faces)
        self.verts: list[tuple[float, float, float]] = [tuple(p) for p in verts.tolist()]
        self.quadrics: list[Quadric] = [(*p, 0.0, 0.0, 0.0, 0.0) for p in planes.tolist()]
        self.stamps = [0] * len(verts)
        self.parked: dict[int, list[Entry]] = {}
        self.heap = _first_entries(verts, faces, planes)

    def pop(self) -> Entry | None:
        """The cheapest current entry, if any."""
        stamps = self.stamps
        while self.heap:
            entry = heappop(self.heap)
            if stamps[entry[2]] + stamps[entry[3]] == entry[4]:
                return entry
        return None

    def park(self, entry: Entry) -> None:
        self.parked.setdefault(entry[2], []).append(entry)

    def release_all(self) -> None:
        self.heap = sorted(entry for entries in self.parked.values() for entry in entries)
        self.parked = {}

    def collapse(self, entry: Entry, ring: set[int]) -> None:
        """After u → v: v inherits u's quadric; its half-edges get new costs, its ring's parked ones return."""
        cost, _, u, v, _ = entry
        (ux, uy, uz), (x, y, z) = self.verts[u], self.verts[v]
        self.quadrics[v] = merge(self.quadrics[u], self.quadrics[v], x - ux, y - uy, z - uz, cost)
        self.stamps[u] = _DEAD
        self.stamps[v] += 1
        for w in ring:
            self._push_both_ways(v, w)
            for parked in self.parked.pop(w, ()):
                heappush(self.heap, parked)

    def cost(self, alive: list[bool]) -> float:
        return sum(quadric[9] for quadric, here in zip(self.quadrics, alive, strict=True) if here)

    def _push_both_ways(self, v: int, w: int) -> None:
        (vx, vy, vz), (wx, wy, wz) = self.verts[v], self.verts[w]
        x, y, z = wx - vx, wy - vy, wz - vz
        length, stamp = x * x + y * y + z * z, self.stamps[v] + self.stamps[w]
        p, q = self.quadrics[v], self.quadrics[w]
        there, back = error(p, x, y, z) + q[9], error(q, -x, -y, -z) + p[9]
        there = there if there > FLAT * (p[0] + p[3] + p[5]) * length else 0.0
        back = back if back > FLAT * (q[0] + q[3] + q[5]) * length else 0.0
        heappush(self.heap, (there, length, v, w, stamp))
        heappush(self.heap, (back, length, w, v, stamp))


def _first_entries(verts: np.ndarray, faces: np.ndarray, planes: np.ndarray) -> list[Entry]:
    """Both half-edges of every edge in ascending order, which is a heap."""
    start, end = faces.ravel(), np.roll(faces, -1, axis=1).ravel()
    keys = np.unique(np.concatenate([start * len(verts) + end, end * len(verts) + start]))
    u, v = np.divmod(keys, max(len(verts), 1))
    moves = verts[v] - verts[u]
    costs, lengths = flat_errors(planes[u], moves), (moves**2).sum(axis=1)
    order = np.lexsort([v, u, lengths, costs])
    columns = (column[order].tolist() for column in (costs, lengths, u, v))
    return list(zip(*columns, repeat(0)))
