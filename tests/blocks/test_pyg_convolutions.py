"""AffineSkip around every convolution of PyTorch Geometric, or the reason why not."""

from __future__ import annotations

import re

import pytest
import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor, nn
from torch.testing import assert_close

from geoskip.blocks import AffineSkip, PolynomialSkip, ResidualSkip, Skip
from tests.blocks.pyg_recipes import EDGES, IN, OUT, REFUSED, VERTICES, WRAPPED, features

wrapped = pytest.mark.parametrize("name", sorted(WRAPPED))


def output(out: Tensor | tuple[Tensor, ...]) -> Tensor:
    return out[0] if isinstance(out, tuple) else out


def seeded(conv: nn.Module, *args: object) -> Tensor:
    """The same draws of dropout and of negative samples at each call."""
    torch.manual_seed(0)
    return output(conv(*args))


def test_every_convolution_is_wrapped_or_refused() -> None:
    assert sorted([*WRAPPED, *REFUSED]) == sorted(pyg_nn.conv.__all__)
    assert len(WRAPPED) >= 30


@wrapped
def test_adds_an_affine_map(name: str) -> None:
    """Forward: conv(x) + x A + b. Backward: A's gradient is xᵀ g, and the convolution's is what it was."""
    recipe = WRAPPED[name]
    conv = recipe.make()
    x, alone = features(recipe.channels).requires_grad_(), features(recipe.channels).requires_grad_()
    plain = seeded(conv, alone, *recipe.args)
    plain.square().sum().backward()
    bare = {key: p.grad.clone() for key, p in conv.named_parameters() if p.grad is not None}
    assert alone.grad is not None
    conv.zero_grad()

    block = AffineSkip(conv)
    declared = block.skip_channels
    y = seeded(block, x, *recipe.args)
    assert declared in (None, (recipe.channels, plain.shape[1])), "read from the module, and right"
    assert block.skip_channels == (recipe.channels, plain.shape[1])
    assert_close(y, plain + x @ block.weight)

    y.backward(2 * plain.detach())
    assert x.grad is not None
    assert_close(block.weight.grad, x.detach().t() @ (2 * plain.detach()))
    assert_close(x.grad, alone.grad + 2 * plain.detach() @ block.weight.detach().t(), rtol=1e-4, atol=1e-4)
    assert_close({key: p.grad for key, p in conv.named_parameters() if p.grad is not None}, bare)


@wrapped
def test_one_bias(name: str) -> None:
    """Whatever the weights of the convolution are, b moves the whole output; only the skip has it or only conv."""
    recipe = WRAPPED[name]
    block = AffineSkip(recipe.make())
    before = seeded(block, features(recipe.channels), *recipe.args).detach()
    own = dict(block.named_parameters(recurse=False))
    owner = own.get("bias", getattr(block.conv, "bias", None))
    assert ("bias" in own) != block.conv_has_bias
    assert isinstance(owner, nn.Parameter)
    with torch.no_grad():
        owner.add_(1)
    after = seeded(block, features(recipe.channels), *recipe.args)
    assert_close(after, before + 1, rtol=1e-4, atol=1e-4)


@wrapped
@pytest.mark.parametrize("kind", [AffineSkip, PolynomialSkip])
def test_zeros_change_nothing(name: str, kind: type[AffineSkip]) -> None:
    recipe = WRAPPED[name]
    conv = recipe.make()
    plain = seeded(conv, features(recipe.channels), *recipe.args)
    assert torch.equal(seeded(kind(conv, init="zeros"), features(recipe.channels), *recipe.args), plain)


@wrapped
def test_residual(name: str) -> None:
    recipe = WRAPPED[name]
    conv, x = recipe.make(), features(recipe.channels)
    plain = seeded(conv, x, *recipe.args)
    y = seeded(ResidualSkip(conv), x, *recipe.args)
    assert_close(y, plain + x @ torch.eye(recipe.channels, plain.shape[1]))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused_with_the_reason(name: str) -> None:
    refusal = REFUSED[name]
    with pytest.raises(refusal.error, match=re.escape(refusal.says)):
        AffineSkip(refusal.make())(features(), *refusal.args)


@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [pyg_nn.GATConv, pyg_nn.GATv2Conv, pyg_nn.TransformerConv, pyg_nn.SuperGATConv])
def test_heads(kind: type[nn.Module], bias: bool, concat: bool) -> None:
    block = AffineSkip(kind(IN, OUT, heads=3, concat=concat, bias=bias))
    width = 3 * OUT if concat else OUT
    assert block.skip_channels == (IN, width)
    assert block(features(), EDGES).shape == (VERTICES, width)


@pytest.mark.parametrize("bias", [True, False])
def test_powers(bias: bool) -> None:
    block = AffineSkip(pyg_nn.MixHopConv(IN, OUT, powers=[0, 1, 2, 3], bias=bias))
    assert block(features(), EDGES).shape == (VERTICES, 4 * OUT)
    assert block.skip_channels == (IN, 4 * OUT)


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "TransformerConv"])
def test_attention_weights_pass_through(name: str) -> None:
    conv = getattr(pyg_nn, name)(IN, OUT, heads=2)
    x = features()
    y, (edge_index, alpha) = conv(x, EDGES, return_attention_weights=True)
    block = AffineSkip(conv)
    found, (found_edges, found_alpha) = block(x, EDGES, return_attention_weights=True)
    assert_close(found, y + block.affine(x) - (block.bias if block.conv_has_bias else 0))
    assert torch.equal(found_edges, edge_index)
    assert torch.equal(found_alpha, alpha)
    without, (_, found_alpha) = block.convolution(x, EDGES, return_attention_weights=True)
    assert_close(without, found - block.affine(x))
    assert torch.equal(found_alpha, alpha)


@pytest.mark.parametrize("name", ["SAGEConv", "GATConv", "GraphConv", "GMMConv"])
@pytest.mark.parametrize("lazy", [True, False])
def test_bipartite(name: str, lazy: bool) -> None:
    """Seven vertices with 5 channels send to three with 4: the skip acts on the three."""
    extra, args = ((2, 3), (torch.rand(7, 2),)) if name == "GMMConv" else ((), ())
    conv = getattr(pyg_nn, name)((-1, -1) if lazy else (5, 4), OUT, *extra)
    senders, receivers = features(5, rows=7), features(4, rows=3)
    edges = torch.stack([torch.arange(7), torch.arange(7) % 3])
    block = AffineSkip(conv)
    y = block((senders, receivers), edges, *args)
    assert block.skip_channels == (4, OUT)
    assert_close(y, conv((senders, receivers), edges, *args) + receivers @ block.weight)
    with pytest.raises(ValueError, match=r"x: AffineSkip\(\w+\) was given \(x_src, None\).*leave this convolution"):
        block((senders, None), edges, *args)


def test_keywords_pass_through() -> None:
    conv = pyg_nn.GCNConv(IN, OUT)
    block, x, weights = AffineSkip(conv), features(), torch.rand(EDGES.shape[1])
    y = block(edge_index=EDGES, x=x, edge_weight=weights)
    assert_close(y, conv(x, EDGES, weights) + x @ block.weight)
    assert not torch.allclose(y, block(x, EDGES))


@pytest.mark.parametrize("kind", [AffineSkip, PolynomialSkip, ResidualSkip])
@pytest.mark.parametrize("outputs", [IN - 1, IN + 1])
def test_sparse_features(kind: type[Skip], outputs: int) -> None:
    """PyTorch Geometric's convolutions take them, for bags of words."""
    block, x = kind(pyg_nn.GCNConv(IN, outputs)), features().relu()
    assert_close(block(x.to_sparse(), EDGES), block(x, EDGES))


def test_the_root_weight_of_gmm_conv_is_an_affine_skip() -> None:
    """Its docstring adds W x_i by default: that is A, and what is left is the operator of the paper."""
    conv = pyg_nn.GMMConv(IN, OUT, 2, 3)
    x, pseudo = features(), torch.rand(EDGES.shape[1], 2)
    y = conv(x, EDGES, pseudo)
    root = conv.root.weight.detach().t().clone()
    with torch.no_grad():
        conv.root.weight.zero_()
        block = AffineSkip(conv)
        block.weight.copy_(root)
    assert_close(block(x, EDGES, pseudo), y)
