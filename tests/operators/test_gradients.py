"""Gradients against finite differences, in float64 on a graph of four vertices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.func import functional_call

from geoskip.graphs import Graph, attach
from tests.operators.cases import CASES, FIRST, IN, OUT, WEIGHTED, Case
from tests.specimens import features

# Thousands of calls of shapes that the other tests check.
pytestmark = pytest.mark.usefixtures("unchecked")

# Two triangles' worth of edges, one of them twice, a self-loop, an isolated vertex.
EDGES = torch.tensor([[0, 1, 2, 1, 1, 2], [1, 0, 1, 2, 2, 2]])
SPIRALS = torch.tensor(
    [[0, 1, 2, -1, -1, -1, -1, -1], [1, 0, 2, 3, 0, 1, 2, 3], [2, 1, 0, 3, 3, 2, 1, 0], [3] + 7 * [-1]]
)


def interior(*shape: int) -> Tensor:
    """Values of edges off the knots of every spline tried here, where degree 1 has kinks."""
    values = 0.05 + 0.9 * torch.rand(*shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    for spans in (1, 2, 3, 4, 5):
        assert ((values * spans) - (values * spans).round()).abs().min() > 1e-4
    return values


def leaves_and_function(case: Case, batch: tuple[int, ...] = ()) -> tuple[list[Tensor], Callable[..., Tensor]]:
    """x, the skip matrix, values of edges if they matter, and every parameter; the convolution as their function."""
    conv, num_edges = case.make(), EDGES.shape[1]
    of_edges = {"pseudo": interior(num_edges, case.dim)} if case.sees_pseudo else {}
    of_edges |= {"edge_weight": interior(num_edges)} if case.weighted else {}
    parameters = {name: value.detach().clone() for name, value in conv.named_parameters()}
    leaves = [features(*batch, 4, IN), features(IN, OUT, seed=2), *of_edges.values(), *parameters.values()]

    def function(x: Tensor, skip: Tensor, *others: Tensor) -> Tensor:
        rest = iter(others)
        on_edges = {name: next(rest) for name in of_edges}
        graph = Graph.from_edge_index(EDGES.to(x.device), 4, spirals=SPIRALS.to(x.device), **on_edges)
        return functional_call(conv, dict(zip(parameters, rest, strict=True)), (x, graph), {"skip": skip})

    return [leaf.requires_grad_() for leaf in leaves], function


@pytest.mark.parametrize("case", FIRST + WEIGHTED, ids=lambda case: case.name)
def test_gradcheck(case: Case) -> None:
    """Every entry of the Jacobian."""
    leaves, function = leaves_and_function(case)
    assert gradcheck(function, leaves)


def test_gradcheck_of_a_batch(case: Case) -> None:
    """Along random directions."""
    leaves, function = leaves_and_function(case, batch=(2,))
    assert gradcheck(function, leaves, fast_mode=True)


@pytest.mark.parametrize("case", [case for case in CASES if case.sees_pseudo], ids=lambda case: case.name)
def test_pseudo_gradients_flow_through_one_graph_twice(case: Case) -> None:
    """Nothing that depends on pseudo-coordinates under training is remembered."""
    conv, pseudo = case.make(), interior(EDGES.shape[1], case.dim).requires_grad_()
    graph = attach(Graph.from_edge_index(EDGES, 4), pseudo)

    def gradient() -> Tensor:
        return torch.autograd.grad(conv(features(4, IN), graph).sum(), pseudo, materialize_grads=True)[0]

    assert torch.equal(gradient(), gradient())
