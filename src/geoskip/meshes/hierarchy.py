"""Mesh hierarchies: coarser and coarser subsets of one template, and the matrices between them."""

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
    """Meshes from fine to coarse; step k leads from ``levels[k]`` to ``levels[k + 1]``.

    levels: the meshes; each is a decimation of the one before it.
    kept:   per step, the index in the finer level of every coarse vertex, ascending.
    down:   per step, D of shape (coarse, fine): the selection of the kept vertices.
    up:     per step, U of shape (fine, coarse): for a kept vertex itself, for any other the barycentric
            coordinates of the closest point of the coarse mesh.

    So D U = I, U 1 = 1 with non-negative entries, and where the fine mesh is flat and inside the coarse one,
    U reproduces linear functions. CoMA solves a least-squares problem on absolute positions instead, whose
    rows need not sum to 1 for a point off the surface.
    """

    levels: tuple[Mesh, ...]
    kept: tuple[Int[np.ndarray, "_"], ...]
    down: tuple[csr_array, ...]
    up: tuple[csr_array, ...]


def mesh_hierarchy(
    mesh: Mesh, factors: Sequence[int] = (4, 4, 4, 4), *, targets: Sequence[int] | None = None
) -> MeshHierarchy:
    """Decimate level by level: by factors, to ⌈n / factor⌉ vertices each, or to explicit vertex counts.

    5023 vertices and four factors 4 give 1256, 314, 79 and 20.
    """
    check_type("mesh", mesh, Mesh)
    name, given = ("factors", factors) if targets is None else ("targets", targets)
    numbers = whole_numbers(name, given, "a hierarchy", least=None)
    counts = numbers if targets is not None else _counts(mesh.num_verts, numbers)
    _check_counts(name, mesh.num_verts, counts)
    levels, kept = [mesh], []
    for count in counts:
        step = decimate(levels[-1], count)
        levels.append(step.mesh)
        kept.append(step.kept)
    down = tuple(_selection(k, fine.num_verts) for k, fine in zip(kept, levels, strict=False))
    up = tuple(_barycentric(*step) for step in zip(levels, levels[1:], kept, strict=False))
    return MeshHierarchy(tuple(levels), tuple(kept), down, up)


def _counts(num_verts: int, factors: Sequence[int]) -> Sequence[int]:
    counts = []
    for factor in factors:
        if factor < 1:
            raise MeshError(f"factors: a hierarchy cannot coarsen by a factor of {factor}; factors are 1 or more")
        num_verts = -(-num_verts // factor)
        counts.append(num_verts)
    return counts


def _check_counts(argument: str, num_verts: int, counts: Sequence[int]) -> None:
    if any(coarse > fine for fine, coarse in zip([num_verts, *counts], counts, strict=False)):
        raise MeshError(
            f"{argument}: levels of {list(counts)} vertices under {num_verts}: each must be at most the one before"
        )
    if any(count < 3 for count in counts):
        raise MeshError(
            f"{argument}: levels of {list(counts)} vertices: a triangle needs 3, so ask for fewer or larger levels"
        )


def _selection(kept: np.ndarray, num_verts: int) -> csr_array:
    rows = np.arange(len(kept))
    return csr_array((np.ones(len(kept)), (rows, kept)), shape=(len(kept), num_verts))


def _barycentric(fine: Mesh, coarse: Mesh, kept: np.ndarray) -> csr_array:
    """U; the rows of kept vertices are set, not computed, so that D U = I exactly whatever touches them."""
    removed = np.setdiff1d(np.arange(fine.num_verts), kept)
    rows, columns, weights = [kept], [np.arange(len(kept))], [np.ones(len(kept))]
    if len(removed):
        closest = closest_points(coarse, fine.verts[removed])
        rows.append(np.repeat(removed, 3))
        columns.append(coarse.faces[closest.faces].ravel())
        weights.append(closest.weights.ravel())
    shape = (fine.num_verts, coarse.num_verts)
    entries = (np.concatenate(weights), (np.concatenate(rows), np.concatenate(columns)))
    matrix = csr_array(entries, shape=shape)
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return matrix
