"""One connectivity at several levels of coarseness, as the operators see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from geoskip.arguments import check_items, check_type, short_repr, whole_number, whole_numbers
from geoskip.graphs.checks import as_tensor, check_floating, check_indices
from geoskip.graphs.graph import Graph
from geoskip.graphs.pseudo import attach, cartesian
from geoskip.graphs.records import move, register_record
from geoskip.kernels import Pattern, sort_edges, sparse_product
from geoskip.shapes import Float, Int


@register_record
@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """Rows are receivers, columns senders: pooling, unpooling, or any other fixed linear map between vertices.

    Attributes:
        pattern: where the entries lie, by row and by column.
        values: the entries, in row order.
    """

    pattern: Pattern
    values: Float[Tensor, " edges"]

    @classmethod
    def from_entries(
        cls,
        rows: Int[Tensor, " entries"],
        columns: Int[Tensor, " entries"],
        values: Float[Tensor, " entries"],
        shape: tuple[int, int],
    ) -> SparseMatrix:
        """From coordinates, in any order."""
        rows, columns, values = (
            as_tensor(name, given) for name, given in (("rows", rows), ("columns", columns), ("values", values))
        )
        sizes = whole_numbers("shape", shape, "a matrix", least=0)
        if len(sizes) != 2:
            raise ValueError(f"shape: a matrix has two numbers, of rows and of columns, got {sizes}")
        shape = sizes[0], sizes[1]
        if rows.dim() != 1:
            raise ValueError(f"rows: expected a list of indices, got shape {list(rows.shape)}")
        if not rows.shape == columns.shape == values.shape:
            raise ValueError(
                f"values: every entry needs a row, a column and a value, got {list(rows.shape)} rows, "
                f"{list(columns.shape)} columns and {list(values.shape)} values"
            )
        check_indices("rows", rows, shape[0])
        check_indices("columns", columns, shape[1])
        check_floating("values", values)
        for name, given in (("columns", columns), ("values", values)):
            if given.device != rows.device:
                raise ValueError(f"{name}: is on {given.device}, rows on {rows.device}; move one of them with .to()")
        pattern, order = sort_edges(columns.long(), rows.long(), shape[1], shape[0])
        return cls(pattern, values[order])

    @classmethod
    def from_scipy(cls, matrix: Any, dtype: torch.dtype = torch.float32) -> SparseMatrix:
        """From any sparse matrix of SciPy."""
        if not hasattr(matrix, "tocoo") or isinstance(matrix, type):
            raise TypeError(f"matrix: expected a sparse matrix of SciPy, got {short_repr(matrix)}")
        coo = matrix.tocoo()
        rows, columns = torch.as_tensor(coo.row), torch.as_tensor(coo.col)
        return cls.from_entries(rows, columns, torch.as_tensor(coo.data).to(dtype), coo.shape)

    @property
    def shape(self) -> tuple[int, int]:
        return self.pattern.num_receivers, self.pattern.num_senders

    def __matmul__(self, x: Float[Tensor, "*batch columns channels"]) -> Float[Tensor, "*batch rows channels"]:
        check_type("x", x, Tensor)
        if x.dim() < 2 or x.shape[-2] != self.shape[1]:
            raise ValueError(
                f"x: expected {self.shape[1]} vertices (columns of the matrix) in its second-last axis, "
                f"got shape {list(x.shape)}"
            )
        check_floating("x", x)
        if x.device != self.values.device:
            raise ValueError(f"x: is on {x.device}, the matrix on {self.values.device}; move one with .to()")
        return sparse_product(x, self.values.to(x.dtype), self.pattern)

    def dense(self) -> Float[Tensor, "rows columns"]:
        """As an ordinary matrix, for small ones."""
        entries = self.pattern.receivers, self.pattern.senders
        return self.values.new_zeros(self.shape).index_put(entries, self.values, accumulate=True)

    def to(self, *args: Any, **kwargs: Any) -> SparseMatrix:
        """As ``Tensor.to``."""
        return move(self, *args, **kwargs)


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
                f"meshes: expected a MeshHierarchy, got {short_repr(meshes)}; make one with "
                "geoskip.meshes.mesh_hierarchy"
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
            raise TypeError(f"{name}[{step}]: expected a SparseMatrix or one of SciPy, got {short_repr(matrix)}")
    return tuple(m if isinstance(m, SparseMatrix) else SparseMatrix.from_scipy(m).to(device) for m in given)


def _check_counts(levels: Sequence[Graph], down: Sequence[Any], up: Sequence[Any]) -> None:
    if not levels:
        raise ValueError("levels: a hierarchy needs at least one graph, got none")
    for name, matrices in (("down", down), ("up", up)):
        if not isinstance(matrices, (list, tuple)):
            raise TypeError(f"{name}: expected a list of matrices, one for each step, got {short_repr(matrices)}")
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
