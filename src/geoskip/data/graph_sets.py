"""Sets of graphs for classification: packed in memory, with their coarser levels, selected by number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoskip.data.mesh_sets import Split, pyg_data
from geoskip.data.progress_bar import progress_bar
from geoskip.graphs.coarsening import contract, graclus
from geoskip.graphs.graph import Graph
from geoskip.graphs.graph_hierarchy import PooledGraphs
from geoskip.graphs.tensor_records import move, register_record
from geoskip.shapes import Bool, Float, Int, Shaped

CHUNK = 2048  # graphs at a time: limits the memory for edges numbered in 64 bits
SMALL = 256  # vertices that 8 bits can number
MATRIX_VERTICES = 256  # in graphs of up to this size, coarse edges are found by a matrix


@register_record
@dataclass(frozen=True, eq=False)
class GraphLevel:
    """Graphs packed one after the other, at one level of coarseness.

    pos: position of each vertex.
    offsets: the vertices of graph g are ``offsets[g] : offsets[g + 1]``.
    edges: senders and receivers, numbered within their graph, in the smallest integer type that holds them
        (70,000 superpixel graphs have 10⁸ edges); undirected edges are stored in both directions.
    edge_offsets: the edges of graph g are ``edge_offsets[g] : edge_offsets[g + 1]``.
    clusters: the vertex of the next coarser level that each vertex belongs to, numbered within its graph;
        None at the coarsest level.
    """

    pos: Float[Tensor, "vertices dim"]
    offsets: Int[Tensor, " graphs_plus_1"]
    edges: Shaped[Tensor, "2 edges"]
    edge_offsets: Int[Tensor, " graphs_plus_1"]
    clusters: Shaped[Tensor, " vertices"] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def to(self, device: torch.device | str) -> GraphLevel:
        return move(self, device)

    def select(self, items: Int[Tensor, " items"]) -> GraphLevel:
        """The chosen graphs, in the given order; edges and clusters stay numbered within each graph."""
        rows, offsets = ranges(self.offsets, items)
        edge_rows, edge_offsets = ranges(self.edge_offsets, items)
        clusters = None if self.clusters is None else self.clusters[rows]
        return GraphLevel(self.pos[rows], offsets, self.edges[:, edge_rows], edge_offsets, clusters)

    @property
    def edge_index(self) -> Int[Tensor, "2 edges"]:
        """Senders and receivers numbered over all graphs, as PyTorch Geometric batches them."""
        return self.edges.long() + _repeat_by_graph(self.offsets[:-1], self.edge_offsets)

    @property
    def graph_of_vertex(self) -> Int[Tensor, " vertices"]:
        """The graph of each vertex (PyTorch Geometric's ``batch``)."""
        return _repeat_by_graph(torch.arange(len(self), device=self.offsets.device), self.offsets)

    @cached_property
    def largest_offset(self) -> float:
        """The largest |component of p_j - p_i| over all edges: one scale for the pseudo-coordinates of a whole set."""
        offsets = [_edge_vectors(part).abs() for part in map(self.select, chunks(len(self)))]
        return max(float(part.max()) if part.numel() else 0.0 for part in offsets)

    def longest_edge(self, num_graphs: int) -> float:
        """The length of the longest edge of the first ``num_graphs`` graphs."""
        sample = self.select(torch.arange(min(len(self), num_graphs), device=self.offsets.device))
        lengths = _edge_vectors(sample).norm(dim=1)
        return float(lengths.max()) if len(lengths) else 0.0

    @cached_property
    def largest_degree(self) -> int:
        """The largest number of neighbors of a vertex, over all graphs."""
        counts = [torch.bincount(part.edge_index[1]) for part in map(self.select, chunks(len(self)))]
        return max(int(count.max()) if count.numel() else 0 for count in counts)

    def graph(self) -> Graph:
        """The packed graphs as operators take them, without pseudo-coordinates."""
        return replace(Graph.from_edge_index(self.edge_index, len(self.pos)), graph_offsets=self.offsets)

    def clusters_in(self, coarse: GraphLevel) -> Int[Tensor, " vertices"]:
        """The cluster of each vertex, numbered over all graphs of the next level."""
        if self.clusters is None:
            raise ValueError("this level has no clusters: it is the coarsest")
        return self.clusters.long() + _repeat_by_graph(coarse.offsets[:-1], self.offsets)


@dataclass(frozen=True, eq=False)
class GraphSet:
    """A set for classification; a batch of it is a smaller set (:meth:`select`).

    x: features of the vertices of the finest level.
    levels: the graphs, finest first; each later level is the coarsening of the one before.
    labels: class of each graph.
    class_names: the names of the classes.
    split: which graphs are for training and which for the test.
    content: as in :class:`geoskip.data.MeshSet`.
    names: of the graphs, such as the paths of images in their folder; empty if they have none. A batch has none.
    """

    x: Float[Tensor, "vertices channels"]
    levels: tuple[GraphLevel, ...]
    labels: Int[Tensor, " graphs"]
    class_names: tuple[str, ...]
    split: Split
    content: str = ""
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.levels or len(self.x) != len(self.levels[0].pos):
            raise ValueError("a graph set has one row of features per vertex of its finest level")
        if any(len(level) != len(self.labels) for level in self.levels):
            raise ValueError("every level of a graph set holds every graph, and each graph has one label")
        if any(level.clusters is None for level in self.levels[:-1]):
            raise ValueError("every level but the coarsest says which cluster each vertex belongs to")
        if self.names and len(self.names) != len(self):
            raise ValueError(f"{len(self.names)} names for {len(self)} graphs")
        labels = self.labels
        if labels.numel() and not (labels.min() >= 0 and labels.max() < len(self.class_names)):
            raise ValueError(f"labels outside 0 to {len(self.class_names) - 1}")
        self.split.check(len(self))

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device | str) -> GraphSet:
        """The same set on another device; the split stays where it is."""
        levels = tuple(level.to(device) for level in self.levels)
        return replace(self, x=self.x.to(device), levels=levels, labels=self.labels.to(device))

    def select(self, items: Int[Tensor, " items"]) -> GraphSet:
        """The chosen graphs as a set without a split: a batch."""
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
        """All levels as a model takes them; pseudo-coordinates are computed from the ``pos`` of each level."""
        clusters = [finer.clusters_in(coarser) for finer, coarser in pairwise(self.levels)]
        return PooledGraphs.from_clusters([level.graph() for level in self.levels], clusters)

    def pyg(self, items: Iterable[int] | None = None) -> Iterator[Any]:
        """Graphs (by default all) as PyTorch Geometric ``Data``: x, pos, edge_index, y, and the name if it has one."""
        for item in range(len(self)) if items is None else items:
            one = self.select(torch.tensor([item]))
            finest = one.levels[0]
            name = {"name": self.names[item]} if self.names else {}
            yield pyg_data()(x=one.x, pos=finest.pos, edge_index=finest.edge_index, y=one.labels, **name)


def chunks(num_graphs: int) -> Iterator[Int[Tensor, " items"]]:
    """The numbers of all graphs, ``CHUNK`` at a time."""
    # One chunk even if there are no graphs, so that such a set has (empty) levels too.
    yield from torch.arange(num_graphs).split(CHUNK) if num_graphs else [torch.arange(0)]


def ranges(
    offsets: Int[Tensor, " graphs_plus_1"], items: Int[Tensor, " items"]
) -> tuple[Int[Tensor, " rows"], Int[Tensor, " items_plus_1"]]:
    """Rows ``offsets[g] : offsets[g + 1]`` of each chosen g, packed, and the offsets of the result."""
    packed = offsets_of(offsets[items + 1] - offsets[items])
    rows = torch.arange(int(packed[-1]), device=offsets.device)
    return rows + _repeat_by_graph(offsets[items] - packed[:-1], packed), packed


def local_dtype(num_vertices: int) -> torch.dtype:
    """The smallest integer type that numbers the vertices of a graph."""
    return torch.uint8 if num_vertices <= SMALL else torch.int16 if num_vertices <= 2**15 else torch.int32


def _edge_vectors(level: GraphLevel) -> Float[Tensor, "edges dim"]:
    senders, receivers = level.pos[level.edge_index]
    return senders - receivers


def _repeat_by_graph(values: Int[Tensor, " graphs"], offsets: Int[Tensor, " graphs_plus_1"]) -> Int[Tensor, " rows"]:
    """One value per graph, repeated over the graph's rows."""
    return values.repeat_interleave(offsets.diff())


def offsets_of(counts: Int[Tensor, " graphs"]) -> Int[Tensor, " graphs_plus_1"]:
    """Where each graph starts, and where the last one ends, if graph g has ``counts[g]`` entries."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def gaussian_weights(level: GraphLevel, sigma: float) -> Float[np.ndarray, " edges"]:
    """Similarity of the ends of each edge, exp(-|p_i - p_j|² / 2σ²)."""
    senders, receivers = level.pos[level.edge_index].double()
    return torch.exp((senders - receivers).square().sum(1) / (-2 * sigma**2)).numpy()


def find_clusters(level: GraphLevel, sigma: float, num_levels: int, seed: int = 0) -> list[Shaped[Tensor, " _"]]:
    """Clusters of each level but the coarsest, numbered within their graph, for ``num_levels`` coarser levels.

    Each level is two Graclus matchings coarser than the one before. The edges of the finest level have
    :func:`gaussian_weights`; coarser levels use their sums.
    """
    parts: list[list[np.ndarray]] = [[] for _ in range(num_levels)]
    with progress_bar("coarsening", len(level)) as advance:
        for items in chunks(len(level)):
            chunk = level.select(items)
            edges, offsets = chunk.edge_index.numpy(), chunk.offsets.numpy()
            weights, volumes = gaussian_weights(chunk, sigma), None
            for depth in range(num_levels):
                coarse = graclus(edges, weights, offsets, volumes=volumes, matchings=2, seed=seed + 2 * depth)
                parts[depth].append(coarse.clusters - np.repeat(coarse.offsets[:-1], np.diff(offsets)))
                edges, weights, offsets, volumes = coarse.edge_index, coarse.weights, coarse.offsets, coarse.volumes
            advance(len(items))
    clusters = [torch.from_numpy(np.concatenate(part)) for part in parts]
    return [part.to(local_dtype(int(part.max()) + 1 if len(part) else 1)) for part in clusters]


def with_levels(level: GraphLevel, clusters: list[Shaped[Tensor, " _"]]) -> tuple[GraphLevel, ...]:
    """The levels that follow from clusters: positions are cluster means, edges join clusters that had one between."""
    levels = []
    for chosen in clusters:
        _check_clusters(level, chosen)
        levels.append(replace(level, clusters=chosen))
        level = _coarser(levels[-1], chosen)
    return (*levels, level)


def _check_clusters(level: GraphLevel, clusters: Tensor) -> None:
    """ValueError unless the clusters of each graph, which may come from a file, are numbered from 0 without gaps."""
    if clusters.shape != (len(level.pos),) or clusters.is_floating_point():
        raise ValueError(f"clusters: {len(level.pos)} whole numbers are needed, one for each vertex")
    sizes, graphs = level.offsets.diff(), level.graph_of_vertex
    if bool(((clusters < 0) | (clusters >= sizes[graphs])).any()):
        raise ValueError("clusters: a graph has no more clusters than vertices, numbered from 0")
    numbered = torch.zeros(len(level.pos), dtype=torch.bool)
    numbered[level.offsets[graphs] + clusters.long()] = True
    if int(numbered.sum()) != int(_num_clusters(level, clusters).sum()):
        raise ValueError("clusters: the clusters of a graph must be numbered without gaps")


def _num_clusters(level: GraphLevel, clusters: Tensor) -> Int[Tensor, " graphs"]:
    counts = torch.zeros(len(level), dtype=torch.int64)
    return counts.scatter_reduce_(0, level.graph_of_vertex, clusters.long() + 1, "amax")


def _coarser(level: GraphLevel, clusters: Tensor) -> GraphLevel:
    counts = _num_clusters(level, clusters)
    offsets = offsets_of(counts)
    groups = clusters.long() + _repeat_by_graph(offsets[:-1], level.offsets)
    sums = torch.zeros(int(offsets[-1]), level.pos.shape[1], dtype=torch.float64)
    sums.index_add_(0, groups, level.pos.double())
    pos = (sums / torch.bincount(groups, minlength=len(sums)).unsqueeze(1)).float()
    edges, edge_counts = zip(*(_coarse_edges(level.select(items)) for items in chunks(len(level))), strict=True)
    dtype = local_dtype(int(counts.max()) if len(counts) else 0)
    return GraphLevel(pos, offsets, torch.cat(edges, 1).to(dtype), offsets_of(torch.cat(edge_counts)))


def _coarse_edges(level: GraphLevel) -> tuple[Shaped[Tensor, "2 _"], Int[Tensor, " _"]]:
    """Edges between clusters, numbered within their graph, and how many each graph has."""
    assert level.clusters is not None
    if level.offsets.diff().numpy().max(initial=0) <= MATRIX_VERTICES:
        return _small_coarse_edges(level, level.clusters.numpy())
    # Any numbering that separates the graphs works here; a graph has no more clusters than vertices.
    groups = level.clusters.long() + _repeat_by_graph(level.offsets[:-1], level.offsets)
    edge_index, _ = contract(level.edge_index.numpy(), np.ones(level.edges.shape[1]), groups.numpy(), len(groups))
    edges = torch.from_numpy(edge_index)
    graphs = level.graph_of_vertex[edges[1]]
    return edges - level.offsets[graphs], torch.bincount(graphs, minlength=len(level))


def _small_coarse_edges(level: GraphLevel, clusters: np.ndarray) -> tuple[Shaped[Tensor, "2 _"], Int[Tensor, " _"]]:
    """The same by matrices of ones and zeros, which is faster for 75 vertices than sorting edges."""
    points = int(clusters.max(initial=0)) + 1
    graphs = np.repeat(np.arange(len(level)), level.edge_offsets.diff().numpy())
    senders, receivers = clusters[level.offsets.numpy()[graphs] + level.edges.numpy()]
    adjacency = np.zeros((len(level), points, points), dtype=bool)
    adjacency[graphs, receivers, senders] = True
    adjacency[:, np.arange(points), np.arange(points)] = False
    edges, counts = adjacency_edges(adjacency)
    return torch.from_numpy(edges), torch.from_numpy(counts)


def adjacency_edges(
    adjacency: Bool[np.ndarray, "graphs points points"],
) -> tuple[Shaped[np.ndarray, "2 edges"], Int[np.ndarray, " graphs"]]:
    """Senders and receivers of the ones at [graph, receiver, sender], sorted by receiver, and the counts by graph."""
    points = adjacency.shape[1]
    dtype = np.uint8 if points <= SMALL else np.int32
    flat = adjacency.reshape(len(adjacency), points * points)
    counts = np.count_nonzero(flat, axis=1)
    firsts = np.arange(len(adjacency)) * (points * points)
    # 32 bits are enough for a graph of up to 46,340 points, and need half the memory.
    within = (np.flatnonzero(flat) - np.repeat(firsts, counts)).astype(np.int32 if points**2 < 2**31 else np.int64)
    receivers, senders = np.divmod(within, points)
    return np.stack([senders.astype(dtype), receivers.astype(dtype)]), counts
