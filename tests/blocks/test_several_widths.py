"""A convolution without channels of its own may be used at several widths, where no single skip fits."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor, nn
from torch.testing import assert_close

from geoskip.blocks import AffineSkip, Skip, add_skips
from geoskip.blocks.insertion import count_calls
from tests.blocks.pyg_recipes import EDGES, IN, OUT, features, network

HIDDEN = 8
REFUSED = (
    r"model: {} takes any number of channels and {}, so one skip may not fit them all. Use one convolution per call"
)


class Alternating(nn.Module):
    """Linear layers of several widths, and one propagation after each of them."""

    seen: Tensor

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(IN, HIDDEN), nn.Linear(HIDDEN, OUT)])
        self.conv = conv
        self.register_buffer("seen", torch.zeros(()))
        self.last: Any = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.seen += 1
        for linear in self.linears:
            x = self.conv(linear(x), edge_index)
        self.last = x
        return x + 0 * torch.rand(())


class Plain(nn.Module):
    """A layer without matrices: a propagation and an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg_nn.LGConv()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index).relu()


class Mixing(Plain):
    """A layer with a matrix, whose width is fixed."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(IN, IN)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(self.linear(x), edge_index)


class Repeated(nn.Module):
    """The same layer again and again."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for _ in range(3):
            x = self.layer(x, edge_index)
        return x


class Untraceable(Alternating):
    """Its path depends on values, which no trace can follow."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index) if x.sum() < torch.inf else x


def shared() -> nn.Module:
    model = nn.ModuleDict({"first": pyg_nn.SimpleConv(), "head": nn.Linear(IN, OUT)})
    model["second"] = model["first"]
    return model


CALLED = "a forward pass calls it several times"
AMBIGUOUS: dict[str, tuple[Callable[[], nn.Module], str, str]] = {
    "PMLP": (lambda: pyg_nn.models.PMLP(IN, HIDDEN, OUT, 3), r"'conv' \(SimpleConv\)", CALLED),
    "PMLP inside": (lambda: Repeated(pyg_nn.models.PMLP(IN, HIDDEN, IN, 2)), r"'layer.conv' \(SimpleConv\)", CALLED),
    "SimpleConv": (lambda: Alternating(pyg_nn.SimpleConv()), r"'conv' \(SimpleConv\)", CALLED),
    "LGConv": (lambda: Alternating(pyg_nn.LGConv()), r"'conv' \(LGConv\)", CALLED),
    "APPNP": (lambda: Alternating(pyg_nn.APPNP(2, 0.1)), r"'conv' \(APPNP\)", CALLED),
    "AGNNConv": (lambda: Alternating(pyg_nn.AGNNConv()), r"'conv' \(AGNNConv\)", CALLED),
    "a parent of any width": (lambda: Alternating(Plain()), r"'conv.conv' \(LGConv\)", CALLED),
    "in two places": (shared, r"'first' and 'second' \(SimpleConv\)", "the model has it in several places"),
}


@pytest.mark.parametrize("name", sorted(AMBIGUOUS))
@pytest.mark.parametrize("kind", ["affine", "polynomial", "residual"])
@pytest.mark.parametrize("training", [True, False])
def test_refused(name: str, kind: str, training: bool) -> None:
    """Before anything is changed: modules, modes, buffers, attributes and the random state are as they were."""
    make, convolution, used = AMBIGUOUS[name]
    model = make().train(training)
    before = [type(module) for module in model.modules()]
    state, drawn = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    with pytest.raises(ValueError, match=REFUSED.format(convolution, used)):
        add_skips(model, kind)
    assert [type(module) for module in model.modules()] == before
    assert all(module.training is training for module in model.modules())
    assert_close(model.state_dict(), state)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert not any(isinstance(value, torch.fx.Proxy) for module in model.modules() for value in vars(module).values())


def test_what_the_message_advises_works() -> None:
    model: Any = pyg_nn.models.PMLP(IN, HIDDEN, OUT, 2).eval()
    plain = model(features(), EDGES)
    assert add_skips(model, where=lambda name, module: name != "conv").wrapped == ()
    assert_close(model(features(), EDGES), plain)
    same: Any = pyg_nn.models.PMLP(IN, IN, IN, 2).eval()
    same.conv = AffineSkip(same.conv, IN, IN)
    assert same(features(), EDGES).shape == features().shape


@pytest.mark.parametrize(
    "make",
    [
        lambda: Repeated(Mixing()),
        lambda: Repeated(pyg_nn.GCNConv(IN, IN)),
        lambda: Repeated(pyg_nn.GINConv(network(IN, IN))),
        Plain,
        lambda: pyg_nn.models.LightGCN(5, IN, 3),
    ],
    ids=["matrix", "channels", "network", "once", "one convolution per call"],
)
def test_one_width_is_fine(make: Callable[[], nn.Module]) -> None:
    model = make()
    assert add_skips(model).wrapped
    if not isinstance(model, pyg_nn.models.LightGCN):
        assert model(features(), EDGES).shape == features().shape


@pytest.mark.parametrize("kind", ["affine", "polynomial", "residual"])
def test_where_no_trace_can_tell_the_first_call_does(kind: str) -> None:
    model: Any = Untraceable(pyg_nn.SimpleConv())
    assert len(add_skips(model, kind).wrapped) == 1
    with pytest.raises(
        ValueError, match=rf"x: \w+Skip\(SimpleConv\) met {HIDDEN} channels at its first call and {OUT} now"
    ):
        model(features(), EDGES)
    assert isinstance(model.conv, Skip)


def test_counts() -> None:
    calls = count_calls(Repeated(Mixing()))
    assert calls == {"": 1, "layer": 3, "layer.conv": 3, "layer.linear": 3}
    assert count_calls(Untraceable(pyg_nn.SimpleConv())) == {"": 1}
