"""Pseudo-coordinates by their formulas."""

from __future__ import annotations

import math

import pytest
import torch
import torch_geometric.transforms as T
from torch.testing import assert_close
from torch_geometric.data import Data

from geoskip.graphs import Graph, cartesian, polar, target_degree
from tests.specimens import features, specimen

GRAPH = specimen(simple=True).graph()
SENDERS, RECEIVERS = GRAPH.edge_index


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_cartesian(dim: int) -> None:
    """u_ij = ½ + (x_j - x_i) / 2r: 0.5 at the receiver, 0 or 1 at the farthest component."""
    positions = features(7, dim)
    u = cartesian(GRAPH, positions)
    offsets = [[float(positions[j, d] - positions[i, d]) for d in range(dim)] for j, i in GRAPH.edge_index.t().tolist()]
    farthest = max(abs(value) for row in offsets for value in row)
    wanted = [[0.5 + value / (2 * farthest) for value in row] for row in offsets]
    assert_close(u, torch.tensor(wanted, dtype=torch.float64))
    assert u.min() >= 0
    assert u.max() <= 1
    assert min(float(u.min()), 1 - float(u.max())) == 0


def test_cartesian_of_opposite_edges_mirrors() -> None:
    positions = features(7, 3)
    edges = torch.tensor([[0, 1], [1, 0]])
    u = cartesian(Graph.from_edge_index(edges, 7), positions)
    assert_close(u.sum(0), torch.ones(3, dtype=torch.float64))


def test_cartesian_with_a_common_radius() -> None:
    positions = features(7, 2)
    radius = float((positions[SENDERS] - positions[RECEIVERS]).abs().max())
    assert_close(cartesian(GRAPH, positions, largest=radius), cartesian(GRAPH, positions))
    half = cartesian(GRAPH, positions, largest=2 * radius)
    assert_close(half - 0.5, (cartesian(GRAPH, positions) - 0.5) / 2)
    beyond = cartesian(GRAPH, positions, largest=radius / 2)
    assert beyond.min() == 0
    assert beyond.max() == 1


def test_polar() -> None:
    """A receiver with a sender in each direction of the compass, at distances 1 to 4."""
    compass = torch.tensor([[0.0, 0], [1, 0], [0, 2], [-3, 0], [0, -4]], dtype=torch.float64)
    star = Graph.from_edge_index(torch.tensor([[1, 2, 3, 4], [0, 0, 0, 0]]), 5)
    wanted = torch.tensor([[0.25, 0], [0.5, 0.25], [0.75, 0.5], [1, 0.75]], dtype=torch.float64)
    assert_close(polar(star, compass), wanted)
    assert_close(polar(star, compass, largest=8.0)[:, 0], wanted[:, 0] / 2)


def test_polar_leads_back_to_the_offsets() -> None:
    positions = features(7, 2)
    offsets = positions[SENDERS] - positions[RECEIVERS]
    length, angle = polar(GRAPH, positions).unbind(1)
    around = 2 * math.pi * angle
    back = torch.stack([around.cos(), around.sin()], dim=1) * (length * offsets.norm(dim=1).max()).unsqueeze(1)
    assert_close(back, offsets)
    assert 0 <= float(angle.min()) <= float(angle.max()) <= 1


def test_target_degree() -> None:
    u = target_degree(GRAPH)
    wanted = [[float(GRAPH.degrees[i]) / float(GRAPH.degrees.max())] for i in RECEIVERS.tolist()]
    assert_close(u, torch.tensor(wanted))
    assert u.max() == 1
    assert_close(
        target_degree(GRAPH, largest=10.0, dtype=torch.float64).squeeze(1),
        GRAPH.degrees[RECEIVERS] / 10.0,
        check_dtype=False,
    )


def test_degrees_beyond_the_largest_are_one() -> None:
    u = target_degree(GRAPH, largest=2.0).squeeze(1)
    assert GRAPH.degrees.max() > 2
    assert torch.equal(u, (GRAPH.degrees[RECEIVERS] / 2.0).clamp(max=1))


@pytest.mark.parametrize("name", ["cartesian", "degree"])
def test_pytorch_geometric_agrees(name: str) -> None:
    positions = features(7, 3)
    data = Data(pos=positions, edge_index=GRAPH.edge_index, num_nodes=7)
    if name == "cartesian":
        assert_close(cartesian(GRAPH, positions), T.Cartesian()(data).edge_attr)
    else:
        assert_close(target_degree(GRAPH, dtype=torch.float64), T.TargetIndegree()(data).edge_attr, check_dtype=False)


def test_coincident_points_lie_at_the_centre() -> None:
    positions = torch.ones(7, 2, dtype=torch.float64)
    assert torch.equal(cartesian(GRAPH, positions), torch.full((GRAPH.num_edges, 2), 0.5, dtype=torch.float64))
    assert torch.equal(polar(GRAPH, positions)[:, 0], torch.zeros(GRAPH.num_edges, dtype=torch.float64))


def test_a_graph_without_edges() -> None:
    graph = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long), 3)
    assert cartesian(graph, torch.rand(3, 3)).shape == (0, 3)
    assert polar(graph, torch.rand(3, 2)).shape == (0, 2)
    assert target_degree(graph).shape == (0, 1)
