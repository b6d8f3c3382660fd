"""The triangle mesh: an immutable record of float64 positions and int64 faces, validated on construction.

Also a few meshes with known geometry, for tests and examples: :func:`icosphere`, :func:`torus` and :func:`grid`.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from geoskip.arguments import number_array
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

    def compared_with(self, other: "Mesh") -> str:
        """In what the connectivities of two meshes differ, for messages."""
        own, others = (f"{mesh.num_vertices:,} vertices and {mesh.num_faces:,} faces" for mesh in (self, other))
        return f"{own}, not {others}" if own != others else f"as many vertices and faces ({own}), but in another order"

    def radius(self) -> float:
        """Mean distance of the vertices from their center."""
        return float(np.linalg.norm(self.verts - self.verts.mean(0), axis=1).mean()) if len(self.verts) else 0.0

    def with_verts(self, verts: Float[np.ndarray, "vertices 3"]) -> "Mesh":
        """The same faces with other positions, which must have the same number of vertices."""
        if len(verts) != self.num_vertices:
            raise MeshError(f"verts: expected {self.num_vertices} positions, got {len(verts)}")
        return replace(self, verts=verts)

    def submesh(self, keep: Int[np.ndarray, "kept"]) -> "Mesh":
        """The vertices ``keep``, in that order, and the faces whose three corners are all kept."""
        keep = vertex_numbers("keep", keep, self.num_vertices)
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
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

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
        ends = self.faces, np.roll(self.faces, -1, axis=1)
        keys, counts = np.unique(edge_keys(*ends, self.num_vertices), return_counts=True)
        return np.stack(np.divmod(keys, max(self.num_vertices, 1)), axis=1), counts

    def _face_crosses(self) -> np.ndarray:
        a, b, c = (self.verts[self.faces[:, k]] for k in range(3))
        return np.cross(b - a, c - a)


def edge_keys(i: np.ndarray, j: np.ndarray, num_vertices: int) -> np.ndarray:
    """A number for each edge, whatever its direction: i · num_vertices + j for i < j. It fits for up to 3e9 vertices.

    Sorting these is many times faster than sorting pairs.
    """
    return np.minimum(i, j) * num_vertices + np.maximum(i, j)


def summary(mesh: Mesh) -> dict[str, int | float]:
    """The size and quality of a mesh in numbers.

    ``mean_edge`` is the mean edge length (0 without edges), ``parts`` the number of connected components, including
    isolated vertices, and ``max_degree`` the largest number of neighbors of a vertex.
    """
    edges = mesh.edges()
    lengths = np.linalg.norm(mesh.verts[edges[:, 0]] - mesh.verts[edges[:, 1]], axis=1)
    return {
        "vertices": mesh.num_vertices,
        "faces": mesh.num_faces,
        "edges": len(edges),
        "mean_edge": float(lengths.mean()) if len(edges) else 0.0,
        "boundary_edges": len(mesh.boundary_edges()),
        "nonmanifold_edges": len(mesh.nonmanifold_edges()),
        "parts": int(mesh.components().max(initial=-1)) + 1,
        "max_degree": int(np.bincount(edges.ravel()).max(initial=0)),
    }


def vertex_numbers(name: str, numbers: object, num_vertices: int) -> Int[np.ndarray, "numbers"]:
    """A list of vertex indices as int64; an error that starts with ``name`` if it is something else."""
    array = number_array(name, numbers, "iu", dim=1).astype(np.int64)
    if ((array < 0) | (array >= num_vertices)).any():
        raise MeshError(f"{name}: expected vertex indices from 0 to {num_vertices - 1}")
    return array


def float64_copy(array: np.ndarray) -> np.ndarray:
    """A C-ordered copy. Signaling float32 NaNs become ordinary NaNs without a warning."""
    with np.errstate(invalid="ignore"):
        return np.array(array, dtype=np.float64, order="C")


def repeats_a_corner(faces: Int[np.ndarray, "faces 3"]) -> Bool[np.ndarray, "faces"]:
    """Mask of the faces that repeat a vertex."""
    a, b, c = faces.T
    return (a == b) | (b == c) | (c == a)


def _checked_verts(verts: object) -> np.ndarray:
    array = number_array("verts", verts, "fiu", dim=2)
    if array.shape[1] != 3:
        raise MeshError(f"verts: expected shape [vertices, 3], got {list(array.shape)}")
    array = float64_copy(array)
    _reject("verts", ~(np.abs(array) <= MAX_COORDINATE), array, f"vertices are not finite or exceed {MAX_COORDINATE:g}")
    array.flags.writeable = False
    return array


def _checked_faces(faces: object, num_vertices: int) -> np.ndarray:
    array = number_array("faces", faces, "iu", dim=2)
    if array.shape[1] != 3:
        raise MeshError(f"faces: expected shape [faces, 3], got {list(array.shape)}")
    outside = np.logical_or(array < 0, array >= num_vertices)
    _reject("faces", outside, array, f"faces refer to vertices outside 0 to {num_vertices - 1}")
    array = np.array(array, dtype=np.int64, order="C")
    _reject("faces", repeats_a_corner(array), array, "faces repeat a vertex (remove them)")
    array.flags.writeable = False
    return array


def _reject(name: str, bad: Any, rows: np.ndarray, fault: str) -> None:
    """Raise if any row or entry is marked ``bad``. The first bad row is only looked up in that case, for speed."""
    if bad.any():
        bad_rows = bad.reshape(len(rows), -1).any(axis=1)
        first = int(bad_rows.argmax())
        raise MeshError(
            f"{name}: {bad_rows.sum()} of {len(rows)} {fault}; the first is row {first}: {rows[first].tolist()}"
        )


def icosphere(subdivisions: int = 3, radius: float = 1.0) -> Mesh:
    """A sphere: an icosahedron whose faces are split in four ``subdivisions`` times. It has 10·4^s + 2 vertices.

    The vertices of each level come first in the next level.
    """
    mesh = _icosahedron()
    for _ in range(subdivisions):
        mesh = _split_in_four(mesh)
    return mesh.with_verts(radius * mesh.verts)


def grid(rows: int, cols: int, spacing: float = 1.0) -> Mesh:
    """A flat grid of ``rows`` × ``cols`` vertices at z = 0; vertex r·cols + c is at (c, r)·spacing.

    Each cell is split along the diagonal from (c, r) to (c + 1, r + 1).
    """
    r, c = np.divmod(np.arange(rows * cols), cols)
    verts = spacing * np.stack([c, r, np.zeros_like(r)], axis=1).astype(np.float64)
    corner = np.arange(rows * cols).reshape(rows, cols)
    return Mesh(verts, _split_cells(corner[:-1, :-1], corner[:-1, 1:], corner[1:, 1:], corner[1:, :-1]))


def torus(rings: int = 24, sides: int = 12, radius: float = 1.0, tube: float = 0.4) -> Mesh:
    """A torus around the z axis with ``rings`` × ``sides`` vertices: genus 1, no boundary."""
    ring, side = np.divmod(np.arange(rings * sides), sides)
    u, v = 2 * np.pi * ring / rings, 2 * np.pi * side / sides
    out = radius + tube * np.cos(v)
    verts = np.stack([out * np.cos(u), out * np.sin(u), tube * np.sin(v)], axis=1)
    corner = np.arange(rings * sides).reshape(rings, sides)
    ahead = np.roll(corner, -1, axis=0)
    return Mesh(verts, _split_cells(corner, ahead, np.roll(ahead, -1, axis=1), np.roll(corner, -1, axis=1)))


def _split_cells(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Two triangles per quadrilateral a b c d."""
    return np.stack([a, b, c, a, c, d], axis=-1).reshape(-1, 3)


def _icosahedron() -> Mesh:
    """Two poles, and two rings of five vertices at latitude ±atan(1/2)."""
    turn = 2 * np.pi * np.arange(5) / 5
    upper, lower = (
        np.stack([2 * np.cos(angle), 2 * np.sin(angle), np.full(5, height)], axis=1) / np.sqrt(5)
        for angle, height in [(turn, 1.0), (turn + np.pi / 5, -1.0)]
    )
    verts = np.concatenate([[[0.0, 0.0, 1.0]], upper, lower, [[0.0, 0.0, -1.0]]])
    i, j = np.arange(5), (np.arange(5) + 1) % 5
    north, south = np.zeros(5, dtype=np.int64), np.full(5, 11)
    caps = [[north, 1 + i, 1 + j], [south, 6 + j, 6 + i]]
    belt = [[1 + i, 6 + i, 1 + j], [1 + j, 6 + i, 6 + j]]
    return Mesh(verts, np.concatenate([np.stack(strip, axis=1) for strip in caps + belt]))


def _split_in_four(mesh: Mesh) -> Mesh:
    """Split every face in four. The edge midpoints, projected to the unit sphere, come after the old vertices."""
    edges = mesh.edges()
    keys = edge_keys(edges[:, 0], edges[:, 1], mesh.num_vertices)
    a, b, c = mesh.faces.T

    def midpoint(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return mesh.num_vertices + np.searchsorted(keys, edge_keys(i, j, mesh.num_vertices))

    ab, bc, ca = midpoint(a, b), midpoint(b, c), midpoint(c, a)
    faces = np.stack([a, ab, ca, b, bc, ab, c, ca, bc, ab, bc, ca], axis=1).reshape(-1, 3)
    middles = mesh.verts[edges].mean(axis=1)
    middles /= np.linalg.norm(middles, axis=1, keepdims=True)
    return Mesh(np.concatenate([mesh.verts, middles]), faces)
