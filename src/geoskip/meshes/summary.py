"""A mesh in numbers, to see at a glance whether it is the mesh that one meant."""

from dataclasses import dataclass

import numpy as np

from geoskip.meshes.mesh import Mesh


@dataclass(frozen=True)
class MeshSummary:
    """mean_edge: mean length of the edges, 0 without any. parts: connected components, isolated vertices among them.
    max_degree: the most neighbours that a vertex has."""

    vertices: int
    faces: int
    edges: int
    mean_edge: float
    boundary_edges: int
    nonmanifold_edges: int
    parts: int
    max_degree: int


def summary(mesh: Mesh) -> MeshSummary:
    edges = mesh.edges()
    lengths = np.linalg.norm(mesh.verts[edges[:, 0]] - mesh.verts[edges[:, 1]], axis=1)
    return MeshSummary(
        vertices=mesh.num_verts,
        faces=mesh.num_faces,
        edges=len(edges),
        mean_edge=float(lengths.mean()) if len(edges) else 0.0,
        boundary_edges=len(mesh.boundary_edges()),
        nonmanifold_edges=len(mesh.nonmanifold_edges()),
        parts=int(mesh.components().max(initial=-1)) + 1,
        max_degree=int(np.bincount(edges.ravel()).max(initial=0)),
    )
