"""The correspondence network."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from geoskip.graphs import Graph, record_from_buffers
from geoskip.models import CorrespondenceNet
from tests.models.small import OPERATORS, SKIPS, hierarchy, name
from tests.specimens import features

X = features(42, 3, dtype=torch.float32)


def network(seed: int = 0, **chosen: Any) -> CorrespondenceNet:
    torch.manual_seed(seed)
    return CorrespondenceNet(11, lift=4, channels=(5, 6), head=7, **chosen)


@pytest.mark.parametrize("skip", SKIPS)
@pytest.mark.parametrize("chosen", OPERATORS, ids=name)
def test_every_operator_with_every_skip_trains(chosen: dict[str, Any], skip: str) -> None:
    net = network(skip=skip, **chosen)
    scores = net(X, hierarchy().levels[0])
    assert scores.shape == (42, 11)
    nn.functional.cross_entropy(scores, torch.arange(42) % 11).backward()
    for path, parameter in net.named_parameters():
        assert parameter.grad is not None, path
        assert torch.isfinite(parameter.grad).all(), path


def test_matches_the_architecture_written_out() -> None:
    net = network(operator="gcn").eval()
    graph, elu = hierarchy().levels[0], nn.functional.elu
    x = elu(net.lift(X))
    for conv in net.convs:
        x = elu(conv(x, graph))
    assert torch.equal(net(X, graph), net.output(net.head(x)))
    net.head_elu = True
    assert torch.equal(net(X, graph), net.output(elu(net.head(x))))


def test_drops_half_of_the_head_while_training() -> None:
    net = CorrespondenceNet(3, operator="gcn", head=400)
    seen: list[torch.Tensor] = []
    net.output.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    torch.manual_seed(0)
    net(X, hierarchy().levels[0])
    net.eval()(X, hierarchy().levels[0])
    assert (seen[0] == 0).double().mean().item() == pytest.approx(0.5, abs=0.02)
    assert (seen[1] == 0).double().mean().item() == 0


def test_graph_may_be_held_or_given() -> None:
    fine, coarse = hierarchy().levels[:2]
    net = network(operator="monet", kernel_size=3, graph=fine).eval()
    assert torch.equal(net(X), net(X, fine))
    assert net(X[:20], coarse).shape == (20, 11)
    assert any(key.startswith("fixed_graph.") for key in net.state_dict())
    assert net.double()(X.double()).dtype == torch.float64


def test_edge_weights_of_the_graph_are_held_and_rebuilt() -> None:
    """A network that is rebuilt from its stored tensors alone has the weights that it was trained with."""
    bare = hierarchy().levels[0]
    graph = bare.with_edge_weight(0.5 + torch.rand(bare.num_edges, generator=torch.Generator().manual_seed(0)))
    net = network(operator="gcn", graph=graph).eval()
    assert torch.equal(net(X), net(X, graph))
    assert not torch.allclose(net(X), net(X, bare))
    state = net.state_dict()
    rebuilt = network(operator="gcn", graph=record_from_buffers(Graph, state, "fixed_graph.")).eval()
    rebuilt.load_state_dict(state)
    assert torch.equal(rebuilt(X), net(X))
    with pytest.raises(ValueError, match=r"graph: has edge weights, which FeaStConv\(4, 5\) does not use"):
        network(operator="feast", kernel_size=2, graph=graph)(X)


def test_copy_computes_the_same() -> None:
    net = network(operator="feast", kernel_size=2, graph=hierarchy().levels[0]).eval()
    assert torch.equal(copy.deepcopy(net)(X), net(X))


def test_batch_equals_one_by_one() -> None:
    net = network(operator="feast", kernel_size=3, skip="affine").double().eval()
    x, graph = features(2, 42, 3), hierarchy().levels[0].to(torch.float64)
    assert_close(net(x, graph), torch.stack([net(item, graph) for item in x]), atol=1e-12, rtol=1e-12)


def test_without_a_graph() -> None:
    with pytest.raises(ValueError, match="graph: the network has none"):
        network(operator="gcn")(X)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("x", [torch.zeros(42, 2), torch.zeros(3)])
def test_features_of_the_wrong_shape(x: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"x: CorrespondenceNet expects shape \[\*batch, vertices, 3\], got"):
        network(operator="gcn")(x, hierarchy().levels[0])


def test_without_convolutions() -> None:
    with pytest.raises(ValueError, match="channels: give at least one"):
        CorrespondenceNet(3, operator="gcn", channels=())
