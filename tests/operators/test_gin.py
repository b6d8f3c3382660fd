"""GIN on the kernels that sum the center with the neighbors: ε, self-loops and edge weights."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import cast

import pytest
import torch
from torch import Tensor

from geoskip.blocks import make_block
from geoskip.graphs import Graph
from geoskip.kernels import use_path
from geoskip.operators import GINConv
from tests.specimens import features

pytestmark = pytest.mark.compiled

EDGES = torch.tensor([[0, 1, 1, 2, 4, 4], [1, 1, 0, 3, 4, 4]])
WEIGHTS = torch.tensor([0.5, 2.0, -1.0, 3.0, 0.25, 1.5])
make = partial(GINConv, 3, 4, hidden_channels=5)


def graph(weighted: bool) -> Graph:
    """With self-loops, one of them twice, and a vertex without neighbors."""
    return Graph.from_edge_index(EDGES, 6, edge_weight=WEIGHTS if weighted else None)


def literal(conv: GINConv, x: Tensor, weighted: bool) -> Tensor:
    """In float64, with the edges as a matrix and ε as it is now."""
    senders, receivers = EDGES
    matrix = torch.zeros(6, 6, dtype=torch.float64)
    matrix.index_put_((receivers, senders), WEIGHTS.double() if weighted else matrix.new_ones(6), accumulate=True)
    conv, x = deepcopy(conv).double(), x.double()
    total = (1 + conv.epsilon) * x + matrix @ x
    return (total @ conv.theta + conv.hidden_bias).relu() @ conv.theta_out + cast(Tensor, conv.bias)


def in_place(conv: GINConv) -> GINConv:
    conv.epsilon.fill_(0.75)
    return conv


def loaded(conv: GINConv) -> GINConv:
    conv.load_state_dict(make(epsilon=-0.5).state_dict())
    return conv


def replaced(conv: GINConv) -> GINConv:
    conv.epsilon = torch.tensor(1.25)
    return conv


def through_data(conv: GINConv) -> GINConv:
    conv.epsilon.data.fill_(2.0)
    return conv


@pytest.mark.parametrize("batch", [(), (13,)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("change", [in_place, loaded, replaced, through_data])
def test_epsilon_that_has_changed(change: Callable[[GINConv], GINConv], weighted: bool, batch: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    conv, x, edges = make(), features(*batch, 6, 3, dtype=torch.float32), graph(weighted)
    with use_path("interpreter"), torch.no_grad():
        before = conv(x, edges)
        torch.testing.assert_close(before.double(), literal(conv, x, weighted), rtol=1e-5, atol=1e-5)
        change(conv)
        after = conv(x, edges)
        torch.testing.assert_close(after.double(), literal(conv, x, weighted), rtol=1e-5, atol=1e-5)
    assert (after - before).abs().max() > 0.1


@pytest.mark.parametrize("batch", [(), (13,)])
@pytest.mark.parametrize("skip", ["none", "affine"])
@pytest.mark.parametrize("train", [False, True])
def test_gradients_are_those_of_the_formula(train: bool, skip: str, batch: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    block = make_block(make(epsilon=0.5, train_epsilon=train), skip)
    x, edges, found = features(*batch, 6, 3, dtype=torch.float32).requires_grad_(), graph(True), []
    for path in ("interpreter", "reference"):
        with use_path(path):
            y = block(x, edges)
            found.append([y, *torch.autograd.grad(y.sin().sum(), [x, *block.parameters()])])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_one_node_of_autograd() -> None:
    """Small graphs wait for the host, where a node takes longer than some kernels."""
    block, x = make_block(make(), "affine"), features(6, 3, dtype=torch.float32)
    with use_path("interpreter"):
        node = block(x, graph(False)).grad_fn
    assert node is not None
    assert all(type(following).__name__ == "AccumulateGrad" for following, _ in node.next_functions if following)
