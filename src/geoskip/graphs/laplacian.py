"""Edge weights that follow from the graph: its own, self-loops, GCN's coefficients, the Laplacian."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from geoskip.graphs.checks import values_readable
from geoskip.graphs.graph import Graph
from geoskip.kernels import Pattern, sort_edges
from geoskip.shapes import Float


class WeightedEdges(NamedTuple):
    """Edges with one weight each."""

    pattern: Pattern
    weights: Float[Tensor, " edges"]


def weighted_edges(graph: Graph, dtype: torch.dtype) -> WeightedEdges:
    """The edges with the graph's weights, 1 where it has none."""

    def build() -> WeightedEdges:
        weights = graph.edge_weight
        if weights is None:
            weights = torch.ones_like(graph.pattern.senders, dtype=dtype)
        return WeightedEdges(graph.pattern, weights.to(dtype))

    return graph.remember(("edges", dtype), build, of=graph.given_edge_weight)


def with_self_loops(graph: Graph, dtype: torch.dtype) -> WeightedEdges:
    """The edges with one self-loop at each vertex, of weight 1 unless the graph has one: that keeps its weight.

    As in PyTorch Geometric's ``add_remaining_self_loops``: of several self-loops at a vertex the last counts.

    What does not count is kept with weight 0, since to drop it would make the number of edges depend on their
    values, which no trace of torch can follow.
    """

    def build() -> WeightedEdges:
        senders, receivers = graph.pattern.senders, graph.pattern.receivers
        loops = torch.arange(graph.num_vertices, device=graph.device)
        pattern, order = sort_edges(
            torch.cat([senders, loops]), torch.cat([receivers, loops]), graph.num_vertices, graph.num_vertices
        )
        own = senders == receivers
        # Equal edges are next to each other, in the order in which they were given.
        repeated = torch.zeros_like(own)
        repeated[:-1] = own[1:] & (receivers[1:] == receivers[:-1]) & own[:-1]
        weights = torch.where(repeated, 0, weighted_edges(graph, dtype).weights)
        missing = torch.ones_like(loops, dtype=dtype).index_add(0, receivers, -(own & ~repeated).to(dtype))
        return WeightedEdges(pattern, torch.cat([weights, missing])[order])

    return graph.remember(("self-loops", dtype), build, of=graph.given_edge_weight)


def mean_weights(edges: WeightedEdges) -> Float[Tensor, " edges"]:
    """Weights divided by their sum at the receiver: a mean over the neighbors. Isolated vertices have none."""
    receivers = edges.pattern.receivers
    return edges.weights / _sums_at(receivers, edges.weights, edges.pattern.num_receivers)[receivers]


def gcn_edges(graph: Graph, dtype: torch.dtype) -> WeightedEdges:
    r""":math:`\tilde L_{ij} = \tilde w_{ij} (\tilde d_i \tilde d_j)^{-1/2}` with self-loops and
    :math:`\tilde d_i = \sum_j \tilde w_{ij}`, the sum over what a vertex receives, from itself too. Without edge
    weights all :math:`\tilde w` are 1. Where the weights sum to 0, 0 stands for :math:`0^{-1/2}`."""

    def build() -> WeightedEdges:
        pattern, weights = with_self_loops(graph, torch.float64)
        degrees = _sums_at(pattern.receivers, weights, pattern.num_receivers)
        if graph.given_edge_weight is not None:
            _check_degrees(degrees, "into")
        return WeightedEdges(pattern, _symmetric(pattern, weights, degrees, at_zero=0).to(dtype))

    return graph.remember(("gcn", dtype), build, of=graph.given_edge_weight)


def laplacian_edges(graph: Graph, dtype: torch.dtype) -> WeightedEdges:
    r""":math:`L = -D^{-1/2} A D^{-1/2}`, the normalized Laplacian scaled by :math:`2/\lambda_{max} = 1` and
    shifted by -1, without self-loops.

    With edge weights it is PyTorch Geometric's: :math:`A` holds the weights, :math:`D` sums those that a vertex sends,
    and 0 stands for :math:`0^{-1/2}`. Without, :math:`D` counts the neighbors that send to a vertex; where there are
    none the row is empty, and 1 stands for 0 in the column. On undirected graphs weights of 1 change nothing."""

    def build() -> WeightedEdges:
        pattern, weights = weighted_edges(graph, torch.float64)
        weights = torch.where(pattern.senders != pattern.receivers, weights, 0)
        if graph.given_edge_weight is None:
            degrees, at_zero = _sums_at(pattern.receivers, weights, graph.num_vertices), 1
        else:
            degrees, at_zero = _sums_at(pattern.senders, weights, graph.num_vertices), 0
            _check_degrees(degrees, "out of")
        return WeightedEdges(pattern, -_symmetric(pattern, weights, degrees, at_zero).to(dtype))

    return graph.remember(("laplacian", dtype), build, of=graph.given_edge_weight)


def _sums_at(ends: Tensor, weights: Tensor, num_vertices: int) -> Tensor:
    """Sums of the weights over the edges with the same end. Unlike index_add, in a fixed order on CUDA too."""
    return weights.new_zeros(num_vertices).index_put((ends,), weights, accumulate=True)


def _symmetric(pattern: Pattern, weights: Tensor, degrees: Tensor, at_zero: int) -> Tensor:
    """Weights divided by the roots of the degrees at both ends; ``at_zero`` stands for 1/√0."""
    is_zero = degrees == 0
    # The inner choice keeps the infinite slope at 0 out of the gradient.
    scale = torch.where(is_zero, at_zero, torch.where(is_zero, 1, degrees).rsqrt())
    return weights * scale[pattern.receivers] * scale[pattern.senders]


def _check_degrees(degrees: Tensor, direction: str) -> None:
    if values_readable(degrees) and bool((degrees < 0).any()):
        vertex = int((degrees < 0).nonzero()[0])
        raise ValueError(
            f"edge_weight: the weights of the edges {direction} vertex {vertex} sum to {float(degrees[vertex]):g}, and "
            "the normalization takes the root of that sum; use weights that are not negative"
        )
