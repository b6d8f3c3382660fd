"""Gradients against finite differences, in float64 on a graph of four vertices."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

from geoskip.graphs import Graph, attach
from geoskip.kernels import use_path
from geoskip.operators import GINConv, Operator
from tests.operators.cases import CASES, IN, OUT, Case
from tests.specimens import features

# Thousands of calls of shapes that the other tests check.
pytestmark = pytest.mark.usefixtures("unchecked")

# Two triangles' worth of edges, one of them twice, a self-loop, an isolated vertex.
EDGES = torch.tensor([[0, 1, 2, 1, 1, 2], [1, 0, 1, 2, 2, 2]])
SPIRALS = torch.tensor(
    [[0, 1, 2, -1, -1, -1, -1, -1], [1, 0, 2, 3, 0, 1, 2, 3], [2, 1, 0, 3, 3, 2, 1, 0], [3] + 7 * [-1]]
)


def interior(*shape: int) -> Tensor:
    """Pseudo-coordinates off the knots of every spline tried here, where degree 1 has kinks."""
    values = 0.05 + 0.9 * torch.rand(*shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    for spans in (1, 2, 3, 4, 5):
        assert ((values * spans) - (values * spans).round()).abs().min() > 1e-4
    return values


def check(case: Case, conv: Operator, batch: tuple[int, ...] = (), fast_mode: bool = False) -> bool:
    """gradcheck over x, the skip matrix, every parameter, and the pseudo-coordinates where they enter."""
    names = [name for name, _ in conv.named_parameters()]
    values = [value.detach().clone() for _, value in conv.named_parameters()]
    leaves = [features(*batch, 4, IN), features(IN, OUT, seed=2), interior(EDGES.shape[1], case.dim), *values]

    def function(x: Tensor, skip: Tensor, pseudo: Tensor, *parameters: Tensor) -> Tensor:
        graph = Graph.from_edge_index(EDGES, 4, pseudo, SPIRALS)
        return functional_call(conv, dict(zip(names, parameters, strict=True)), (x, graph), {"skip": skip})

    for k, leaf in enumerate(leaves):
        leaf.requires_grad_(k != 2 or case.sees_pseudo)
    return gradcheck(function, tuple(leaves), fast_mode=fast_mode)


def test_gradcheck(case: Case) -> None:
    assert check(case, case.make())


def test_gradcheck_of_a_batch(case: Case) -> None:
    assert check(case, case.make(), batch=(2,), fast_mode=True)


def test_second_derivatives_of_the_reference(case: Case) -> None:
    """A Hessian, a gradient penalty: the reference can be differentiated again."""
    conv, graph = case.make(), Graph.from_edge_index(EDGES, 4, interior(EDGES.shape[1], case.dim), SPIRALS)
    x = features(4, IN).requires_grad_()
    with use_path("reference"):
        if case.operator is GINConv:
            # Piecewise linear: the second derivative is 0 wherever there is one.
            (first,) = torch.autograd.grad(conv(x, graph).sum(), x, create_graph=True)
            assert not torch.autograd.grad(first.sum(), x, allow_unused=True, materialize_grads=True)[0].any()
        else:
            assert gradgradcheck(lambda x: conv(x, graph).sigmoid(), (x,))


@pytest.mark.parametrize("case", [case for case in CASES if case.sees_pseudo], ids=lambda case: case.name)
def test_pseudo_gradients_flow_through_one_graph_twice(case: Case) -> None:
    """Nothing that depends on pseudo-coordinates under training is remembered."""
    conv, pseudo = case.make(), interior(EDGES.shape[1], case.dim).requires_grad_()
    graph = attach(Graph.from_edge_index(EDGES, 4), pseudo)

    def gradient() -> Tensor:
        return torch.autograd.grad(conv(features(4, IN), graph).sum(), pseudo, materialize_grads=True)[0]

    assert torch.equal(gradient(), gradient())
