"""Fixed edge weights that follow from the connectivity: self-loops, GCN's coefficients, the Laplacian."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from geoskip.graphs.graph import Graph
from geoskip.kernels import Pattern, sort_edges
from geoskip.shapes import Float


class WeightedEdges(NamedTuple):
    """Edges with one weight each."""

    pattern: Pattern
    weights: Float[Tensor, " edges"]


def with_self_loops(graph: Graph, dtype: torch.dtype) -> WeightedEdges:
    """The edges with one self-loop of weight 1 at each vertex.

    A self-loop that the graph already has is kept with weight 0, since to drop it would make the number of
    edges depend on their values, which no trace of torch can follow.
    """

    def build() -> WeightedEdges:
        senders, receivers = graph.pattern.senders, graph.pattern.receivers
        loops = torch.arange(graph.num_vertices, device=graph.device)
        pattern, order = sort_edges(
            torch.cat([senders, loops]), torch.cat([receivers, loops]), graph.num_vertices, graph.num_vertices
        )
        weights = torch.cat([(senders != receivers).to(dtype), torch.ones_like(loops, dtype=dtype)])
        return WeightedEdges(pattern, weights[order])

    return graph.remember(("self-loops", dtype), build)


def mean_weights(edges: WeightedEdges) -> Float[Tensor, " edges"]:
    """Weights divided by their sum at the receiver: a mean over the neighbours. Isolated vertices have none."""
    return edges.weights / _row_sums(edges)[edges.pattern.receivers]


def gcn_edges(graph: Graph, dtype: torch.dtype) -> WeightedEdges:
    r""":math:`\tilde L_{ij} = (\tilde d_i \tilde d_j)^{-1/2}` with self-loops; :math:`\tilde d` counts the
    neighbours that send to a vertex, and itself."""

    def build() -> WeightedEdges:
        looped = with_self_loops(graph, torch.float64)
        return WeightedEdges(looped.pattern, _symmetric(looped).to(dtype))

    return graph.remember(("gcn", dtype), build)


def laplacian_edges(graph: Graph, dtype: torch.dtype) -> WeightedEdges:
    r""":math:`L = -D^{-1/2} A D^{-1/2}`, the normalised Laplacian scaled by :math:`2/\lambda_{max} = 1` and
    shifted by -1, without self-loops. :math:`D` counts the neighbours that send to a vertex; where there are none
    the row is empty, and 1 stands for 0 in the column."""

    def build() -> WeightedEdges:
        proper = (graph.pattern.senders != graph.pattern.receivers).double()
        return WeightedEdges(graph.pattern, -_symmetric(WeightedEdges(graph.pattern, proper)).to(dtype))

    return graph.remember(("laplacian", dtype), build)


def _row_sums(edges: WeightedEdges) -> Tensor:
    sums = edges.weights.new_zeros(edges.pattern.num_receivers)
    return sums.index_add(0, edges.pattern.receivers, edges.weights)


def _symmetric(edges: WeightedEdges) -> Tensor:
    sums = _row_sums(edges)
    scale = torch.where(sums > 0, sums, 1).rsqrt()
    return edges.weights * scale[edges.pattern.receivers] * scale[edges.pattern.senders]
