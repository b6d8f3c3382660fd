"""Mesh hierarchies: successively coarser versions of a template, and the matrices between them.

Also the closest points of a mesh, which give the matrices from a coarse to a fine level.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from geoskip.arguments import check_type, whole_numbers
from geoskip.meshes.decimation import decimate
from geoskip.meshes.mesh import Mesh, MeshError
from geoskip.shapes import Float, Int

if TYPE_CHECKING:
    from scipy.sparse import csr_array
else:
    # scipy is imported where it is needed: training on data in the cache can do without.
    csr_array = Any

_FIRST_FACES = 4
_PAIRS_PER_CHUNK = 1 << 19


@dataclass(frozen=True, eq=False)
class MeshHierarchy:
    """Meshes from fine to coarse. Step k goes from ``levels[k]`` to ``levels[k + 1]``.

    levels: the meshes; each is a decimation of the previous one.
    kept:   for each step, the index of every coarse vertex in the finer level, ascending.
    down:   for each step, D of shape (coarse, fine), which selects the kept vertices.
    up:     for each step, U of shape (fine, coarse). A kept vertex maps to itself, any other vertex to the barycentric
            coordinates of the closest point of the coarse mesh.

    Therefore D U = I and U 1 = 1, with non-negative entries, and where the fine mesh is flat and inside the coarse one,
    U reproduces linear functions. CoMA instead solves a least-squares problem on absolute positions, whose rows need
    not sum to 1 for points off the surface.
    """

    levels: tuple[Mesh, ...]
    kept: tuple[Int[np.ndarray, "_"], ...]
    down: tuple[csr_array, ...]
    up: tuple[csr_array, ...]


def mesh_hierarchy(
    mesh: Mesh, factors: Sequence[int] = (4, 4, 4, 4), *, targets: Sequence[int] | None = None
) -> MeshHierarchy:
    """Decimate level by level, either by ``factors``, to ⌈n / factor⌉ vertices each, or to ``targets`` vertices.

    With four factors of 4, 5023 vertices become 1256, 314, 79 and 20.
    """
    check_type("mesh", mesh, Mesh)
    name, given = ("factors", factors) if targets is None else ("targets", targets)
    numbers = whole_numbers(name, given, "a hierarchy")
    counts = [mesh.num_vertices]
    for number in numbers:
        counts.append(-(-counts[-1] // number) if targets is None else number)
    if any(coarse > fine for fine, coarse in pairwise(counts)):
        raise MeshError(f"{name}: levels of {counts[1:]} vertices for {counts[0]}; each must be at most the one before")
    if any(count < 3 for count in counts[1:]):
        raise MeshError(f"{name}: levels of {counts[1:]} vertices, but a triangle needs 3; use fewer or larger levels")
    levels, kept = [mesh], []
    for count in counts[1:]:
        step = decimate(levels[-1], count)
        levels.append(step.mesh)
        kept.append(step.kept)
    down = tuple(_selection(indices, fine.num_vertices) for indices, fine in zip(kept, levels, strict=False))
    up = tuple(_barycentric(*step) for step in zip(levels, levels[1:], kept, strict=False))
    return MeshHierarchy(tuple(levels), tuple(kept), down, up)


def _sparse(entries: tuple[np.ndarray, tuple[np.ndarray, np.ndarray]], shape: tuple[int, int]) -> csr_array:
    from scipy.sparse import csr_array

    return csr_array(entries, shape=shape)


def _selection(kept: np.ndarray, num_vertices: int) -> csr_array:
    rows = np.arange(len(kept))
    return _sparse((np.ones(len(kept)), (rows, kept)), (len(kept), num_vertices))


def _barycentric(fine: Mesh, coarse: Mesh, kept: np.ndarray) -> csr_array:
    """U. The rows of kept vertices are set directly, so that D U = I holds exactly."""
    removed = np.setdiff1d(np.arange(fine.num_vertices), kept)
    rows, columns, weights = [kept], [np.arange(len(kept))], [np.ones(len(kept))]
    if len(removed):
        closest = closest_points(coarse, fine.verts[removed])
        rows.append(np.repeat(removed, 3))
        columns.append(coarse.faces[closest.faces].ravel())
        weights.append(closest.weights.ravel())
    entries = (np.concatenate(weights), (np.concatenate(rows), np.concatenate(columns)))
    matrix = _sparse(entries, (fine.num_vertices, coarse.num_vertices))
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return matrix


@dataclass(frozen=True, eq=False)
class ClosestPoints:
    """The nearest point of a surface to each query point.

    faces:     the face that contains it; the lowest index if there are several.
    weights:   its barycentric coordinates, in the order of the face's corners; non-negative, with sum 1.
    points:    the point itself, Σ weights · corners.
    distances: from the query to the point.
    """

    faces: Int[np.ndarray, "queries"]
    weights: Float[np.ndarray, "queries 3"]
    points: Float[np.ndarray, "queries 3"]
    distances: Float[np.ndarray, "queries"]


def closest_points(mesh: Mesh, queries: Float[np.ndarray, "queries 3"]) -> ClosestPoints:
    """The exact nearest point of the surface to each query. Vertices without faces are not part of the surface.

    Each face lies in a ball around the center of its bounding box. The faces with the nearest centers give an upper
    bound δ of the distance; then every face whose ball of radius r has its center within δ + r is tried. Faces are
    grouped by radius, so that one large triangle does not widen the search among the small ones.
    """
    queries = np.asarray(queries, dtype=np.float64)
    if not mesh.num_faces:
        raise MeshError(
            f"mesh: {mesh.num_vertices} vertices without faces have no surface, so there are no closest points"
        )
    if not np.isfinite(queries).all():
        raise MeshError("queries: must be finite")
    corners = mesh.verts[mesh.faces]
    centers = (corners.max(axis=1) + corners.min(axis=1)) / 2
    radii = np.linalg.norm(corners - centers[:, None], axis=2).max(axis=1)
    bounds = _first_bounds(corners, centers, queries)
    classes = _size_classes(centers, radii)
    faces = np.empty(len(queries), dtype=np.int64)
    weights = np.empty((len(queries), 3))
    for chunk in _chunks(classes, queries, bounds):
        faces[chunk], weights[chunk] = _best(corners, classes, queries[chunk], bounds[chunk])
    points = (weights[:, :, None] * corners[faces]).sum(axis=1)
    return ClosestPoints(faces, weights, points, np.linalg.norm(queries - points, axis=1))


def closest_on_triangles(
    points: Float[np.ndarray, "pairs 3"], corners: Float[np.ndarray, "pairs 3 3"]
) -> tuple[Float[np.ndarray, "pairs 3"], Float[np.ndarray, "pairs"]]:
    """Barycentric weights of the closest point of each triangle, and its squared distance.

    This is the nearest of four candidates: the foot of the perpendicular if it lies inside, and the closest point of
    each side. Unlike the usual case distinction by regions (Ericson, Real-Time Collision Detection, 5.1.5), this is
    also correct for triangles without area and sides without length.
    """
    candidates = [_on_side(points, corners, k) for k in range(3)] + [_foot(points, corners)]
    weights = np.stack(candidates)
    # Subtract first: far from the origin the products would cancel.
    squares = ((weights[..., None] * (corners - points[:, None])).sum(axis=2) ** 2).sum(axis=2)
    best, rows = squares.argmin(axis=0), np.arange(len(points))
    return weights[best, rows], squares[best, rows]


def _on_side(points: np.ndarray, corners: np.ndarray, k: int) -> np.ndarray:
    """Weights of the closest point of the side from corner k to corner k + 1."""
    start, end = corners[:, k], corners[:, (k + 1) % 3]
    side = end - start
    along, length = ((points - start) * side).sum(axis=1), (side**2).sum(axis=1)
    t = np.divide(along, length, out=np.zeros_like(along), where=length > 0).clip(0.0, 1.0)
    weights = np.zeros((len(points), 3))
    weights[:, k], weights[:, (k + 1) % 3] = 1.0 - t, t
    return weights


def _foot(points: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Weights of the foot of the perpendicular; those of corner 0 if it lies outside or the triangle has no area."""
    a, b, c = corners.swapaxes(0, 1)
    normal = np.cross(b - a, c - a)
    area = (normal**2).sum(axis=1)
    from_a = points - a
    numerators = [
        (np.cross(from_a, c - a) * normal).sum(axis=1),
        (np.cross(b - a, from_a) * normal).sum(axis=1),
    ]
    v, w = (np.divide(n, area, out=np.full_like(n, -1.0), where=area > 0) for n in numerators)
    weights = np.stack([1.0 - v - w, v, w], axis=1)
    return np.where((weights >= 0).all(axis=1, keepdims=True), weights, [1.0, 0.0, 0.0])


SizeClass = tuple[np.ndarray, Any, float]


def _size_classes(centers: np.ndarray, radii: np.ndarray) -> list[SizeClass]:
    """Face indices, tree of their centers and largest radius, for each power of two."""
    exponents = np.frexp(radii)[1]
    members = [np.flatnonzero(exponents == exponent) for exponent in np.unique(exponents)]
    from scipy.spatial import cKDTree

    return [(faces, cKDTree(centers[faces]), float(radii[faces].max())) for faces in members]


def _first_bounds(corners: np.ndarray, centers: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """An upper bound of each distance, with a margin for rounding."""
    from scipy.spatial import cKDTree

    near = cKDTree(centers).query(queries, k=np.arange(1, min(_FIRST_FACES, len(centers)) + 1))[1]
    pairs = np.repeat(queries, near.shape[1], axis=0)
    squares = closest_on_triangles(pairs, corners[near.ravel()])[1].reshape(near.shape)
    size = np.abs(corners).max() + np.abs(queries).max(axis=1, initial=0.0)
    return np.sqrt(squares.min(axis=1)) + 1e-12 * size


def _chunks(classes: list[SizeClass], queries: np.ndarray, bounds: np.ndarray) -> Iterator[slice]:
    """Slices of the queries whose candidate faces fit in memory."""
    lengths = [tree.query_ball_point(queries, bounds + r, return_length=True) for _, tree, r in classes]
    totals = np.cumsum(np.sum(lengths, axis=0, dtype=np.int64))
    start = 0
    while start < len(queries):
        done = totals[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(totals, done + _PAIRS_PER_CHUNK, side="right")))
        yield slice(start, stop)
        start = stop


def _best(
    corners: np.ndarray, classes: list[SizeClass], queries: np.ndarray, bounds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Face and weights of the nearest candidate; the faces that gave the bound are among the candidates."""
    rows, candidates = [], []
    for faces, tree, radius in classes:
        near = tree.query_ball_point(queries, bounds + radius)
        counts = np.fromiter(map(len, near), dtype=np.int64, count=len(near))
        rows.append(np.repeat(np.arange(len(queries)), counts))
        hits = np.fromiter(chain.from_iterable(near), dtype=np.int64, count=int(counts.sum()))
        candidates.append(faces[hits])
    row, face = np.concatenate(rows), np.concatenate(candidates)
    weights, squares = closest_on_triangles(queries[row], corners[face])
    order = np.lexsort([face, squares, row])
    first = order[np.unique(row[order], return_index=True)[1]]
    return face[first], weights[first]
