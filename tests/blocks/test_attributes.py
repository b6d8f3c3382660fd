"""A block's attributes are its own where it has them, else the convolution's: to read, to set, to delete."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg_nn
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.testing import assert_close

from geoskip.blocks import AffineSkip, PolynomialSkip, ResidualSkip, Skip
from geoskip.graphs import Graph
from geoskip.operators import ChebConv, FeaStConv, GCNConv
from tests.blocks.pyg_recipes import EDGE_TYPES, EDGES, IN, OUT, RELATIONS, features
from tests.specimens import specimen

KINDS = [AffineSkip, ResidualSkip, PolynomialSkip]
kinds = pytest.mark.parametrize("kind", KINDS)


class Conv(nn.Module):
    """A convolution with an attribute of every sort, some of which have the names of a skip's own."""

    aggregation = "sum"
    buffer: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.matrix = nn.Parameter(torch.ones(3, 2))
        self.register_buffer("buffer", torch.zeros(2))
        self.normalize = True
        self._scale = 1.0
        self.part = self.init = self.hidden_channels = self.skip_channels = self.adds_bias = "the convolution's"

    @property
    def scale(self) -> float:
        return self._scale

    @scale.setter
    def scale(self, value: float) -> None:
        self._scale = value

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x) + x @ self.matrix + self.buffer
        return self.scale * (y / 2 if self.normalize else y)


VALUES: dict[str, Any] = {
    "linear": nn.Linear(3, 2, bias=False),
    "matrix": nn.Parameter(torch.full((3, 2), 2.0)),
    "buffer": torch.ones(2),
    "normalize": False,
    "scale": 3.0,
    "aggregation": "mean",
}
SHARED = ["part", "skip_channels", "adds_bias"]
OWN: dict[type[Skip], list[str]] = {
    AffineSkip: [*SHARED, "init"],
    ResidualSkip: SHARED,
    PolynomialSkip: [*SHARED, "init", "hidden_channels"],
}


def block_of(kind: type[Skip]) -> Skip:
    return kind(Conv(), 3, 2)


@kinds
@pytest.mark.parametrize("name", sorted(VALUES))
def test_what_is_set_reaches_the_convolution(kind: type[Skip], name: str) -> None:
    block, bare, x = block_of(kind), Conv(), torch.randn(5, 3)
    bare.load_state_dict(block.conv.state_dict())
    setattr(block, name, VALUES[name])
    setattr(bare, name, VALUES[name])
    assert getattr(block, name) is getattr(block.conv, name) is VALUES[name]
    assert list(block.conv.state_dict()) == list(bare.state_dict())
    assert_close(block.conv(x), bare(x))
    assert not torch.equal(bare(x), block_of(kind).conv(x))


@kinds
@pytest.mark.parametrize("name", sorted(set(VALUES) - {"scale", "aggregation"}))
def test_what_is_deleted_is_gone(kind: type[Skip], name: str) -> None:
    block = block_of(kind)
    delattr(block, name)
    assert not hasattr(block.conv, name)
    assert not hasattr(block, name)
    with pytest.raises(AttributeError, match=name):
        delattr(block, name)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in OWN.items() for name in names])
def test_the_blocks_own_attributes_win(kind: type[Skip], name: str) -> None:
    """Whatever the convolution calls its attributes: making the block leaves them alone, and so does setting."""
    block = block_of(kind)
    assert getattr(block.conv, name) == "the convolution's" != getattr(block, name)
    setattr(block, name, None)
    assert getattr(block.conv, name) == "the convolution's"
    assert getattr(block, name) is None


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([*VALUES, *OWN[PolynomialSkip], "_scale", "fresh"]), st.booleans()), max_size=12)
)
def test_any_sequence_of_changes(steps: list[tuple[str, bool]]) -> None:
    """The block and its convolution stay what two plain objects would be, one for the names of each."""
    block = block_of(PolynomialSkip)
    conv: dict[str, Any] = {name: getattr(block.conv, name) for name in [*VALUES, *OWN[PolynomialSkip], "_scale"]}
    for name, delete in steps:
        of_conv = name in VALUES and hasattr(block.conv, name)
        if delete and of_conv and name not in ("scale", "aggregation"):
            delattr(block, name)
            conv.pop(name)
        elif not delete and (of_conv or name not in VALUES):
            value = VALUES.get(name, "new")
            setattr(block, name, value)
            assert getattr(block, name) is value
            if of_conv:
                conv[name] = value
                conv["_scale"] = value if name == "scale" else conv["_scale"]
        assert {name for name in conv if hasattr(block.conv, name)} == set(conv)
        assert all(getattr(block.conv, name) is value for name, value in conv.items())


@kinds
def test_a_real_convolution(kind: type[Skip]) -> None:
    """GCNConv without normalisation is another function; the block's parts follow."""
    x, conv = features(), pyg_nn.GCNConv(IN, OUT)
    block: Any = kind(conv)
    before = conv(x, EDGES)
    block.normalize = False
    assert conv.normalize is False
    assert not torch.allclose(conv(x, EDGES), before)
    assert_close(block(x, EDGES), conv(x, EDGES) + block.affine(x) - conv.bias)
    block.bias = None
    assert conv.bias is None
    assert_close(block(x, EDGES), block.convolution(x, EDGES) + block.affine(x))
    block.bias = nn.Parameter(torch.ones(OUT))
    assert_close(block(x, EDGES), block.convolution(x, EDGES) + block.affine(x))
    assert_close(block(x, EDGES) - block.convolution(x, EDGES), block.shortcut(x) + 1)


def test_an_operator_of_ours() -> None:
    graph, x = specimen().graph(torch.float32), torch.randn(7, 3)
    block: Any = AffineSkip(ChebConv(3, 2, kernel_size=3))
    block.center = False
    assert_close(block(x, graph), block.conv(x, graph) + x @ block.weight)
    assert block.conv.center is False
    steered: Any = AffineSkip(FeaStConv(3, 2, kernel_size=3))
    steered.receiver_attention = nn.Parameter(torch.ones(3, 3))
    assert "conv.receiver_attention" in steered.state_dict()


@kinds
def test_blocks_in_blocks(kind: type[Skip]) -> None:
    inner: Any = kind(Conv(), 3, 2)
    outer: Any = ResidualSkip(inner, 3, 2)
    outer.normalize = False
    assert inner.conv.normalize is False
    assert "normalize" not in inner.__dict__


@kinds
def test_copies_and_checkpoints(kind: type[Skip]) -> None:
    block: Any = block_of(kind)
    x = torch.randn(5, 3)
    block.normalize = False
    block.buffer = torch.full((2,), 0.5)
    for other in (copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
        assert_close(other(x), block(x), rtol=0, atol=0)
        other.normalize = True
        assert block.conv.normalize is False
        assert other.conv.normalize is True
    assert set(block.state_dict()) == set(block_of(kind).state_dict())
    other = block_of(kind)
    other.load_state_dict(block.state_dict())
    other.normalize = False
    assert_close(other(x), block(x), rtol=0, atol=0)


@pytest.mark.parametrize("kind", [AffineSkip, PolynomialSkip])
def test_parametrizations_of_both(kind: type[Skip]) -> None:
    """Those of the convolution are not the block's, for which torch would change the class of all blocks."""
    block, x, graph = kind(GCNConv(IN, OUT)), features(), Graph.from_edge_index(EDGES, len(features()))
    expected = block(x, graph)
    parametrizations.weight_norm(block.conv, "theta")
    assert not parametrize.is_parametrized(block)
    parametrizations.weight_norm(block, "weight")
    assert parametrize.is_parametrized(block, "weight")
    assert_close(block(x, graph), expected)
    assert_close(copy.deepcopy(block)(x, graph), expected)
    other = kind(GCNConv(IN, OUT))
    assert set(dict(other.named_parameters())) - {"conv.theta", "conv.bias"} == set(other._own_names)
    for module, name in ((block, "weight"), (block.conv, "theta")):
        parametrize.remove_parametrizations(module, name)
    assert type(block) is kind
    assert_close(block(x, graph), expected)


def test_pruning_of_both() -> None:
    block = AffineSkip(pyg_nn.RGCNConv(IN, OUT, RELATIONS))
    prune.global_unstructured([(block.conv, "weight"), (block, "weight")], prune.L1Unstructured, amount=0.5)
    masks = [name for name, _ in block.named_buffers()]
    assert masks == ["weight_mask", "conv.weight_mask"]
    assert block(features(), EDGES, EDGE_TYPES).shape == (len(features()), OUT)


def test_tools_that_replace_parameters() -> None:
    """They delete a parameter and set an attribute of its name: the block's, though RGCNConv has a weight too."""
    block: Any = AffineSkip(pyg_nn.RGCNConv(IN, OUT, RELATIONS))
    theirs, expected = block.conv.weight, block(features(), EDGES, EDGE_TYPES)
    parametrizations.weight_norm(block, "weight")
    assert_close(block(features(), EDGES, EDGE_TYPES), expected)
    assert block.conv.weight is theirs
    replica = AffineSkip(pyg_nn.RGCNConv(IN, OUT, RELATIONS))._replicate_for_data_parallel()
    theirs = replica.conv.weight
    replica.weight = torch.zeros(IN, OUT)
    assert replica.conv.weight is theirs
    functional: Any = AffineSkip(pyg_nn.RGCNConv(IN, OUT, RELATIONS), init="zeros")
    zeros = {name: torch.zeros_like(p) for name, p in functional.named_parameters()}
    y = torch.func.functional_call(functional, zeros | {"weight": torch.eye(IN, OUT)}, (features(), EDGES, EDGE_TYPES))
    assert_close(y[:, :IN], features())


@pytest.mark.compiled
def test_compiled() -> None:
    """A change after compiling is noticed, as it is for a bare module."""
    block, x = block_of(AffineSkip), torch.randn(5, 3)
    compiled = torch.compile(block, backend="eager", fullgraph=True)
    before = compiled(x)
    assert_close(before, block(x))
    block.normalize = False
    assert_close(compiled(x), 2 * (before - block.affine(x)) + block.affine(x))
