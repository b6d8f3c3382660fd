"""Values on the edges of a graph: pseudo-coordinates, and the weights that follow from the graph."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from geoskip.arguments import check_type, real_number
from geoskip.graphs.checks import (
    as_tensor,
    check_edge_weight,
    check_pseudo,
    check_real_values,
    values_readable,
    widest_float,
)
from geoskip.graphs.graph import Graph
from geoskip.kernels import Pattern, is_traced, sort_edges
from geoskip.kernels.paths import is_fast, kernels_for, on_triton
from geoskip.shapes import Float


def cartesian(
    graph: Graph, positions: Float[Tensor, "vertices dim"], largest: float | None = None
) -> Float[Tensor, "edges dim"]:
    r"""Relative Cartesian coordinates in [0, 1]:
    :math:`u_{ij} = \tfrac12 + \tfrac{x_j - x_i}{2 r}`, r the largest absolute component over all edges.

    Give ``largest`` to use one r for many graphs; coordinates beyond it are clamped to [0, 1]. The result is in the
    receiver order of ``graph``.
    """
    offsets = _offsets(graph, positions)
    scale = _scale(offsets.abs(), largest)
    return (offsets / (2 * scale) + 0.5).clamp(0, 1)


def polar(
    graph: Graph, positions: Float[Tensor, "vertices 2"], largest: float | None = None
) -> Float[Tensor, "edges 2"]:
    r"""Polar coordinates in [0, 1]: length over the largest length, angle over :math:`2\pi`."""
    offsets = _offsets(graph, positions)
    if offsets.shape[1] != 2:
        raise ValueError(f"positions: polar coordinates need 2 dimensions, got {offsets.shape[1]}; use cartesian")
    length = offsets.norm(dim=1)
    scale = _scale(length, largest)
    angle = torch.atan2(offsets[:, 1], offsets[:, 0]) / (2 * math.pi) % 1
    return torch.stack([(length / scale).clamp(0, 1), angle], dim=1)


def target_degree(
    graph: Graph, largest: float | None = None, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "edges 1"]:
    r"""Degree of the receiving vertex, globally normalized: :math:`u_{ij} = d_i / \max d`.

    It needs no positions. Give ``largest`` to use one maximum for a whole data set; larger degrees become 1.
    """
    check_type("graph", graph, Graph)
    degrees = graph.degrees.to(dtype)
    scale = _scale(degrees, largest)
    return (degrees / scale).clamp(0, 1)[graph.pattern.receivers].unsqueeze(1)


def attach(
    graph: Graph,
    pseudo: Float[Tensor, "edges dim"] | None = None,
    edge_weight: Float[Tensor, " edges"] | None = None,
) -> Graph:
    """``graph`` with values in its own receiver order, the order of ``graph.edge_index``: pseudo-coordinates, as the
    functions here return them, or edge weights."""
    check_type("graph", graph, Graph)
    if pseudo is None and edge_weight is None:
        raise TypeError("pseudo: expected a tensor of shape [edges, dim], or edge_weight of shape [edges], got neither")
    if pseudo is not None:
        pseudo = as_tensor("pseudo", pseudo, graph.device)
        check_pseudo("pseudo", pseudo, graph.num_edges, graph.device)
        graph = replace(graph, pseudo=pseudo)
    if edge_weight is not None:
        edge_weight = as_tensor("edge_weight", edge_weight, graph.device)
        check_edge_weight(edge_weight, graph.num_edges, graph.device)
        graph = graph.with_edge_weight(edge_weight[graph.order.argsort()])
    return graph


def _offsets(graph: Graph, positions: Tensor) -> Tensor:
    check_type("graph", graph, Graph)
    positions = as_tensor("positions", positions, graph.device)
    if positions.dim() != 2 or positions.shape[0] != graph.num_vertices or positions.shape[1] == 0:
        raise ValueError(
            f"positions: expected shape [vertices, dim] with {graph.num_vertices} vertices, got {list(positions.shape)}"
        )
    if not positions.is_complex() and not positions.is_floating_point():
        positions = positions.to(torch.get_default_dtype())
    check_real_values("positions", positions, "vertex", graph.device)
    return positions[graph.pattern.senders] - positions[graph.pattern.receivers]


def _scale(values: Tensor, given: float | None) -> Tensor | float:
    """The given scale, or the largest value; 1 if that is 0 or there is none, so that coincident points lie at the
    center."""
    if given is not None:
        given = given if isinstance(given, float) else real_number("largest", given, "the scale")
        if not 0 < given < math.inf:
            raise ValueError(f"largest: expected a number above 0, to divide by, got {given}")
        return given
    if values.numel() == 0:
        return values.new_ones(())
    largest = values.max()
    return torch.where(largest > 0, largest, 1)


class WeightedEdges(NamedTuple):
    """Edges with one weight each."""

    pattern: Pattern
    weights: Float[Tensor, " edges"]


def weighted_edges(graph: Graph, dtype: torch.dtype) -> WeightedEdges:
    """The edges with the graph's weights, 1 if it has none."""

    def build() -> WeightedEdges:
        weights = graph.edge_weight
        if weights is None:
            weights = torch.ones_like(graph.pattern.senders, dtype=dtype)
        return WeightedEdges(graph.pattern, weights.to(dtype))

    return graph.remember(("edges", dtype), build, of=graph.given_edge_weight)


def with_self_loops(graph: Graph, dtype: torch.dtype) -> WeightedEdges:
    """The edges with one self-loop at each vertex: the graph's own with its weight, otherwise one of weight 1.

    As in PyTorch Geometric's ``add_remaining_self_loops``, of several self-loops at a vertex the last one counts. The
    others stay with weight 0: dropping them would make the number of edges depend on values, which cannot be traced.
    """

    def build() -> WeightedEdges:
        if graph.given_edge_weight is None and dtype != torch.float32:
            # All weights are 0 or 1, so that one sorted pattern serves every dtype.
            pattern, weights = with_self_loops(graph, torch.float32)
            return WeightedEdges(pattern, weights.to(dtype))
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
    """Weights divided by their sum at the receiver, which turns a sum over neighbors into a mean."""
    if _has_kernels(*edges):
        return kernels_for(edges.weights).mean_weights(*edges)
    receivers = edges.pattern.receivers
    return edges.weights / _sums_at(receivers, edges.weights, edges.pattern.num_receivers)[receivers]


def gcn_edges(graph: Graph, dtype: torch.dtype, renormalize: bool = True) -> WeightedEdges:
    r""":math:`\tilde L_{ij} = \tilde w_{ij} (\tilde d_i \tilde d_j)^{-1/2}` with self-loops, where
    :math:`\tilde d_i = \sum_j \tilde w_{ij}` sums over all that a vertex receives, its self-loop included. Without edge
    weights all :math:`\tilde w` are 1. Where the weights sum to 0, :math:`0^{-1/2}` counts as 0.

    Without ``renormalize`` it is :math:`I + D^{-1/2} A D^{-1/2}`: the degrees do not count the self-loops, whose
    weights stay as they are."""

    def build() -> WeightedEdges:
        if graph.given_edge_weight is None and _has_kernels(*with_self_loops(graph, torch.float32)):
            pattern, ones = with_self_loops(graph, torch.float32)
            return WeightedEdges(pattern, kernels_for(ones).symmetric_weights(pattern, ones, renormalize, dtype))
        pattern, weights = with_self_loops(graph, widest_float(graph.device))
        own = torch.zeros_like(weights)
        if not renormalize:
            own = torch.where(pattern.senders == pattern.receivers, weights, 0)
            weights = weights - own
        degrees = _sums_at(pattern.receivers, weights, pattern.num_receivers)
        if graph.given_edge_weight is not None:
            _check_degrees(degrees, "into")
        return WeightedEdges(pattern, (own + _symmetric(pattern, weights, degrees, at_zero=0)).to(dtype))

    return graph.remember(("gcn", dtype, renormalize), build, of=graph.given_edge_weight)


def laplacian_edges(graph: Graph, dtype: torch.dtype) -> WeightedEdges:
    r""":math:`L = -D^{-1/2} A D^{-1/2}`, the normalized Laplacian scaled by :math:`2/\lambda_{max} = 1` and
    shifted by -1, without self-loops.

    With edge weights it is PyTorch Geometric's: :math:`A` has the weights, :math:`D` sums those that a vertex sends,
    and :math:`0^{-1/2}` counts as 0. Without, :math:`D` counts the neighbors that send to a vertex, and
    :math:`0^{-1/2}` counts as 1. On undirected graphs, weights of 1 change nothing."""

    def build() -> WeightedEdges:
        pattern, weights = weighted_edges(graph, widest_float(graph.device))
        weights = torch.where(pattern.senders != pattern.receivers, weights, 0)
        if graph.given_edge_weight is None:
            degrees, at_zero = _sums_at(pattern.receivers, weights, graph.num_vertices), 1
        else:
            degrees, at_zero = _sums_at(pattern.senders, weights, graph.num_vertices), 0
            _check_degrees(degrees, "out of")
        return WeightedEdges(pattern, -_symmetric(pattern, weights, degrees, at_zero).to(dtype))

    return graph.remember(("laplacian", dtype), build, of=graph.given_edge_weight)


def _has_kernels(pattern: Pattern, weights: Tensor) -> bool:
    """Whether kernels normalize constant weights. They are not traced and have no gradients."""
    if is_traced(weights) or weights.requires_grad or weights.dtype != torch.float32 or not pattern.num_edges:
        return False
    return is_fast(weights) and on_triton(weights)


def _sums_at(ends: Tensor, weights: Tensor, num_vertices: int) -> Tensor:
    """Sums of the weights over the edges with the same end. Unlike index_add, in a fixed order on CUDA too."""
    return weights.new_zeros(num_vertices).index_put((ends,), weights, accumulate=True)


def _symmetric(pattern: Pattern, weights: Tensor, degrees: Tensor, at_zero: int) -> Tensor:
    """Weights divided by the roots of the degrees at both ends; 1/√0 counts as ``at_zero``."""
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
