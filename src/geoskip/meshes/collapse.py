"""A triangle surface under half-edge collapses: which collapses are allowed, and performing them."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from geoskip.meshes.mesh import Mesh

Face = tuple[int, int, int]
Vector = tuple[float, float, float]

GONE = (-1, -1, -1)
# A face may rotate by up to acos(0.2) = 78°, and its angle at the fixed vertex may shrink to asin(√0.002) = 2.6°.
MIN_COS = 0.2
MIN_SIN_SQUARED = 0.002


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


class Surface:
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
        for f in stars[u] - shared:
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
            faces[f] = GONE
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
            new, old, dot = (
                nx * nx + ny * ny + nz * nz,
                ox * ox + oy * oy + oz * oz,
                nx * ox + ny * oy + nz * oz,
            )
            sides = (bx * bx + by * by + bz * bz) * (cx * cx + cy * cy + cz * cz)
            # A face without area has no normal to compare with.
            if old > 0 and (dot <= 0 or dot * dot < MIN_COS**2 * new * old or new < MIN_SIN_SQUARED * sides):
                return None
        return nx, ny, nz
