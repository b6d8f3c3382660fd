"""The triangle mesh: an immutable record of float64 positions and int64 faces that has been checked once."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from geoskip.arguments import brief
from geoskip.shapes import Bool, Float, Int

# Areas, quadrics and their squares then stay far inside float64, and positions inside float32.
MAX_COORDINATE = 1e30


class MeshError(ValueError):
    """A mesh, or a file that should hold one, that cannot be used; the message says why."""


@dataclass(frozen=True, eq=False)
class Mesh:
    """Triangles over a vertex list whose order carries meaning (correspondence between meshes).

    verts: positions, float64, finite, at most ``MAX_COORDINATE`` in magnitude.
    faces: three different vertex indices per triangle, int64, counter-clockwise seen from outside.

    Both are private read-only copies. A face that repeats an index is refused: it has no normal, and its
    edge is a loop. Zero-area faces with three different corners, duplicate or non-manifold faces, isolated
    vertices, several components or no faces at all make a mesh; each algorithm says what it does with them.
    """

    verts: Float[np.ndarray, "vertices 3"]
    faces: Int[np.ndarray, "faces 3"]

    def __post_init__(self) -> None:
        object.__setattr__(self, "verts", _checked_verts(self.verts))
        object.__setattr__(self, "faces", _checked_faces(self.faces, len(self.verts)))

    @property
    def num_verts(self) -> int:
        return len(self.verts)

    @property
    def num_faces(self) -> int:
        return len(self.faces)

    def with_verts(self, verts: Float[np.ndarray, "vertices 3"]) -> "Mesh":
        """The same connectivity at other positions; another vertex count is refused."""
        if len(verts) != self.num_verts:
            raise MeshError(f"{len(verts)} positions for a connectivity of {self.num_verts} vertices")
        return replace(self, verts=verts)

    def submesh(self, keep: Int[np.ndarray, "kept"]) -> "Mesh":
        """The vertices ``keep``, in that order, with the faces whose three corners are all kept."""
        keep = np.asarray(keep)
        # A mask taken for indices would keep vertices 0 and 1.
        if keep.ndim != 1 or (keep.size and keep.dtype.kind not in "iu"):
            raise MeshError(f"submesh wants a list of vertex indices, not {keep.dtype} of shape {keep.shape}")
        if ((keep < 0) | (keep >= self.num_verts)).any():
            raise MeshError(f"submesh wants a list of vertex indices from 0 to {self.num_verts - 1}")
        keep = keep.astype(np.int64)
        new_index = np.full(self.num_verts, -1, dtype=np.int64)
        new_index[keep] = np.arange(len(keep))
        if (new_index[keep] != np.arange(len(keep))).any():
            raise MeshError("submesh was given a vertex twice")
        faces = new_index[self.faces]
        return Mesh(self.verts[keep], faces[(faces >= 0).all(axis=1)])

    def edges(self) -> Int[np.ndarray, "edges 2"]:
        """Every undirected edge once, as (smaller, larger) index, in lexicographic order."""
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
        """Connected component of each vertex, numbered by first appearance; an isolated vertex is its own."""
        i, j = self.edges().T
        shape = (self.num_verts, self.num_verts)
        adjacency = coo_array((np.ones(len(i), dtype=np.int8), (i, j)), shape=shape)
        labels = connected_components(adjacency, directed=False)[1]
        return labels.astype(np.int64)

    def face_areas(self) -> Float[np.ndarray, "faces"]:
        return 0.5 * np.linalg.norm(self._face_crosses(), axis=1)

    def face_normals(self) -> Float[np.ndarray, "faces 3"]:
        """Unit normals, by the right-hand rule; the zero vector where a face has no area."""
        crosses = self._face_crosses()
        lengths = np.linalg.norm(crosses, axis=1, keepdims=True)
        return np.divide(crosses, lengths, out=np.zeros_like(crosses), where=lengths > 0)

    def topology_hash(self) -> str:
        """sha256 of vertex count and faces (int64, little endian): order enters, positions do not."""
        digest = hashlib.sha256(np.array(self.num_verts, dtype="<i8").tobytes())
        digest.update(self.faces.astype("<i8").tobytes())
        return digest.hexdigest()

    def _edges_and_counts(self) -> tuple[np.ndarray, np.ndarray]:
        ends = np.sort(self.faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1)
        # One key per edge sorts many times faster than rows; counts up to 3e9 vertices fit.
        keys, counts = np.unique(ends[:, 0] * self.num_verts + ends[:, 1], return_counts=True)
        return np.stack(np.divmod(keys, max(self.num_verts, 1)), axis=1), counts

    def _face_crosses(self) -> np.ndarray:
        a, b, c = (self.verts[self.faces[:, k]] for k in range(3))
        return np.cross(b - a, c - a)


def float64_copy(array: np.ndarray) -> np.ndarray:
    """In C order; a signalling NaN of float32, on which the conversion would warn, arrives as any other NaN."""
    with np.errstate(invalid="ignore"):
        return np.array(array, dtype=np.float64, order="C")


def repeats_a_corner(faces: Int[np.ndarray, "faces 3"]) -> Bool[np.ndarray, "faces"]:
    """Mask of the faces that name one vertex twice."""
    a, b, c = faces.T
    return (a == b) | (b == c) | (c == a)


def _checked_verts(verts: object) -> np.ndarray:
    array = _as_array("verts", verts)
    if array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind not in "fiu":
        raise MeshError(f"verts must be real numbers of shape (vertices, 3), not {array.dtype} {array.shape}")
    array = float64_copy(array)
    _refuse("verts", ~(np.abs(array) <= MAX_COORDINATE), array, f"vertices are not finite or exceed {MAX_COORDINATE:g}")
    array.flags.writeable = False
    return array


def _checked_faces(faces: object, num_verts: int) -> np.ndarray:
    array = _as_array("faces", faces)
    if array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind not in "iu":
        raise MeshError(f"faces must be integers of shape (faces, 3), not {array.dtype} {array.shape}")
    outside = np.logical_or(array < 0, array >= num_verts)
    _refuse("faces", outside, array, f"faces name vertices outside 0 to {num_verts - 1}")
    array = np.array(array, dtype=np.int64, order="C")
    _refuse("faces", repeats_a_corner(array), array, "faces repeat a vertex (remove them)")
    array.flags.writeable = False
    return array


def _as_array(name: str, value: object) -> np.ndarray:
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError, NotImplementedError):
        raise MeshError(f"{name} must be an array of numbers, not {brief(value)}") from None


def _refuse(name: str, bad: Any, rows: np.ndarray, fault: str) -> None:
    """``bad`` marks rows or entries of ``rows``; it is folded to rows only where something is wrong, for speed."""
    if bad.any():
        bad_rows = bad.reshape(len(rows), -1).any(axis=1)
        first = int(bad_rows.argmax())
        raise MeshError(
            f"{name}: {bad_rows.sum()} of {len(rows)} {fault}; the first is number {first}: {rows[first].tolist()}"
        )
