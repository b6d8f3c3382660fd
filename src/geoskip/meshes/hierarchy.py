"""Mesh hierarchies: successively coarser versions of a template, and the matrices between them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from geoskip.arguments import check_type, whole_numbers
from geoskip.meshes.closest import closest_points
from geoskip.meshes.decimation import decimate
from geoskip.meshes.mesh import Mesh, MeshError
from geoskip.shapes import Int


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
    numbers = whole_numbers(name, given, "a hierarchy", least=None)
    counts = numbers if targets is not None else _counts(mesh.num_vertices, numbers)
    _check_counts(name, mesh.num_vertices, counts)
    levels, kept = [mesh], []
    for count in counts:
        step = decimate(levels[-1], count)
        levels.append(step.mesh)
        kept.append(step.kept)
    down = tuple(_selection(k, fine.num_vertices) for k, fine in zip(kept, levels, strict=False))
    up = tuple(_barycentric(*step) for step in zip(levels, levels[1:], kept, strict=False))
    return MeshHierarchy(tuple(levels), tuple(kept), down, up)


def _counts(num_vertices: int, factors: Sequence[int]) -> Sequence[int]:
    counts = []
    for factor in factors:
        if factor < 1:
            raise MeshError(f"factors: must be 1 or more, got a factor of {factor}")
        num_vertices = -(-num_vertices // factor)
        counts.append(num_vertices)
    return counts


def _check_counts(argument: str, num_vertices: int, counts: Sequence[int]) -> None:
    if any(coarse > fine for fine, coarse in zip([num_vertices, *counts], counts, strict=False)):
        raise MeshError(
            f"{argument}: levels of {list(counts)} vertices for {num_vertices}; each must be at most the one before"
        )
    if any(count < 3 for count in counts):
        raise MeshError(
            f"{argument}: levels of {list(counts)} vertices, but a triangle needs 3; use fewer or larger levels"
        )


def _selection(kept: np.ndarray, num_vertices: int) -> csr_array:
    rows = np.arange(len(kept))
    return csr_array((np.ones(len(kept)), (rows, kept)), shape=(len(kept), num_vertices))


def _barycentric(fine: Mesh, coarse: Mesh, kept: np.ndarray) -> csr_array:
    """U. The rows of kept vertices are set directly, so that D U = I holds exactly."""
    removed = np.setdiff1d(np.arange(fine.num_vertices), kept)
    rows, columns, weights = [kept], [np.arange(len(kept))], [np.ones(len(kept))]
    if len(removed):
        closest = closest_points(coarse, fine.verts[removed])
        rows.append(np.repeat(removed, 3))
        columns.append(coarse.faces[closest.faces].ravel())
        weights.append(closest.weights.ravel())
    shape = (fine.num_vertices, coarse.num_vertices)
    entries = (np.concatenate(weights), (np.concatenate(rows), np.concatenate(columns)))
    matrix = csr_array(entries, shape=shape)
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return matrix
