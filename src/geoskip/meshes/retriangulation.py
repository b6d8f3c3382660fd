"""Random remeshing of a surface: edge flips, and vertices that slide along the surface.

Vertices keep their index, so labels and other vertex data stay valid.
"""

import numpy as np

from geoskip.meshes.mesh import Mesh, edge_keys
from geoskip.shapes import Bool, Float, Int

# Limits after a flip: the quality of the triangles (1 is equilateral, 0 has no area), the cosine between the normals
# across the edge, and the number of neighbors of a vertex.
LEAST_QUALITY = 0.3
LEAST_COSINE = 0.85
LEAST_DEGREE, MOST_DEGREE = 4, 9


def flip_edges(mesh: Mesh, rng: np.random.Generator, rounds: int = 20) -> Mesh:
    """Random edge flips. A flip replaces the edge between two triangles by the other diagonal of their quad.

    Each round flips a random set of allowed edges in which no two flips share a corner, so that the flips are
    independent. Border edges and edges of three or more triangles are never flipped. In the end about a fifth of all
    edges differ, however many the rounds, because later flips also undo earlier ones.
    """
    faces = mesh.faces.copy()
    for _ in range(rounds):
        _flip_round(mesh.verts, faces, rng)
    return Mesh(mesh.verts, faces)


def _flip_round(verts: np.ndarray, faces: np.ndarray, rng: np.random.Generator) -> None:
    """One round, in place."""
    corners, pairs, keys = _inner_edges(faces, len(verts))
    allowed = _allowed(verts, corners, keys)
    corners, pairs = corners[allowed], pairs[allowed]
    order = rng.permutation(len(corners))
    first = np.full(len(verts), len(corners))
    np.minimum.at(first, corners.ravel(), np.repeat(order, 4))
    chosen = (first[corners] == order[:, None]).all(axis=1)
    a, b, c, d = corners[chosen].T
    one, other = pairs[chosen].T
    faces[one], faces[other] = np.stack([a, d, c], axis=1), np.stack([d, b, c], axis=1)


def _inner_edges(
    faces: Int[np.ndarray, "faces 3"], num_vertices: int
) -> tuple[Int[np.ndarray, "inner 4"], Int[np.ndarray, "inner 2"], Int[np.ndarray, "edges"]]:
    """Edges a → b of two triangles (a, b, c) and (b, a, d): corners a, b, c, d; triangles; keys of all edges."""
    starts, ends, tips = (np.roll(faces, -shift, axis=1).ravel() for shift in range(3))
    keys = edge_keys(starts, ends, num_vertices)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.flatnonzero(np.diff(ordered, prepend=-1))
    counts = np.diff(first, append=len(ordered))
    one, other = order[first[counts == 2]], order[first[counts == 2] + 1]
    opposed = starts[one] == ends[other]
    one, other = one[opposed], other[opposed]
    corners = np.stack([starts[one], ends[one], tips[one], tips[other]], axis=1)
    return corners, np.stack([one // 3, other // 3], axis=1), ordered[first]


def _allowed(
    verts: np.ndarray, corners: Int[np.ndarray, "inner 4"], keys: Int[np.ndarray, "edges"]
) -> Bool[np.ndarray, "inner"]:
    """Mask of the edges that may be flipped."""
    a, b, c, d = corners.T
    ends = np.stack(np.divmod(keys, len(verts)))
    degree = np.bincount(ends.ravel(), minlength=len(verts))
    allowed = (degree[[a, b]] > LEAST_DEGREE).all(axis=0) & (degree[[c, d]] < MOST_DEGREE).all(axis=0)
    new = edge_keys(c, d, len(verts))
    allowed &= keys[np.searchsorted(keys, new).clip(max=len(keys) - 1)] != new
    # The remaining checks use positions, and only for the edges that passed so far.
    left = np.flatnonzero(allowed)
    a, b, c, d = corners[left].T
    old = _normal(verts, a, b, c)[0], _normal(verts, b, a, d)[0]
    (one, good), (other, fine) = _normal(verts, a, d, c), _normal(verts, d, b, c)
    flat = [(x * y).sum(axis=1) > LEAST_COSINE for x, y in (old, (one, other), (old[0], one), (old[1], other))]
    allowed[left] = np.all([*flat, good > LEAST_QUALITY, fine > LEAST_QUALITY], axis=0)
    return allowed


def _normal(
    verts: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray
) -> tuple[Float[np.ndarray, "faces 3"], Float[np.ndarray, "faces"]]:
    """Unit normals of triangles, and their quality 4 √3 area / (sum of squared edge lengths)."""
    p, q, r = verts[a], verts[b], verts[c]
    cross = np.cross(q - p, r - p)
    length = np.linalg.norm(cross, axis=1)
    squares = sum(np.square(edge).sum(axis=1) for edge in (q - p, r - q, p - r))
    tiny = np.finfo(float).tiny
    return cross / np.maximum(length, tiny)[:, None], 2 * np.sqrt(3) * length / np.maximum(squares, tiny)


def slide_vertices(mesh: Mesh, rng: np.random.Generator, reach: float = 0.25) -> Mesh:
    """Move every vertex to a random point in one of its triangles, at most ``reach`` of the way to the opposite edge.

    Vertices stay on the surface, but the sampling pattern disappears. A vertex does not move if that would flip a
    triangle, or if it has no triangles.
    """
    # A random corner (3 × face + position) of each vertex, -1 if it has none: of several, the last one stays.
    flat = mesh.faces.ravel()
    corner = np.full(mesh.num_vertices, -1)
    order = rng.permutation(len(flat))
    corner[flat[order]] = order
    ahead = mesh.faces[corner // 3, (corner + 1) % 3], mesh.faces[corner // 3, (corner + 2) % 3]
    near, far = np.sort(rng.uniform(0.0, reach, (2, mesh.num_vertices)), axis=0)
    first, second = (mesh.verts[end] - mesh.verts for end in ahead)
    step = near[:, None] * first + (far - near)[:, None] * second
    step[corner < 0] = 0.0
    before = mesh.face_normals()
    while True:
        moved = mesh.with_verts(mesh.verts + step)
        turned = (moved.face_normals() * before).sum(axis=1) < 0.5
        stuck = np.unique(mesh.faces[turned])
        if not np.any(step[stuck]):
            return moved
        step[stuck] = 0.0
