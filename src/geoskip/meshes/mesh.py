"""The triangle mesh: an immutable record of float64 positions and int64 faces, validated on construction."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from geoskip.arguments import short_repr
from geoskip.shapes import Bool, Float, Int

# Below this, areas, quadrics and their squares fit in float64, and positions in float32.
MAX_COORDINATE = 1e30


class MeshError(ValueError):
    """A mesh or mesh file is invalid; the message says why."""


@dataclass(frozen=True, eq=False)
class Mesh:
    """Triangles over a list of vertices. The order of the vertices is meaningful: it relates meshes to each other.

    verts: positions, float64, finite, at most ``MAX_COORDINATE`` in magnitude.
    faces: three different vertex indices per triangle, int64, counter-clockwise seen from outside.

    Both are private read-only copies. A face that repeats an index is an error: it has no normal, and one of its edges
    is a loop. Faces of zero area with three different corners, duplicate or non-manifold faces, isolated vertices,
    several components, or no faces at all are valid; each algorithm documents how it handles them.
    """

    verts: Float[np.ndarray, "vertices 3"]
    faces: Int[np.ndarray, "faces 3"]

    def __post_init__(self) -> None:
        object.__setattr__(self, "verts", _checked_verts(self.verts))
        object.__setattr__(self, "faces", _checked_faces(self.faces, len(self.verts)))

    @property
    def num_vertices(self) -> int:
        return len(self.verts)

    @property
    def num_faces(self) -> int:
        return len(self.faces)

    def with_verts(self, verts: Float[np.ndarray, "vertices 3"]) -> "Mesh":
        """The same faces with other positions, which must have the same number of vertices."""
        if len(verts) != self.num_vertices:
            raise MeshError(f"verts: expected {self.num_vertices} positions, got {len(verts)}")
        return replace(self, verts=verts)

    def submesh(self, keep: Int[np.ndarray, "kept"]) -> "Mesh":
        """The vertices ``keep``, in that order, and the faces whose three corners are all kept."""
        keep = np.asarray(keep)
        # A boolean mask would otherwise select vertices 0 and 1.
        if keep.ndim != 1 or (keep.size and keep.dtype.kind not in "iu"):
            raise MeshError(f"keep: expected a list of vertex indices, not {keep.dtype} of shape {keep.shape}")
        if ((keep < 0) | (keep >= self.num_vertices)).any():
            raise MeshError(f"keep: expected vertex indices from 0 to {self.num_vertices - 1}")
        keep = keep.astype(np.int64)
        new_index = np.full(self.num_vertices, -1, dtype=np.int64)
        new_index[keep] = np.arange(len(keep))
        if (new_index[keep] != np.arange(len(keep))).any():
            raise MeshError("keep: contains a vertex twice")
        faces = new_index[self.faces]
        return Mesh(self.verts[keep], faces[(faces >= 0).all(axis=1)])

    def edges(self) -> Int[np.ndarray, "edges 2"]:
        """Every undirected edge once, as (smaller index, larger index), in lexicographic order."""
        return self._edges_and_counts()[0]

    def boundary_edges(self) -> Int[np.ndarray, "edges 2"]:
        """The edges that belong to exactly one face."""
        edges, counts = self._edges_and_counts()
        return edges[counts == 1]

    def nonmanifold_edges(self) -> Int[np.ndarray, "edges 2"]:
        """The edges that belong to more than two faces."""
        edges, counts = self._edges_and_counts()
        return edges[counts > 2]

    def components(self) -> Int[np.ndarray, "vertices"]:
        """The connected component of each vertex, numbered by first appearance. An isolated vertex is a component."""
        i, j = self.edges().T
        shape = (self.num_vertices, self.num_vertices)
        adjacency = coo_array((np.ones(len(i), dtype=np.int8), (i, j)), shape=shape)
        labels = connected_components(adjacency, directed=False)[1]
        return labels.astype(np.int64)

    def face_areas(self) -> Float[np.ndarray, "faces"]:
        return 0.5 * np.linalg.norm(self._face_crosses(), axis=1)

    def face_normals(self) -> Float[np.ndarray, "faces 3"]:
        """Unit normals by the right-hand rule; zero for faces without area."""
        crosses = self._face_crosses()
        lengths = np.linalg.norm(crosses, axis=1, keepdims=True)
        return np.divide(crosses, lengths, out=np.zeros_like(crosses), where=lengths > 0)

    def topology_hash(self) -> str:
        """SHA-256 of the vertex count and the faces (int64, little endian); positions do not enter."""
        digest = hashlib.sha256(np.array(self.num_vertices, dtype="<i8").tobytes())
        digest.update(self.faces.astype("<i8").tobytes())
        return digest.hexdigest()

    def _edges_and_counts(self) -> tuple[np.ndarray, np.ndarray]:
        ends = np.sort(self.faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1)
        # Sorting one key per edge is many times faster than sorting rows; keys fit for up to 3e9 vertices.
        keys, counts = np.unique(ends[:, 0] * self.num_vertices + ends[:, 1], return_counts=True)
        return np.stack(np.divmod(keys, max(self.num_vertices, 1)), axis=1), counts

    def _face_crosses(self) -> np.ndarray:
        a, b, c = (self.verts[self.faces[:, k]] for k in range(3))
        return np.cross(b - a, c - a)


@dataclass(frozen=True)
class MeshSummary:
    """The size and quality of a mesh in numbers.

    mean_edge: mean edge length; 0 if there are no edges.
    parts: the number of connected components, including isolated vertices.
    max_degree: the largest number of neighbors of a vertex.
    """

    vertices: int
    faces: int
    edges: int
    mean_edge: float
    boundary_edges: int
    nonmanifold_edges: int
    parts: int
    max_degree: int


def summary(mesh: Mesh) -> MeshSummary:
    """Summarize a mesh, to check at a glance whether it is the intended one."""
    edges = mesh.edges()
    lengths = np.linalg.norm(mesh.verts[edges[:, 0]] - mesh.verts[edges[:, 1]], axis=1)
    return MeshSummary(
        vertices=mesh.num_vertices,
        faces=mesh.num_faces,
        edges=len(edges),
        mean_edge=float(lengths.mean()) if len(edges) else 0.0,
        boundary_edges=len(mesh.boundary_edges()),
        nonmanifold_edges=len(mesh.nonmanifold_edges()),
        parts=int(mesh.components().max(initial=-1)) + 1,
        max_degree=int(np.bincount(edges.ravel()).max(initial=0)),
    )


def float64_copy(array: np.ndarray) -> np.ndarray:
    """A C-ordered copy. Signaling float32 NaNs become ordinary NaNs without a warning."""
    with np.errstate(invalid="ignore"):
        return np.array(array, dtype=np.float64, order="C")


def repeats_a_corner(faces: Int[np.ndarray, "faces 3"]) -> Bool[np.ndarray, "faces"]:
    """Mask of the faces that repeat a vertex."""
    a, b, c = faces.T
    return (a == b) | (b == c) | (c == a)


def _checked_verts(verts: object) -> np.ndarray:
    array = _as_array("verts", verts)
    if array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind not in "fiu":
        raise MeshError(f"verts: must be real numbers of shape (vertices, 3), not {array.dtype} {array.shape}")
    array = float64_copy(array)
    _reject("verts", ~(np.abs(array) <= MAX_COORDINATE), array, f"vertices are not finite or exceed {MAX_COORDINATE:g}")
    array.flags.writeable = False
    return array


def _checked_faces(faces: object, num_vertices: int) -> np.ndarray:
    array = _as_array("faces", faces)
    if array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind not in "iu":
        raise MeshError(f"faces: must be integers of shape (faces, 3), not {array.dtype} {array.shape}")
    outside = np.logical_or(array < 0, array >= num_vertices)
    _reject("faces", outside, array, f"faces refer to vertices outside 0 to {num_vertices - 1}")
    array = np.array(array, dtype=np.int64, order="C")
    _reject("faces", repeats_a_corner(array), array, "faces repeat a vertex (remove them)")
    array.flags.writeable = False
    return array


def _as_array(name: str, value: object) -> np.ndarray:
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError, NotImplementedError):
        raise MeshError(f"{name}: must be an array of numbers, not {short_repr(value)}") from None


def _reject(name: str, bad: Any, rows: np.ndarray, fault: str) -> None:
    """Raise if any row or entry is marked ``bad``. The first bad row is only looked up in that case, for speed."""
    if bad.any():
        bad_rows = bad.reshape(len(rows), -1).any(axis=1)
        first = int(bad_rows.argmax())
        raise MeshError(
            f"{name}: {bad_rows.sum()} of {len(rows)} {fault}; the first is row {first}: {rows[first].tolist()}"
        )
