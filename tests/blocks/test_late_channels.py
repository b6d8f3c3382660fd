"""Channels that only the first call tells: torch's lazy parameters, by torch's rules."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter, is_lazy
from torch.testing import assert_close

from geoskip.blocks import AffineSkip, PolynomialSkip, Skip, add_skips
from tests.blocks.pyg_recipes import EDGES, IN, OUT, VERTICES, features, network


def gin() -> nn.Module:
    return pyg_nn.GINConv(network(IN, OUT))


def lazy_gcn() -> nn.Module:
    return pyg_nn.GCNConv(-1, OUT)


MAKERS: list[Callable[[], nn.Module]] = [gin, lazy_gcn]
late = pytest.mark.parametrize("make", MAKERS)
kinds = pytest.mark.parametrize("kind", [AffineSkip, PolynomialSkip])


@late
@kinds
def test_first_call_settles(kind: Any, make: Callable[[], nn.Module]) -> None:
    """The parameters stay the same objects, so references to them stay valid."""
    block = kind(make())
    own = dict(block.named_parameters(recurse=False))
    assert own
    assert all(isinstance(parameter, UninitializedParameter) for parameter in own.values())
    assert block.skip_channels is None
    y = block(features(), EDGES)
    assert block.skip_channels == (IN, OUT)
    assert all(block.get_parameter(name) is parameter for name, parameter in own.items())
    assert not any(is_lazy(parameter) for parameter in own.values())
    assert block.weight.shape[0] == IN
    assert torch.equal(block(features(), EDGES), y), "drawn once"


def test_given_channels_need_no_call() -> None:
    assert AffineSkip(gin(), IN, OUT).weight.shape == (IN, OUT)
    half_given = AffineSkip(gin(), out_channels=OUT)
    assert is_lazy(half_given.weight)
    half_given(features(), EDGES)
    assert half_given.weight.shape == (IN, OUT)


@kinds
def test_initial_values_are_those_of_a_known_block(kind: Any) -> None:
    conv = gin()
    early, late_block = kind(conv, IN, OUT), kind(conv)
    early.reset_parameters()
    y = conv(features(), EDGES)
    zero = kind(conv, init="zeros")
    assert torch.equal(zero(features(), EDGES), y)
    torch.manual_seed(0)
    late_block(features(), EDGES)
    torch.manual_seed(0)
    early._reset_skip()
    assert_close(dict(early.named_parameters()), dict(late_block.named_parameters()))


@kinds
def test_moves_before_the_first_call(kind: Any) -> None:
    block = kind(gin()).double()
    block(features().double(), EDGES)
    assert {parameter.dtype for parameter in block.parameters()} == {torch.float64}


@kinds
def test_copied_before_the_first_call(kind: Any) -> None:
    block = kind(gin())
    twin = copy.deepcopy(block)
    block(features(), EDGES)
    assert twin.skip_channels is None
    assert is_lazy(twin.weight)
    twin(features(), EDGES)
    assert not torch.equal(twin.weight, block.weight)


@late
@kinds
def test_checkpoint_settles(kind: Any, make: Callable[[], nn.Module]) -> None:
    trained, fresh = kind(make()), kind(make())
    y = trained(features(), EDGES)
    fresh.load_state_dict(trained.state_dict())
    assert fresh.skip_channels == (IN, OUT)
    assert torch.equal(fresh(features(), EDGES), y)


@late
@kinds
def test_unsettled_checkpoint(kind: Any, make: Callable[[], nn.Module]) -> None:
    """Saved before the first call, it loads into another block before its first call, and into no other."""
    saved = kind(make()).state_dict()
    fresh: Skip = kind(make())
    fresh.load_state_dict(saved)
    assert fresh.skip_channels is None
    fresh(features(), EDGES)
    with pytest.raises(RuntimeError, match="uninitialized parameter"):
        fresh.load_state_dict(saved)


class Twice(nn.Module):
    """One convolution, called at each of two widths."""

    def __init__(self, conv: nn.Module, width: int) -> None:
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(IN, IN), nn.Linear(IN, width)])
        self.conv = conv

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for linear in self.linears:
            x = self.conv(linear(x), edge_index)
        return x


@pytest.mark.parametrize("kind", ["affine", "polynomial", "residual"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: Twice(pyg_nn.SimpleConv(), OUT),
        lambda: Twice(pyg_nn.AGNNConv(), OUT),
        lambda: pyg_nn.models.PMLP(IN, IN, OUT, 3, norm=False).eval(),
    ],
    ids=["SimpleConv", "AGNNConv", "PMLP"],
)
def test_one_block_does_not_fit_two_widths(make: Callable[[], nn.Module], kind: str) -> None:
    model: Any = make()
    plain = model(features(), EDGES)
    assert add_skips(model, kind, where=lambda name, conv: name != "conv").wrapped == ()
    assert_close(model(features(), EDGES), plain)
    add_skips(model, kind)
    says = rf"x: \w+Skip\(\w+\) was first called with {IN} channels, now with {OUT}; .* \(where=… of add_skips\)"
    with pytest.raises(ValueError, match=says):
        model(features(), EDGES)


def test_one_block_fits_several_calls_at_one_width() -> None:
    model = Twice(pyg_nn.SimpleConv(), IN)
    add_skips(model)
    assert model(features(), EDGES).shape == (VERTICES, IN)


def test_optimiser_made_after_the_first_call_trains_the_skip() -> None:
    block = AffineSkip(gin())
    block(features(), EDGES)
    optimiser = torch.optim.Adam(block.parameters(), lr=0.1)
    before = block.weight.detach().clone()
    block(features(), EDGES).square().sum().backward()
    optimiser.step()
    assert (block.weight - before).abs().min() > 0.01


def test_counting_before_the_first_call_is_refused_by_torch() -> None:
    with pytest.raises(ValueError, match="uninitialized parameter"):
        sum(parameter.numel() for parameter in AffineSkip(gin()).parameters())
