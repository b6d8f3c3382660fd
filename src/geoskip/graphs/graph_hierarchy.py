"""Graphs at several levels of coarseness: one mesh with matrices between its levels, or many graphs with clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from geoskip.arguments import check_items, check_type, short_repr, whole_number, whole_numbers
from geoskip.graphs.checks import as_tensor, check_device, check_floating, check_indices, values_readable
from geoskip.graphs.edges import attach, cartesian
from geoskip.graphs.graph import Graph, graph_of_vertex, pack
from geoskip.graphs.tensor_records import move, register_record
from geoskip.kernels import Pattern, sort_edges, sparse_product
from geoskip.shapes import Bool, Float, Int


@register_record
@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """Pooling, unpooling, or any other fixed linear map between vertices: rows are receivers, columns senders.

    Attributes:
        pattern: the positions of the entries, by row and by column.
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
        rows, columns, values = as_tensor("rows", rows), as_tensor("columns", columns), as_tensor("values", values)
        sizes = whole_numbers("shape", shape, "a matrix", least=0)
        if len(sizes) != 2:
            raise ValueError(f"shape: a matrix has two numbers, of rows and of columns, got {sizes}")
        if rows.dim() != 1:
            raise ValueError(f"rows: expected a list of indices, got shape {list(rows.shape)}")
        if not rows.shape == columns.shape == values.shape:
            raise ValueError(
                f"values: every entry needs a row, a column and a value, got {list(rows.shape)} rows, "
                f"{list(columns.shape)} columns and {list(values.shape)} values"
            )
        check_indices("rows", rows, sizes[0])
        check_indices("columns", columns, sizes[1])
        check_floating("values", values)
        check_device("columns", columns.device, rows.device, "rows")
        check_device("values", values.device, rows.device, "rows")
        pattern, order = sort_edges(columns.long(), rows.long(), sizes[1], sizes[0])
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
        check_device("x", x.device, self.values.device, "the matrix")
        return sparse_product(x, self.values.to(x.dtype), self.pattern)

    def dense(self) -> Float[Tensor, "rows columns"]:
        """As an ordinary matrix, for small ones."""
        entries = self.pattern.receivers, self.pattern.senders
        return self.values.new_zeros(self.shape).index_put(entries, self.values, accumulate=True)

    def to(self, *args: Any, **kwargs: Any) -> SparseMatrix:
        """Like ``Tensor.to``."""
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
        if not levels:
            raise ValueError("levels: a hierarchy needs at least one graph, got none")
        for k, level in enumerate(levels):
            check_device(f"levels[{k}]", level.device, levels[0].device, "levels[0]")
        steps = [(fine.num_vertices, coarse.num_vertices) for fine, coarse in pairwise(levels)]
        device = levels[0].device
        pooling = _matrices("down", down, [(coarse, fine) for fine, coarse in steps], device)
        return cls(tuple(levels), pooling, _matrices("up", up, steps, device))

    @classmethod
    def from_meshes(
        cls, meshes: Any, spiral_length: int | None = None, dtype: torch.dtype = torch.float32
    ) -> Hierarchy:
        """From a :class:`~geoskip.meshes.hierarchy.MeshHierarchy`.

        Pseudo-coordinates are the relative Cartesian ones of each level's template. Spirals are computed if a length
        is given: an operator with kernel size M needs M vertices, M + 1 if it leaves out the center.
        """
        if isinstance(meshes, type) or not all(hasattr(meshes, name) for name in ("levels", "down", "up")):
            raise TypeError(
                f"meshes: expected a MeshHierarchy, got {short_repr(meshes)}; "
                "make one with geoskip.meshes.mesh_hierarchy"
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
        """Like ``Tensor.to``; a dtype changes only pseudo-coordinates and matrix entries."""
        return move(self, *args, **kwargs)


def _graph_of(mesh: Any, spiral_length: int | None, dtype: torch.dtype) -> Graph:
    # Imported here, so that operators need not load the geometry.
    from geoskip.meshes import spirals

    graph = Graph.from_faces(torch.tensor(mesh.faces), mesh.num_vertices)
    graph = attach(graph, cartesian(graph, torch.tensor(mesh.verts)).to(dtype))
    return graph if spiral_length is None else graph.with_spirals(torch.tensor(spirals(mesh, spiral_length)))


def _matrices(
    name: str, given: Sequence[Any], shapes: Sequence[tuple[int, int]], device: torch.device
) -> tuple[SparseMatrix, ...]:
    if not isinstance(given, (list, tuple)):
        raise TypeError(f"{name}: expected a list of matrices, one for each step, got {short_repr(given)}")
    if len(given) != len(shapes):
        raise ValueError(
            f"{name}: {len(shapes) + 1} levels have {len(shapes)} steps between them, got {len(given)} matrices"
        )
    matrices = []
    for step, (matrix, shape) in enumerate(zip(given, shapes, strict=True)):
        if not isinstance(matrix, SparseMatrix):
            if not hasattr(matrix, "tocoo"):
                raise TypeError(f"{name}[{step}]: expected a SparseMatrix or one of SciPy, got {short_repr(matrix)}")
            matrix = SparseMatrix.from_scipy(matrix).to(device)
        if matrix.shape != shape:
            raise ValueError(
                f"{name}[{step}]: expected shape {shape} for the vertices of its two levels, got {matrix.shape}"
            )
        check_device(f"{name}[{step}]", matrix.pattern.device, device, "the levels")
        matrices.append(matrix)
    return tuple(matrices)


@register_record
@dataclass(frozen=True, eq=False)
class PooledGraphs:
    """One graph, or many packed as one, at several levels of coarseness.

    Build one with :meth:`from_clusters`, and a batch with :func:`pack_pooled`, not by hand.

    Attributes:
        levels: the graphs, finest first, each packed in the same order.
        clusters: per step, which vertices (senders) of a level are merged to which vertex (receiver) of the next.
        real: per level, False for padding vertices, which batch normalization leaves out; None without padding.
    """

    levels: tuple[Graph, ...]
    clusters: tuple[Pattern, ...]
    real: tuple[Bool[Tensor, " _"], ...] | None = None

    @classmethod
    def from_clusters(cls, levels: Sequence[Graph], clusters: Sequence[Int[Tensor, " _"]]) -> PooledGraphs:
        """From the graphs and, per step, the vertex of the next level that each vertex is merged to."""
        check_items("levels", levels, Graph)
        if not isinstance(clusters, (list, tuple)):
            raise TypeError(f"clusters: expected a list of tensors, one for each step, got {short_repr(clusters)}")
        if not levels:
            raise ValueError("levels: expected at least one graph, got none")
        if len(clusters) != len(levels) - 1:
            raise ValueError(
                f"clusters: expected one tensor for each step between {len(levels)} levels, got {len(clusters)}"
            )
        steps = zip(clusters, levels, levels[1:], strict=False)
        patterns = tuple(_checked_clusters(f"clusters[{k}]", *step) for k, step in enumerate(steps))
        return cls(tuple(levels), patterns)

    @property
    def num_graphs(self) -> int:
        return self.levels[0].num_graphs

    @property
    def device(self) -> torch.device:
        return self.levels[0].device

    def to(self, *args: Any, **kwargs: Any) -> PooledGraphs:
        """Like ``Tensor.to``; a dtype changes only pseudo-coordinates and edge weights."""
        return move(self, *args, **kwargs)


def pack_pooled(items: Sequence[PooledGraphs]) -> PooledGraphs:
    """One record that contains all of ``items``, level by level."""
    check_items("items", items, PooledGraphs)
    depths = {len(item.levels) for item in items}
    if len(depths) > 1:
        raise ValueError(f"items: expected the same number of levels in each, got {sorted(depths)}")
    levels = [pack(graphs) for graphs in zip(*(item.levels for item in items), strict=True)]
    if not levels:
        raise ValueError("items: nothing to pack; give at least one")
    clusters = []
    for patterns, coarse in zip(zip(*(item.clusters for item in items), strict=True), levels[1:], strict=True):
        assert coarse.graph_offsets is not None
        shifted = [cluster_of_vertex(p) + first for p, first in zip(patterns, coarse.graph_offsets[:-1], strict=True)]
        clusters.append(torch.cat(shifted))
    return PooledGraphs.from_clusters(levels, clusters)


def cluster_pattern(clusters: Int[Tensor, " vertices"], num_clusters: int) -> Pattern:
    """The vertices in the order of their clusters, so that a cluster is a contiguous segment."""
    vertices = torch.arange(clusters.shape[0], device=clusters.device)
    return sort_edges(vertices, clusters.long(), clusters.shape[0], num_clusters)[0]


def cluster_of_vertex(pattern: Pattern) -> Int[Tensor, " vertices"]:
    """The inverse of :func:`cluster_pattern`."""
    return pattern.receivers[pattern.by_sender]


def _checked_clusters(name: str, clusters: Tensor, fine: Graph, coarse: Graph) -> Pattern:
    clusters = as_tensor(name, clusters, fine.device)
    if clusters.shape != (fine.num_vertices,):
        raise ValueError(
            f"{name}: expected one entry for each of {fine.num_vertices} vertices, got {list(clusters.shape)}"
        )
    check_device(name, clusters.device, fine.device)
    check_device(name, clusters.device, coarse.device)
    check_indices(name, clusters, coarse.num_vertices)
    if fine.num_graphs != coarse.num_graphs:
        raise ValueError(f"levels: there are {fine.num_graphs} graphs before {name} and {coarse.num_graphs} after it")
    pattern = cluster_pattern(clusters, coarse.num_vertices)
    if not values_readable(pattern.senders):
        return pattern
    if bool((pattern.counts == 0).any()):
        empty = int((pattern.counts[0] == 0).nonzero()[0])
        raise ValueError(
            f"{name}: no vertex is merged to vertex {empty} of the next level; number the clusters without gaps"
        )
    moved = graph_of_vertex(fine)[pattern.senders] != graph_of_vertex(coarse)[pattern.receivers]
    if bool(moved.any()):
        vertex = int(pattern.senders[moved][0])
        raise ValueError(
            f"{name}: vertex {vertex} is merged to a vertex of another graph; offset the clusters of each graph"
        )
    return pattern
