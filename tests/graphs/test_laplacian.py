"""Fixed edge weights. The oracles of the operators have the formulas of GCN and of the Laplacian."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from geoskip.graphs import Graph, WeightedEdges, gcn_edges, laplacian_edges, mean_weights, with_self_loops
from tests.specimens import Specimen, edgeless, specimen

EYE = torch.eye(7, dtype=torch.float64)


@pytest.fixture(params=["awkward", "simple", "directed", "edgeless"])
def made(request: pytest.FixtureRequest) -> Specimen:
    """Awkward ones have a self-loop and an edge listed twice; all have an isolated vertex."""
    return {
        "awkward": specimen(),
        "simple": specimen(simple=True),
        "directed": specimen(directed=True),
        "edgeless": edgeless(7),
    }[request.param]


def dense(edges: WeightedEdges) -> Tensor:
    places = edges.pattern.receivers, edges.pattern.senders
    return torch.zeros(7, 7, dtype=torch.float64).index_put(places, edges.weights.double(), accumulate=True)


def adjacency(made: Specimen) -> Tensor:
    """a_ij counts the edges from j to i, without self-loops."""
    counts = torch.zeros(7, 7, dtype=torch.float64)
    for j, i in made.edge_index.t().tolist():
        counts[i, j] += i != j
    return counts


def test_self_loops_are_there_once(made: Specimen) -> None:
    assert_close(dense(with_self_loops(made.graph(), torch.float64)), adjacency(made) + EYE)


def test_laplacian_has_eigenvalues_between_minus_1_and_1() -> None:
    """λ - 1 for the normalised Laplacian's λ in [0, 2]; -1 belongs to the roots of the degrees."""
    pairs = torch.tensor([[0, 1, 2, 3, 4, 0, 1], [1, 2, 3, 4, 5, 3, 5]])
    graph = Graph.from_edge_index(torch.cat([pairs, pairs.flip(0)], dim=1), 7)
    ell = dense(laplacian_edges(graph, torch.float64))
    assert torch.equal(ell, ell.t())
    values = torch.linalg.eigvalsh(ell)
    assert values.min() == pytest.approx(-1)
    assert values.max() <= 1
    roots = graph.degrees.double().sqrt()
    assert_close(ell @ roots, -roots)


def test_mean_weights_sum_to_1(made: Specimen) -> None:
    graph = made.graph()
    ones = torch.ones(graph.num_edges, dtype=torch.float64)
    rows = dense(WeightedEdges(graph.pattern, mean_weights(WeightedEdges(graph.pattern, ones)))).sum(1)
    assert_close(rows, (graph.degrees > 0).double())


@pytest.mark.parametrize("build", [with_self_loops, gcn_edges, laplacian_edges])
def test_weights_are_remembered_by_precision(build: type) -> None:
    graph = specimen().graph()
    single, double = build(graph, torch.float32), build(graph, torch.float64)
    assert (single.weights.dtype, double.weights.dtype) == (torch.float32, torch.float64)
    assert build(graph, torch.float32) is single
    assert torch.equal(single.weights, double.weights.float())


def test_a_vertex_that_only_sends_counts() -> None:
    """Of the one edge from 0 to 1: d_1 = 1, and 1 stands for d_0 = 0."""
    graph = Graph.from_edge_index(torch.tensor([[0], [1]]), 7)
    wanted = torch.zeros(7, 7, dtype=torch.float64)
    wanted[1, 0] = -1
    assert torch.equal(dense(laplacian_edges(graph, torch.float64)), wanted)
