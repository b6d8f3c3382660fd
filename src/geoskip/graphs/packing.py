"""Several graphs packed as one, and with their coarsened levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from geoskip.arguments import check_items, check_type, short_repr
from geoskip.graphs.checks import as_tensor, check_device, check_indices, values_readable
from geoskip.graphs.graph import Graph
from geoskip.graphs.records import move, register_record
from geoskip.kernels import Pattern, sort_edges
from geoskip.shapes import Bool, Int


def pack(graphs: Sequence[Graph]) -> Graph:
    """One graph that holds all of ``graphs``; pseudo-coordinates and spirals are kept if every graph has them.

    Either all of the graphs have edge weights, or none.
    """
    check_items("graphs", graphs, Graph)
    if not graphs:
        raise ValueError("graphs: nothing to pack; give at least one graph")
    for graph in graphs:
        check_device("graphs", graph.device, graphs[0].device)
    sizes = torch.tensor([0, *(g.num_vertices for g in graphs)], device=graphs[0].device)
    vertex_offsets = sizes.cumsum(0)
    edge_index = torch.cat([g.edge_index + o for g, o in zip(graphs, vertex_offsets[:-1], strict=True)], dim=1)
    num_vertices = sum(g.num_vertices for g in graphs)
    # The packed edges are already in receiver order; sorting them again only finds the sender order.
    pattern, order = sort_edges(edge_index[0], edge_index[1], num_vertices, num_vertices)
    return Graph(
        pattern=pattern,
        order=order,
        pseudo=_concatenate("pseudo", [g.pseudo for g in graphs]),
        spirals=_concatenate(
            "spirals", [_shift(g.spirals, o) for g, o in zip(graphs, vertex_offsets[:-1], strict=True)]
        ),
        graph_offsets=vertex_offsets,
        given_edge_weight=_edge_weights(graphs),
    )


def separate(graph: Graph) -> list[Graph]:
    """The graphs that :func:`pack` put together."""
    check_type("graph", graph, Graph)
    if graph.graph_offsets is None:
        return [graph]
    bounds = graph.graph_offsets.tolist()
    return [_cut(graph, low, high) for low, high in pairwise(bounds)]


def graph_of_vertex(graph: Graph) -> Int[Tensor, " vertices"]:
    """The number of the graph that each vertex belongs to, PyTorch Geometric's ``batch``."""
    if graph.graph_offsets is None:
        return torch.zeros(graph.num_vertices, dtype=torch.long, device=graph.device)
    vertices = torch.arange(graph.num_vertices, device=graph.device)
    return torch.searchsorted(graph.graph_offsets, vertices, right=True) - 1


def _cut(graph: Graph, low: int, high: int) -> Graph:
    edges = slice(int(graph.pattern.offsets[0, low]), int(graph.pattern.offsets[0, high]))
    pattern, order = sort_edges(
        graph.pattern.senders[edges] - low, graph.pattern.receivers[edges] - low, high - low, high - low
    )
    return Graph(
        pattern=pattern,
        order=order,
        pseudo=None if graph.pseudo is None else graph.pseudo[edges],
        spirals=None if graph.spirals is None else _shift(graph.spirals[low:high], -low),
        given_edge_weight=None if graph.given_edge_weight is None else graph.given_edge_weight[graph.order[edges]],
    )


def _edge_weights(graphs: Sequence[Graph]) -> Tensor | None:
    """In receiver order, which is the order of the packed edges."""
    weights = [graph.edge_weight for graph in graphs if graph.edge_weight is not None]
    if weights and len(weights) < len(graphs):
        raise ValueError(
            f"graphs: {len(weights)} of {len(graphs)} have edge weights; give the others weights too, as "
            "graph.with_edge_weight(torch.ones(graph.num_edges)), or drop all with graph.without_edge_weight()"
        )
    return torch.cat(weights) if weights else None


def _shift(spirals: Tensor | None, by: Tensor | int) -> Tensor | None:
    return None if spirals is None else torch.where(spirals < 0, spirals, spirals + by)


def _concatenate(name: str, parts: list[Tensor | None]) -> Tensor | None:
    present = [part for part in parts if part is not None]
    if len(present) < len(parts):
        return None
    widths = sorted({part.shape[1] for part in present})
    if len(widths) > 1:
        raise ValueError(f"graphs: their {name} have {widths} columns; graphs that are packed need the same number")
    return torch.cat(present)


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
        patterns = tuple(_pattern(f"clusters[{k}]", *step) for k, step in enumerate(steps))
        return cls(tuple(levels), patterns)

    @property
    def num_graphs(self) -> int:
        return self.levels[0].num_graphs

    @property
    def device(self) -> torch.device:
        return self.levels[0].device

    def to(self, *args: Any, **kwargs: Any) -> PooledGraphs:
        """As ``Tensor.to``; a dtype changes pseudo-coordinates alone."""
        return move(self, *args, **kwargs)


def pack_pooled(items: Sequence[PooledGraphs]) -> PooledGraphs:
    """One record that holds all of ``items``, level by level."""
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
        shifted = [cluster_of_vertex(p) + o for p, o in zip(patterns, coarse.graph_offsets[:-1], strict=True)]
        clusters.append(torch.cat(shifted))
    return PooledGraphs.from_clusters(levels, clusters)


def cluster_pattern(clusters: Int[Tensor, " vertices"], num_clusters: int) -> Pattern:
    """The vertices in the order of their clusters, so that a cluster is a contiguous segment."""
    vertices = torch.arange(clusters.shape[0], device=clusters.device)
    return sort_edges(vertices, clusters.long(), clusters.shape[0], num_clusters)[0]


def cluster_of_vertex(pattern: Pattern) -> Int[Tensor, " vertices"]:
    """What :func:`cluster_pattern` was made from."""
    return pattern.receivers[pattern.by_sender]


def _pattern(name: str, clusters: Tensor, fine: Graph, coarse: Graph) -> Pattern:
    clusters = as_tensor(name, clusters, fine.device)
    if clusters.shape != (fine.num_vertices,):
        raise ValueError(
            f"{name}: expected one entry for each of {fine.num_vertices} vertices, got {list(clusters.shape)}"
        )
    check_device(name, clusters.device, fine.device)
    check_device(name, clusters.device, coarse.device)
    check_indices(name, clusters, coarse.num_vertices)
    if fine.num_graphs != coarse.num_graphs:
        raise ValueError(f"levels: hold {fine.num_graphs} graphs before {name} and {coarse.num_graphs} after it")
    pattern = cluster_pattern(clusters, coarse.num_vertices)
    _check_members(name, pattern, fine, coarse)
    return pattern


def _check_members(name: str, pattern: Pattern, fine: Graph, coarse: Graph) -> None:
    if not values_readable(pattern.senders):
        return
    if bool((pattern.counts == 0).any()):
        empty = int((pattern.counts[0] == 0).nonzero()[0])
        raise ValueError(
            f"{name}: no vertex is merged to vertex {empty} of the next level; number the clusters without gaps"
        )
    strayed = graph_of_vertex(fine)[pattern.senders] != graph_of_vertex(coarse)[pattern.receivers]
    if bool(strayed.any()):
        vertex = int(pattern.senders[strayed][0])
        raise ValueError(
            f"{name}: vertex {vertex} is merged to a vertex of another graph; offset the clusters of each graph"
        )
