"""Pseudo-coordinates u_ij: where a neighbor lies, seen from a vertex."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from geoskip.arguments import check_type, real_number
from geoskip.graphs.checks import (
    as_tensor,
    check_device,
    check_edge_values,
    check_edge_weight,
    check_floating,
    values_readable,
)
from geoskip.graphs.graph import Graph
from geoskip.shapes import Float


def cartesian(
    graph: Graph, positions: Float[Tensor, "vertices dim"], largest: float | None = None
) -> Float[Tensor, "edges dim"]:
    r"""Relative Cartesian coordinates in [0, 1]:
    :math:`u_{ij} = \tfrac12 + \tfrac{x_j - x_i}{2 r}`, r the largest absolute component over all edges.

    Give ``largest`` to use one r for many graphs; what lies beyond it is moved to the border. The result is in the
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

    It knows the connectivity only. Give ``largest`` to use one maximum for a whole data set; what exceeds it becomes 1.
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
    """``graph`` with values given in its own receiver order, that of ``graph.edge_index``: pseudo-coordinates, as the
    functions here return them, or edge weights."""
    check_type("graph", graph, Graph)
    if pseudo is None and edge_weight is None:
        raise TypeError("pseudo: expected a tensor of shape [edges, dim], or edge_weight of shape [edges], got neither")
    if pseudo is not None:
        pseudo = as_tensor("pseudo", pseudo, graph.device)
        check_edge_values("pseudo", pseudo, graph.num_edges, graph.device)
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
    check_floating("positions", positions)
    check_device("positions", positions.device, graph.device)
    if values_readable(positions) and not bool(positions.isfinite().all()):
        vertex = int((~positions.isfinite()).any(dim=1).nonzero()[0])
        raise ValueError(f"positions: vertex {vertex} is at {positions[vertex].tolist()}, which is not finite")
    return positions[graph.pattern.senders] - positions[graph.pattern.receivers]


def _scale(values: Tensor, given: float | None) -> Tensor | float:
    """What is given, or the largest value; 1 if there is none or it is 0: coincident points lie at the center."""
    if given is not None:
        given = given if isinstance(given, float) else real_number("largest", given, "the scale")
        if not 0 < given < math.inf:
            raise ValueError(f"largest: expected a number above 0, to divide by, got {given}")
        return given
    if values.numel() == 0:
        return values.new_ones(())
    largest = values.max()
    return torch.where(largest > 0, largest, 1)
