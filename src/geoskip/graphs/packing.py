"""Many graphs as one: vertices numbered on, no edges between them, as in PyTorch Geometric's batches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from geoskip.arguments import check_items, check_type
from geoskip.graphs.checks import check_device
from geoskip.graphs.graph import Graph
from geoskip.kernels import sort_edges
from geoskip.shapes import Int


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
    # The packed edges are in order already; sorting them anew only finds the sender order.
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
