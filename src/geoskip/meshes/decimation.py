"""Quadric decimation onto a subset of the vertices.

Vertices go one by one, cheapest first: the half-edge collapse u → v moves u onto its neighbour v and costs

    Q_u(p_v) + Q_v(p_v),

the quadrics of ``quadrics.py``, which v then inherits. As in CoMA (Ranjan et al. 2018) nothing else moves, so
a coarse mesh is a selection of fine vertices. Differences from CoMA: area weights; only collapses that keep
the surface a surface (``collapse.Rules``). Equal costs, as on a plane where all are zero, are ordered by edge
length, then by u, then by v: the result is a function of the input alone.

The target is always met. Vertices without faces go first, at no cost, highest index first. When no collapse
is left that respects the rules, the next weaker rules apply until the end: faces may fold; then topology may
change (handles, holes and small components close or vanish, down to one triangle).
"""

from dataclasses import dataclass

import numpy as np

from geoskip.arguments import check_type, whole_number
from geoskip.meshes.collapse import GONE, Rules, Surface
from geoskip.meshes.collapse_queue import CollapseQueue
from geoskip.meshes.mesh import Mesh, MeshError
from geoskip.shapes import Int


@dataclass(frozen=True, eq=False)
class Decimation:
    """A coarse mesh and where it comes from.

    mesh: the kept vertices and the faces between them.
    kept: the index in the fine mesh of each of its vertices, ascending.
    cost: the sum of the kept vertices' quadrics at their own positions, a length to the fourth; 0 for a plane.
    """

    mesh: Mesh
    kept: Int[np.ndarray, "kept"]
    cost: float


def decimate(mesh: Mesh, target: int) -> Decimation:
    """Collapse half-edges until exactly ``target`` vertices remain; n log n for vertices of bounded degree.

    Faces that repeat the corners of an earlier face are dropped first. Winding is kept, face order too.
    """
    check_type("mesh", mesh, Mesh)
    target = whole_number("target", target, "a decimation", least=None)
    _check_target(mesh, target)
    scale = _power_of_two_above(np.ptp(mesh.verts, axis=0).max())
    fine = Mesh((mesh.verts - mesh.verts.min(axis=0)) / scale, _without_doubles(mesh.faces))
    surface, queue = Surface(fine), CollapseQueue(fine)
    rules = Rules.NO_FOLDS
    while surface.num_verts > target:
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
    if not 3 <= target <= mesh.num_verts:
        raise MeshError(f"target: cannot keep {target} of {mesh.num_verts} vertices: ask for 3 to {mesh.num_verts}")
    if target < mesh.num_verts and not mesh.num_faces:
        raise MeshError(f"a mesh of {mesh.num_verts} vertices without faces has no surface to decimate")


def _power_of_two_above(extent: float) -> float:
    """Division by it is exact, and keeps fourth powers of lengths clear of overflow and underflow."""
    return float(2.0 ** np.frexp(extent)[1])


def _without_doubles(faces: np.ndarray) -> np.ndarray:
    _, first = np.unique(np.sort(faces, axis=1), axis=0, return_index=True)
    return faces[np.sort(first)]


def _result(mesh: Mesh, surface: Surface, cost: float) -> Decimation:
    kept = np.flatnonzero(surface.alive)
    new_index = np.cumsum(surface.alive) - 1
    faces = np.array([face for face in surface.faces if face is not GONE], dtype=np.int64).reshape(-1, 3)
    return Decimation(Mesh(mesh.verts[kept], new_index[faces]), kept, cost)
