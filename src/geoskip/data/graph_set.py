"""Many graphs that differ, for classification: packed in memory, with their coarsenings, taken by number."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from geoskip.data.split import Split
from geoskip.graphs.graph import Graph
from geoskip.graphs.hierarchy import PooledGraphs
from geoskip.shapes import Float, Int, Shaped

CHUNK = 2048  # graphs at once: bounds the memory for edges numbered in 64 bits
SAMPLE = 4000


@dataclass(frozen=True, eq=False)
class GraphLevel:
    """Graphs packed one after the other, at one level of coarseness.

    pos: position of each vertex.
    offsets: the vertices of graph g are ``offsets[g] : offsets[g + 1]``.
    edges: senders and receivers, numbered within their graph, in the smallest integer type that holds them
        (70,000 superpixel graphs have 10⁸ edges); an undirected edge stands in both directions.
    edge_offsets: the edges of graph g are ``edge_offsets[g] : edge_offsets[g + 1]``.
    clusters: vertex of the next coarser level that each vertex goes into, numbered within its graph;
        None at the coarsest level.
    """

    pos: Float[Tensor, "vertices dim"]
    offsets: Int[Tensor, " graphs_plus_1"]
    edges: Shaped[Tensor, "2 edges"]
    edge_offsets: Int[Tensor, " graphs_plus_1"]
    clusters: Shaped[Tensor, " vertices"] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def to(self, device: torch.device | str) -> "GraphLevel":
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: t.to(device) for name, t in tensors.items() if t is not None})

    def select(self, items: Int[Tensor, " items"]) -> "GraphLevel":
        """The chosen graphs, in the order asked for; edges and clusters stay numbered within each graph."""
        rows, offsets = ranges(self.offsets, items)
        edge_rows, edge_offsets = ranges(self.edge_offsets, items)
        clusters = None if self.clusters is None else self.clusters[rows]
        return GraphLevel(self.pos[rows], offsets, self.edges[:, edge_rows], edge_offsets, clusters)

    @property
    def edge_index(self) -> Int[Tensor, "2 edges"]:
        """Senders and receivers numbered over all graphs, as PyTorch Geometric batches them."""
        return self.edges.long() + _spread(self.offsets[:-1], self.edge_offsets)

    @property
    def graph_of_vertex(self) -> Int[Tensor, " vertices"]:
        """The graph each vertex belongs to (PyTorch Geometric's ``batch``)."""
        return _spread(torch.arange(len(self), device=self.offsets.device), self.offsets)

    @cached_property
    def largest_offset(self) -> float:
        """The largest |component of p_j - p_i| over all edges: one scale for the pseudo-coordinates of a whole set."""
        largest = 0.0
        for items in chunks(len(self)):
            some = self.select(items)
            senders, receivers = some.pos[some.edge_index]
            offsets = (senders - receivers).abs()
            largest = max(largest, float(offsets.max()) if offsets.numel() else 0.0)
        return largest

    @cached_property
    def longest_edge(self) -> float:
        """The length of the longest edge, over (the first thousands of) the graphs."""
        some = self.select(torch.arange(min(len(self), SAMPLE), device=self.offsets.device))
        senders, receivers = some.pos[some.edge_index]
        lengths = (senders - receivers).norm(dim=1)
        return float(lengths.max()) if len(lengths) else 0.0

    @cached_property
    def largest_degree(self) -> int:
        """The largest number of neighbours of a vertex, likewise over a whole set."""
        counts = [torch.bincount(some.edge_index[1]) for some in map(self.select, chunks(len(self)))]
        return max(int(count.max()) if count.numel() else 0 for count in counts)

    def graph(self) -> Graph:
        """The packed graphs as an operator sees them, without pseudo-coordinates yet."""
        return replace(Graph.from_edge_index(self.edge_index, len(self.pos)), graph_offsets=self.offsets)

    def clusters_in(self, coarse: "GraphLevel") -> Int[Tensor, " vertices"]:
        """The cluster of each vertex, numbered over all graphs of the next level."""
        if self.clusters is None:
            raise ValueError("this level has no clusters: it is the coarsest")
        return self.clusters.long() + _spread(coarse.offsets[:-1], self.offsets)


@dataclass(frozen=True, eq=False)
class GraphSet:
    """A classification set; a batch of it is a smaller set (:meth:`select`).

    x: features of the vertices of the finest level.
    levels: the graphs, finest first, each later one the coarsening of the one before.
    labels: class of each graph.
    class_names: what the classes are called.
    split: which graphs are for training and which for the test.
    content: as in :class:`geoskip.data.mesh_set.MeshSet`.
    """

    x: Float[Tensor, "vertices channels"]
    levels: tuple[GraphLevel, ...]
    labels: Int[Tensor, " graphs"]
    class_names: tuple[str, ...]
    split: Split
    content: str = ""

    def __post_init__(self) -> None:
        if not self.levels or len(self.x) != len(self.levels[0].pos):
            raise ValueError("a graph set has one row of features per vertex of its finest level")
        if any(len(level) != len(self.labels) for level in self.levels):
            raise ValueError("every level of a graph set holds every graph, and each graph has one label")
        if any(level.clusters is None for level in self.levels[:-1]):
            raise ValueError("every level but the coarsest says which cluster each vertex goes into")
        labels = self.labels
        if labels.numel() and not (labels.min() >= 0 and labels.max() < len(self.class_names)):
            raise ValueError(f"labels outside 0 to {len(self.class_names) - 1}")
        self.split.checked(len(self))

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device | str) -> "GraphSet":
        """The same set on another device (split and class names aside)."""
        levels = tuple(level.to(device) for level in self.levels)
        return replace(self, x=self.x.to(device), levels=levels, labels=self.labels.to(device))

    def select(self, items: Int[Tensor, " items"]) -> "GraphSet":
        """The chosen graphs as a set of their own, without a split: this is how batches are made."""
        items = items.to(self.labels.device)
        none = torch.zeros(0, dtype=torch.int64)
        return GraphSet(
            self.x[ranges(self.levels[0].offsets, items)[0]],
            tuple(level.select(items) for level in self.levels),
            self.labels[items],
            self.class_names,
            Split(none, none),
        )

    def pooled(self) -> PooledGraphs:
        """All levels as a model takes them; pseudo-coordinates follow from the ``pos`` of each level."""
        clusters = [finer.clusters_in(coarser) for finer, coarser in pairwise(self.levels)]
        return PooledGraphs.from_clusters([level.graph() for level in self.levels], clusters)

    def pyg(self, items: Iterable[int] | None = None) -> Iterator[Any]:
        """Graphs (all, in order) as PyTorch Geometric ``Data``: x, pos, edge_index, y of the finest level."""
        from geoskip.data.pyg import data_class

        cls = data_class()
        for item in range(len(self)) if items is None else items:
            one = self.select(torch.tensor([item]))
            finest = one.levels[0]
            yield cls(x=one.x, pos=finest.pos, edge_index=finest.edge_index, y=one.labels)


def chunks(num_graphs: int) -> Iterator[Int[Tensor, " items"]]:
    """Numbers of graphs, some at a time."""
    # One chunk even of nothing, so that a set without graphs has (empty) levels too.
    yield from torch.arange(num_graphs).split(CHUNK) if num_graphs else [torch.arange(0)]


def ranges(
    offsets: Int[Tensor, " graphs_plus_1"], items: Int[Tensor, " items"]
) -> tuple[Int[Tensor, " rows"], Int[Tensor, " items_plus_1"]]:
    """Rows ``offsets[g] : offsets[g + 1]`` of each chosen g, packed, and the offsets of the result."""
    counts = offsets[items + 1] - offsets[items]
    packed = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    rows = torch.arange(int(packed[-1]), device=offsets.device)
    return rows + _spread(offsets[items] - packed[:-1], packed), packed


def local_dtype(num_vertices: int) -> torch.dtype:
    """The smallest integer type that numbers the vertices of a graph."""
    return torch.uint8 if num_vertices <= 256 else torch.int16 if num_vertices <= 2**15 else torch.int32


def _spread(values: Int[Tensor, " graphs"], offsets: Int[Tensor, " graphs_plus_1"]) -> Int[Tensor, " rows"]:
    """One value per graph, repeated over the graph's rows."""
    return values.repeat_interleave(offsets.diff())
