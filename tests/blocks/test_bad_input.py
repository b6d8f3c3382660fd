"""What a block refuses, and what it says.

The arguments of every public function are in tests/test_wrong_input.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import JumpingKnowledge

from geoskip.blocks import AffineSkip, PolynomialSkip, ResidualSkip, Skip
from geoskip.operators import GCNConv
from tests.specimens import features

KINDS = [AffineSkip, ResidualSkip, PolynomialSkip]
kinds = pytest.mark.parametrize("kind", KINDS)


class Returns(nn.Module):
    """Returns a fixed value."""

    def __init__(self, out: Any) -> None:
        super().__init__()
        self.out = out

    def forward(self, x: Any) -> Any:
        return self.out


class OtherSize(nn.Linear):
    """Declares other channels than it has."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(3, 2)
        self.in_channels, self.out_channels = in_channels, out_channels


@pytest.fixture
def x() -> Tensor:
    return features(7, 3, dtype=torch.float32)


@kinds
def test_a_list_of_layers_is_no_pair(kind: type[Skip]) -> None:
    """JumpingKnowledge takes a list of features; one of two layers would pass for (x_src, x_dst)."""
    with pytest.raises(TypeError, match=r"does not fit around JumpingKnowledge: its input is a list"):
        kind(JumpingKnowledge("cat"))


def test_channels_that_an_operator_denies() -> None:
    with pytest.raises(ValueError, match=r"was given 4, None, but the operator maps 3 to 2; leave them out"):
        AffineSkip(GCNConv(3, 2), in_channels=4)


@kinds
def test_wrong_input_channels(kind: type[Skip], x: Tensor) -> None:
    """A module that names other channels than it takes; the remedy that is named works."""
    with pytest.raises(ValueError, match=rf"x: {kind.__name__}\(OtherSize\) maps 5 channels, got 3;.*in_channels=3"):
        kind(OtherSize(5, 2))(x)
    assert kind(OtherSize(5, 2), in_channels=3)(x).shape == (7, 2)
    with pytest.raises(ValueError, match=r"maps 5 channels, got 3"):
        kind(OtherSize(5, 2)).affine(x)


@kinds
def test_wrong_output_channels(kind: type[Skip], x: Tensor) -> None:
    with pytest.raises(
        ValueError, match=rf"{kind.__name__}\(OtherSize\) maps to 5 channels.*gave 2; say .*out_channels=2"
    ):
        kind(OtherSize(3, 5))(x)
    assert kind(OtherSize(3, 5), out_channels=2)(x).shape == (7, 2)


@kinds
@pytest.mark.parametrize("shape", [(4, 2), (1, 2), (2,), (1, 7, 2), ()])
def test_other_vertices(kind: type[Skip], x: Tensor, shape: tuple[int, ...]) -> None:
    """A layer that pools; that broadcasting would accept some of these makes them no better."""
    with pytest.raises(ValueError, match=r"turned \[7, 3\] into \[.*\]; a layer that pools or flattens"):
        kind(Returns(torch.zeros(shape)))(x)


@kinds
@pytest.mark.parametrize("out", [{"v": torch.zeros(7, 2)}, None, (None, torch.zeros(7, 2)), (), [torch.zeros(7, 2)]])
def test_output_without_features(kind: type[Skip], x: Tensor, out: Any) -> None:
    with pytest.raises(
        TypeError, match=r"needs a convolution that returns a tensor.* returned a (dict|None|tuple|list)"
    ):
        kind(Returns(out))(x)


@kinds
@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (None, ValueError, r"was given None, no features of the receiving vertices"),
        ((torch.zeros(7, 3), None), ValueError, r"was given \(x_src, None\)"),
        ({"v": torch.zeros(7, 3)}, TypeError, "got a dict; wrap the convolution of each type"),
        ((torch.zeros(7, 3),) * 3, TypeError, "got a tuple"),
        (torch.zeros(7, 3, dtype=torch.long), TypeError, "acts on floating-point features, got torch.int64"),
    ],
)
def test_input_without_features(kind: type[Skip], given: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=rf"x: {kind.__name__}\(Returns\) .*{says}"):
        kind(Returns(torch.zeros(7, 2)))(given)


@kinds
def test_affine_part_before_the_channels_are_known(kind: type[Skip], x: Tensor) -> None:
    block = kind(nn.Linear(3, 2))
    with pytest.raises(ValueError, match=rf"{kind.__name__}\(Linear\): its channels are not known yet; call the block"):
        block.affine(x)
    block(x)
    assert block.affine(x).shape == (7, 2)
