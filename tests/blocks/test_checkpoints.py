"""Checkpoints of the plain model and of the model with skips, loaded strictly and not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor, nn

from geoskip.blocks import AffineSkip, PolynomialSkip, ResidualSkip, Skip, add_skips
from geoskip.operators import MoNetConv
from tests.blocks.pyg_recipes import EDGES, IN, OUT, WRAPPED, features
from tests.blocks.test_insertion import MODELS, run


class Confusing(nn.Module):
    """Has a weight, as a skip has, and a child called conv with the same: every key of one is a key of the other."""

    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(IN, IN))
        self.aaa = nn.Parameter(torch.randn(IN))
        if depth:
            self.conv = Confusing(depth - 1)

    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.weight + self.aaa
        return self.conv(y) if hasattr(self, "conv") else y


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("kind", ["affine", "polynomial", "residual"])
def test_plain_checkpoint_loads_into_the_model_with_skips(name: str, kind: str) -> None:
    """Strictly: the convolutions take its values, the skips keep theirs."""
    plain, model = MODELS[name](), MODELS[name]()
    run(plain)
    run(model)
    add_skips(model, kind)
    run(model)
    skips = [block for block in model.modules() if isinstance(block, Skip)]
    own = [copy.deepcopy(block._parameters) for block in skips]
    loaded = model.load_state_dict(plain.state_dict())
    assert (loaded.missing_keys, loaded.unexpected_keys) == ([], [])
    for block, before in zip(skips, own, strict=True):
        assert all(torch.equal(block.get_parameter(key), value) for key, value in before.items() if value is not None)
    bare = [value for block in skips for value in block.conv.state_dict().values()]
    assert all(any(torch.equal(value, wanted) for wanted in plain.state_dict().values()) for value in bare)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_zeros_and_a_plain_checkpoint_give_the_plain_model(name: str) -> None:
    plain, model = MODELS[name](), MODELS[name]()
    run(plain)
    run(model)
    add_skips(model, init="zeros")
    model.load_state_dict(plain.state_dict())
    assert torch.equal(run(model), run(plain))


@pytest.mark.parametrize("name", sorted(WRAPPED))
def test_every_pyg_convolution(name: str) -> None:
    """As the whole model, where keys have no prefix, and inside one: bare and block checkpoints."""
    recipe = WRAPPED[name]
    conv = recipe.make()
    for wrap in (lambda module: module, lambda module: nn.ModuleDict({"layer": module})):
        block, other = AffineSkip(recipe.make()), AffineSkip(recipe.make())
        wrap(block).load_state_dict(wrap(conv).state_dict())
        assert same(block.conv.state_dict(), conv.state_dict())
        block(features(recipe.channels), *recipe.args)
        wrap(other).load_state_dict(wrap(block).state_dict())
        assert same(other.state_dict(), block.state_dict())


@pytest.mark.parametrize("kind", [AffineSkip, PolynomialSkip, ResidualSkip])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_keys_that_look_alike(kind: Callable[..., Skip], depth: int) -> None:
    torch.manual_seed(depth)
    plain, block, other = Confusing(depth), kind(Confusing(depth), IN, IN), kind(Confusing(depth), IN, IN)
    block.load_state_dict(plain.state_dict())
    assert same(block.conv.state_dict(), plain.state_dict())
    other.load_state_dict(block.state_dict())
    assert same(other.state_dict(), block.state_dict())


def model_with_skips() -> nn.Module:
    model = nn.ModuleDict(
        {"a": pyg_nn.GCNConv(IN, OUT), "b": MoNetConv(OUT, OUT, kernel_size=3), "c": nn.Linear(OUT, 2)}
    )
    add_skips(model)
    return model


@pytest.mark.parametrize("key", sorted(model_with_skips().state_dict()))
def test_missing_keys_of_a_skip_checkpoint_are_missed(key: str) -> None:
    state = model_with_skips().state_dict()
    del state[key]
    with pytest.raises(RuntimeError, match=rf'Missing key\(s\) in state_dict: "{key}"'):
        model_with_skips().load_state_dict(state)
    assert model_with_skips().load_state_dict(state, strict=False).missing_keys == [key]


@pytest.mark.parametrize("key", ["a.bias", "a.lin.weight", "b.mean", "b.theta", "c.weight"])
def test_missing_keys_of_a_plain_checkpoint_are_missed(key: str) -> None:
    plain = nn.ModuleDict(
        {"a": pyg_nn.GCNConv(IN, OUT), "b": MoNetConv(OUT, OUT, kernel_size=3), "c": nn.Linear(OUT, 2)}
    )
    state = plain.state_dict()
    del state[key]
    where = key if key.startswith("c") else key.replace(".", ".conv.", 1)
    with pytest.raises(RuntimeError, match=rf'Missing key\(s\) in state_dict: "{where}"'):
        model_with_skips().load_state_dict(state)


def test_unexpected_keys_are_named() -> None:
    state: dict[str, Any] = nn.ModuleDict({"a": pyg_nn.GCNConv(IN, OUT)}).state_dict()
    state["a.stray"] = torch.zeros(1)
    model = nn.ModuleDict({"a": AffineSkip(pyg_nn.GCNConv(IN, OUT))})
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "a.conv.stray"'):
        model.load_state_dict(state)


def test_sizes_must_match() -> None:
    state = AffineSkip(pyg_nn.GCNConv(IN, OUT)).state_dict()
    with pytest.raises(RuntimeError, match=r"size mismatch for weight"):
        AffineSkip(pyg_nn.GCNConv(IN, OUT + 1)).load_state_dict(state)


def test_the_callers_dictionary_is_left_alone() -> None:
    state = pyg_nn.GCNConv(IN, OUT).state_dict()
    keys = list(state)
    AffineSkip(pyg_nn.GCNConv(IN, OUT)).load_state_dict(state)
    assert list(state) == keys


def test_assigned_checkpoints() -> None:
    """load_state_dict(assign=True), as for models made on the meta device."""
    conv, block = pyg_nn.GCNConv(IN, OUT), AffineSkip(pyg_nn.GCNConv(IN, OUT))
    block.load_state_dict(conv.state_dict(), assign=True)
    assert torch.equal(block.conv(features(), EDGES), conv(features(), EDGES))
    other = AffineSkip(pyg_nn.GCNConv(IN, OUT).to("meta"))
    other.load_state_dict(block.state_dict(), assign=True)
    assert torch.equal(other(features(), EDGES), block(features(), EDGES))
