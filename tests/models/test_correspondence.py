"""The correspondence network."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from geoskip.graphs import Graph, record_from_buffers
from geoskip.models import CorrespondenceNet
from tests.models.small import correspondence, hierarchy
from tests.specimens import features

X = features(42, 3, dtype=torch.float32)


def test_matches_the_architecture_written_out() -> None:
    net = correspondence(operator="gcn").eval()
    graph, elu = hierarchy().levels[0], nn.functional.elu
    x = elu(net.lift(X))
    for conv in net.convs:
        x = elu(conv(x, graph))
    assert torch.equal(net(X, graph), net.output(net.head(x)))
    net.head_elu = True
    assert torch.equal(net(X, graph), net.output(elu(net.head(x))))
    expected = net(10 * X, graph)
    net.input_scale = 10.0
    assert torch.equal(net(X, graph), expected)


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
    net = correspondence(operator="monet", kernel_size=3, graph=fine).eval()
    assert torch.equal(net(X), net(X, fine))
    assert net(X[:20], coarse).shape == (20, 11)
    assert any(key.startswith("fixed_graph.") for key in net.state_dict())
    assert net.double()(X.double()).dtype == torch.float64


def test_edge_weights_of_the_graph_are_held_and_rebuilt() -> None:
    """A network that is rebuilt from its stored tensors alone has the weights that it was trained with."""
    bare = hierarchy().levels[0]
    graph = bare.with_edge_weight(0.5 + torch.rand(bare.num_edges, generator=torch.Generator().manual_seed(0)))
    net = correspondence(operator="gcn", graph=graph).eval()
    assert torch.equal(net(X), net(X, graph))
    assert not torch.allclose(net(X), net(X, bare))
    state = net.state_dict()
    rebuilt = correspondence(operator="gcn", graph=record_from_buffers(Graph, state, "fixed_graph.")).eval()
    rebuilt.load_state_dict(state)
    assert torch.equal(rebuilt(X), net(X))
    with pytest.raises(ValueError, match=r"graph: has edge weights, which FeaStConv\(4, 5\) does not use"):
        correspondence(operator="feast", kernel_size=2, graph=graph)(X)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("x", [torch.zeros(42, 2), torch.zeros(3)])
def test_features_of_the_wrong_shape(x: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"x: CorrespondenceNet expects shape \[\*batch, vertices, 3\], got"):
        correspondence(operator="gcn")(x, hierarchy().levels[0])
