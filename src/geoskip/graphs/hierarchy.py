"""One connectivity at several levels of coarseness, as the operators see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from geoskip.arguments import brief, check_items, whole_number
from geoskip.graphs.graph import Graph
from geoskip.graphs.matrix import SparseMatrix
from geoskip.graphs.pseudo import attach, cartesian
from geoskip.graphs.records import move, register_record


@register_record
@dataclass(frozen=True, eq=False)
class Hierarchy:
    """The graphs of the levels, finest first, and the matrices between them; step k leads from level k to k + 1.

    Build one with :meth:`from_meshes` or :meth:`from_matrices`, not by hand.

    Attributes:
        levels: the graphs, each with the pseudo-coordinates and spirals of its own level.
        down: per step, pooling, ``[coarse, fine]``.
        up: per step, unpooling, ``[fine, coarse]``.
    """

    levels: tuple[Graph, ...]
    down: tuple[SparseMatrix, ...]
    up: tuple[SparseMatrix, ...]

    @classmethod
    def from_matrices(cls, levels: Sequence[Graph], down: Sequence[Any], up: Sequence[Any]) -> Hierarchy:
        """From graphs and matrices, each a :class:`SparseMatrix` or a sparse matrix of SciPy."""
        check_items("levels", levels, Graph)
        _check_counts(levels, down, up)
        device = levels[0].device
        hierarchy = cls(tuple(levels), _matrices("down", down, device), _matrices("up", up, device))
        _check_fit(hierarchy)
        return hierarchy

    @classmethod
    def from_meshes(
        cls, meshes: Any, spiral_length: int | None = None, dtype: torch.dtype = torch.float32
    ) -> Hierarchy:
        """From a :class:`~geoskip.meshes.hierarchy.MeshHierarchy`.

        Pseudo-coordinates are the relative Cartesian ones of each level's template. Spirals are made where a
        length is given: an operator with kernel size M needs M vertices, M + 1 if it leaves out the center.
        """
        if isinstance(meshes, type) or not all(hasattr(meshes, name) for name in ("levels", "down", "up")):
            raise TypeError(
                f"meshes: expected a MeshHierarchy, got {brief(meshes)}; make one with geoskip.meshes.mesh_hierarchy"
            )
        if spiral_length is not None:
            spiral_length = whole_number("spiral_length", spiral_length, "a spiral")
        levels = [_graph_of(mesh, spiral_length, dtype) for mesh in meshes.levels]
        down, up = ([SparseMatrix.from_scipy(m, dtype) for m in matrices] for matrices in (meshes.down, meshes.up))
        return cls.from_matrices(levels, down, up)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Vertices of each level."""
        return tuple(level.num_vertices for level in self.levels)

    @property
    def device(self) -> torch.device:
        return self.levels[0].device

    def to(self, *args: Any, **kwargs: Any) -> Hierarchy:
        """As ``Tensor.to``; a dtype changes pseudo-coordinates and matrix entries alone."""
        return move(self, *args, **kwargs)


def _graph_of(mesh: Any, spiral_length: int | None, dtype: torch.dtype) -> Graph:
    # Imported here: operators see graphs, and need not load geometry for that.
    from geoskip.meshes.spirals import spirals

    graph = Graph.from_faces(torch.tensor(mesh.faces), mesh.num_vertices)
    graph = attach(graph, cartesian(graph, torch.tensor(mesh.verts)).to(dtype))
    return graph if spiral_length is None else graph.with_spirals(torch.tensor(spirals(mesh, spiral_length)))


def _matrices(name: str, given: Sequence[Any], device: torch.device) -> tuple[SparseMatrix, ...]:
    for step, matrix in enumerate(given):
        if not isinstance(matrix, SparseMatrix) and not hasattr(matrix, "tocoo"):
            raise TypeError(f"{name}[{step}]: expected a SparseMatrix or one of SciPy, got {brief(matrix)}")
    return tuple(m if isinstance(m, SparseMatrix) else SparseMatrix.from_scipy(m).to(device) for m in given)


def _check_counts(levels: Sequence[Graph], down: Sequence[Any], up: Sequence[Any]) -> None:
    if not levels:
        raise ValueError("levels: a hierarchy needs at least one graph, got none")
    for name, matrices in (("down", down), ("up", up)):
        if not isinstance(matrices, (list, tuple)):
            raise TypeError(f"{name}: expected a list of matrices, one for each step, got {brief(matrices)}")
        if len(matrices) != len(levels) - 1:
            raise ValueError(
                f"{name}: {len(levels)} levels have {len(levels) - 1} steps between them, got {len(matrices)} matrices"
            )


def _check_fit(hierarchy: Hierarchy) -> None:
    for step, (fine, coarse) in enumerate(pairwise(hierarchy.sizes)):
        _check_matrix(f"down[{step}]", hierarchy.down[step], (coarse, fine), hierarchy.device)
        _check_matrix(f"up[{step}]", hierarchy.up[step], (fine, coarse), hierarchy.device)
    for k, level in enumerate(hierarchy.levels):
        if level.device != hierarchy.device:
            raise ValueError(f"levels[{k}]: is on {level.device}, levels[0] on {hierarchy.device}; move one with .to()")


def _check_matrix(name: str, matrix: SparseMatrix, shape: tuple[int, int], device: torch.device) -> None:
    if matrix.shape != shape:
        raise ValueError(f"{name}: expected shape {shape} for the vertices of its two levels, got {matrix.shape}")
    if matrix.pattern.device != device:
        raise ValueError(f"{name}: is on {matrix.pattern.device}, the levels on {device}; move one with .to()")
