"""Agreement with PyTorch Geometric, its weights copied over; GCN, ChebNet and GIN are in test_edge_weight.py.

It has no plain MoNet: ``GMMConv(root_weight=False)`` raises AttributeError in 2.8, so its root weight is our skip.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.testing import assert_close

from geoskip.operators import FeaStConv, MoNetConv
from tests.operators.cases import IN, OUT
from tests.specimens import Specimen, features, specimen

X = features(7, IN)


@pytest.fixture(params=[False, True], ids=["awkward", "simple"])
def graph(request: pytest.FixtureRequest) -> Specimen:
    """With a self-loop and an edge listed twice, and without; two of the edges go one way only."""
    return specimen(simple=request.param)


def drawn(module: Any) -> Any:
    """Every parameter, biases too, away from 0."""
    torch.manual_seed(0)
    for parameter in module.double().parameters():
        nn.init.uniform_(parameter, 0.2, 1)
    return module


def copied(target: nn.Module, **values: Tensor) -> nn.Module:
    """Every parameter of ours, none left out."""
    assert values.keys() == dict(target.named_parameters()).keys()
    target.double().load_state_dict(values, strict=False)
    return target


def agree(ours: Tensor, theirs: Tensor) -> None:
    assert_close(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize("self_loops", [True, False])
def test_feast(graph: Specimen, self_loops: bool) -> None:
    theirs = drawn(pyg.FeaStConv(IN, OUT, heads=4, add_self_loops=self_loops))
    ours = copied(
        FeaStConv(IN, OUT, kernel_size=4, self_loops=self_loops),
        theta=theirs.lin.weight.view(4, OUT, IN).transpose(1, 2),
        attention=theirs.u.weight,
        offset=theirs.c,
        bias=theirs.bias,
    )
    agree(ours(X, graph.graph()), theirs(X, graph.edge_index))


def test_monet(graph: Specimen) -> None:
    """Ours sums; theirs takes the mean unless told to add. Their root weight is a linear skip."""
    theirs = drawn(pyg.GMMConv(IN, OUT, dim=2, kernel_size=4, separate_gaussians=False, aggr="add"))
    ours = copied(
        MoNetConv(IN, OUT, kernel_size=4, dim=2),
        theta=theirs.g.view(IN, 4, OUT).transpose(0, 1),
        mean=theirs.mu,
        scale=theirs.sigma,
        bias=theirs.bias,
    )
    agree(ours(X, graph.graph(), skip=theirs.root.weight.t()), theirs(X, graph.edge_index, graph.pseudo))
