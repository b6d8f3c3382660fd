"""Another triangulation of the same surface: random edge flips, and vertices that slide a little along it.

Vertices keep their number, so what is known of a vertex stays true.
"""

import numpy as np

from geoskip.meshes.mesh import Mesh
from geoskip.shapes import Bool, Float, Int

# A flip must leave triangles this good (1 is equilateral, 0 has no area), a surface this flat across the edge, and
# vertices with this many neighbors.
LEAST_QUALITY = 0.3
LEAST_COSINE = 0.85
LEAST_DEGREE, MOST_DEGREE = 4, 9


def flip_edges(mesh: Mesh, rng: np.random.Generator, rounds: int = 20) -> Mesh:
    """Random edge flips, in rounds. A flip replaces the edge between two triangles by the other diagonal of their quad.

    Of the edges that may flip, each round flips a random set in which no two flips share a corner, so that all of them
    are independent. Edges of a border, or of three triangles and more, stay. About a fifth of all edges is another one
    in the end, however many the rounds: flips make room for each other, and undo each other.
    """
    faces = mesh.faces.copy()
    for _ in range(rounds):
        _flip_some(mesh.verts, faces, rng)
    return Mesh(mesh.verts, faces)


def _flip_some(verts: np.ndarray, faces: np.ndarray, rng: np.random.Generator) -> None:
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
    """Edges a → b of two triangles, (a, b, c) and (b, a, d): their corners, their triangles; keys of all edges."""
    starts, ends, tips = (np.roll(faces, -shift, axis=1).ravel() for shift in range(3))
    keys = np.minimum(starts, ends) * num_vertices + np.maximum(starts, ends)
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
    """Which edges may flip."""
    a, b, c, d = corners.T
    ends = np.stack(np.divmod(keys, len(verts)))
    degree = np.bincount(ends.ravel(), minlength=len(verts))
    allowed = (degree[[a, b]] > LEAST_DEGREE).all(axis=0) & (degree[[c, d]] < MOST_DEGREE).all(axis=0)
    new = np.minimum(c, d) * len(verts) + np.maximum(c, d)
    allowed &= keys[np.searchsorted(keys, new).clip(max=len(keys) - 1)] != new
    # The rest looks at positions, and only where it matters.
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
    """Unit normals of triangles, and their quality 4 √3 area / (sum of squared edges)."""
    p, q, r = verts[a], verts[b], verts[c]
    cross = np.cross(q - p, r - p)
    length = np.linalg.norm(cross, axis=1)
    squares = sum(np.square(edge).sum(axis=1) for edge in (q - p, r - q, p - r))
    tiny = np.finfo(float).tiny
    return cross / np.maximum(length, tiny)[:, None], 2 * np.sqrt(3) * length / np.maximum(squares, tiny)


def slide_vertices(mesh: Mesh, rng: np.random.Generator, reach: float = 0.25) -> Mesh:
    """Every vertex moves to a random point of one of its triangles, at most ``reach`` of the way to the far edge.

    So vertices stay on the surface, and the pattern of the sampling goes. A vertex stays where its move would turn a
    triangle over, and so does one without triangles.
    """
    corner = _random_corners(mesh, rng)
    ahead = mesh.faces[corner // 3, (corner + 1) % 3], mesh.faces[corner // 3, (corner + 2) % 3]
    near, far = np.sort(rng.uniform(0.0, reach, (2, mesh.num_verts)), axis=0)
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


def _random_corners(mesh: Mesh, rng: np.random.Generator) -> Int[np.ndarray, "vertices"]:
    """For each vertex one of the corners (3 × face + place) that it has; -1 where it has none."""
    flat = mesh.faces.ravel()
    corner = np.full(mesh.num_verts, -1)
    order = rng.permutation(len(flat))
    corner[flat[order]] = order  # the last of several stays
    return corner
