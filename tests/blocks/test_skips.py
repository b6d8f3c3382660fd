"""The three skips around our own operators and around a user's module: formula, bias, parts, behaviour as a module."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from geoskip.blocks import AffineSkip, PolynomialSkip, ResidualSkip, Skip, make_block, only
from geoskip.graphs import Graph
from geoskip.operators import GCNConv, MoNetConv, Operator
from tests.operators.cases import CASES, FIRST, IN, OUT, Case
from tests.specimens import features, specimen

KINDS = [AffineSkip, ResidualSkip, PolynomialSkip]
kinds = pytest.mark.parametrize("kind", KINDS)
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
first_cases = pytest.mark.parametrize("case", FIRST, ids=lambda case: case.name)
# Without a bias of the operator, the block's bias is its own.
with_and_without_bias = pytest.mark.parametrize(
    "case", [*FIRST, *(case for case in CASES if not case.options.get("bias", True))], ids=lambda case: case.name
)


class Blur(nn.Module):
    """A user's own: the mean of all vertices, in other channels."""

    def __init__(self, inputs: int = IN, outputs: int = OUT) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.ones(inputs, outputs, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return (x.mean(-2, keepdim=True) @ self.matrix).expand(*x.shape[:-1], -1)


class Heard(GCNConv):
    """Notes the skip that it is handed."""

    def convolve(self, x: Tensor, graph: Graph, skip: Tensor | None) -> Tensor:
        self.heard = skip
        return super().convolve(x, graph, skip)


def added(block: Skip) -> int:
    return sum(parameter.numel() for parameter in block.parameters()) - sum(p.numel() for p in block.conv.parameters())


def polynomial_of(block: Skip, x: Tensor) -> Tensor:
    """P(x) - b, written from the docstrings."""
    if isinstance(block, AffineSkip):
        return x @ block.weight
    if isinstance(block, PolynomialSkip):
        return F.elu(x @ block.weight + block.hidden_bias) @ block.weight_out
    return x @ torch.eye(x.shape[-1], OUT, dtype=x.dtype)


@kinds
@every_case
def test_formula(case: Case, kind: type[Skip]) -> None:
    """On a batch: y = conv(x) + P(x), and b, where the operator has none, once it is trained."""
    conv, x, graph = case.make(), features(2, 7, IN), case.specimen().graph()
    block = kind(conv)
    brought = isinstance(block, (AffineSkip, PolynomialSkip)) and conv.bias is None
    b = features(OUT, seed=5) if brought else torch.zeros(OUT, dtype=torch.float64)
    if brought:
        assert block.bias is not None
        block.bias.data.copy_(b)
    assert_close(block(x, graph), conv(x, graph) + polynomial_of(block, x) + b)


@kinds
@with_and_without_bias
def test_parts_add_up(case: Case, kind: type[Skip]) -> None:
    """The affine part holds the one bias, the convolution's part has none: it is 0 where its weights are."""
    conv, x, graph = case.make(), features(7, IN), case.specimen().graph()
    block = kind(conv)
    y = block(x, graph)
    assert_close(block.affine(x) + block.convolution(x, graph), y)
    b = 0 if block.bias is None else block.bias
    assert_close(block.affine(x), polynomial_of(block, x) + b)
    with only(block, "affine"):
        assert torch.equal(block(x, graph), block.affine(x))
    with only(block, "convolution"):
        assert torch.equal(block(x, graph), block.convolution(x, graph))
    assert torch.equal(block(x, graph), y)


def test_operators_are_handed_the_matrix() -> None:
    """Inside the kernel A costs less than a pass over memory of its own."""
    graph, x = specimen().graph(torch.float32), features(7, IN, dtype=torch.float32)
    block = AffineSkip(Heard(IN, OUT))
    block(x, graph)
    assert block.conv.heard is block.weight
    with only(block, "convolution"):
        block(x, graph)
    assert block.conv.heard is None


@every_case
def test_parameter_counts(case: Case) -> None:
    """The affine skip adds in·out, and out if there is no other bias; the residual one nothing."""
    conv = case.make()
    b = OUT if conv.bias is None else 0
    assert added(AffineSkip(conv)) == IN * OUT + b
    assert added(AffineSkip(conv, bias=False)) == IN * OUT
    assert added(ResidualSkip(conv)) == 0
    assert added(PolynomialSkip(conv)) == IN * OUT + OUT + OUT * OUT + b
    assert added(PolynomialSkip(conv, hidden_channels=5, bias=False)) == IN * 5 + 5 + 5 * OUT


def test_count_of_the_autoencoder() -> None:
    """Aff-MoNet has Σ in·out more parameters than MoNet: 12.5 thousand for the paper's channels, no biases."""
    channels = [3, 32, 32, 32, 64], [64, 64, 32, 32, 32, 3]
    pairs = [pair for part in channels for pair in pairwise(part)]
    blocks = [AffineSkip(MoNetConv(*pair, kernel_size=9)) for pair in pairs]
    assert sum(map(added, blocks)) == sum(i * o for i, o in pairs) == 12_480


def test_biases_of_other_shapes_are_not_the_blocks() -> None:
    conv = Blur()
    conv.bias = nn.Parameter(torch.zeros(2, OUT))
    assert AffineSkip(conv).adds_bias
    conv.bias = nn.Parameter(torch.zeros(OUT))
    assert not AffineSkip(conv).adds_bias
    assert AffineSkip(conv).bias is conv.bias


@kinds
def test_no_bias_at_all(kind: type[Skip]) -> None:
    block = make_block(GCNConv(IN, OUT, bias=False), kind.__name__.removesuffix("Skip").lower())
    assert isinstance(block, kind)
    if kind is ResidualSkip:
        assert block.bias is None
    assert AffineSkip(Blur(), bias=False).bias is None
    assert ResidualSkip(Blur()).bias is None


@kinds
def test_users_module(kind: type[Skip]) -> None:
    """It names no channels and no bias, and takes no graph."""
    block, x = kind(Blur()), features(3, 7, IN)
    y = block(x)
    assert block.skip_channels == (IN, OUT)
    assert_close(y, block.conv(x) + polynomial_of(block, x))


def test_initial_values() -> None:
    torch.manual_seed(0)
    block: Any = AffineSkip(GCNConv(300, 200, bias=False))
    bound = (6 / 500) ** 0.5
    assert block.weight.abs().max() <= bound
    assert_close(block.weight.std().item(), bound / 3**0.5, rtol=0.01, atol=0)
    assert not block.bias.any()
    polynomial = PolynomialSkip(GCNConv(3, 4), init="zeros")
    assert not polynomial.weight_out.any()
    assert polynomial.weight.any(), "or no gradient would reach V"


@first_cases
@pytest.mark.parametrize("kind", [AffineSkip, PolynomialSkip])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zeros_change_nothing(case: Case, kind: type[AffineSkip], dtype: torch.dtype) -> None:
    """In the kernel too, where A is one more slot."""
    conv, x, graph = case.make(dtype), features(7, IN, dtype=dtype), case.specimen().graph(dtype)
    assert torch.equal(kind(conv, init="zeros")(x, graph), conv(x, graph))


@kinds
@pytest.mark.parametrize("bias", [True, False])
def test_gradients(kind: type[Skip], bias: bool) -> None:
    graph, block = specimen().graph(), kind(GCNConv(IN, OUT, bias=bias).double())
    names = [name for name, _ in block.named_parameters()]

    def function(x: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(block, dict(zip(names, values, strict=True)), (x, graph))

    assert torch.autograd.gradcheck(function, (features(7, IN).requires_grad_(), *block.parameters()))


@kinds
def test_reset_parameters(kind: type[Skip]) -> None:
    torch.manual_seed(0)
    block = kind(GCNConv(IN, OUT))
    before = copy.deepcopy(block.state_dict())
    block.reset_parameters()
    changed = {name for name, value in block.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if "bias" not in name}
    zero = AffineSkip(GCNConv(IN, OUT), init="zeros")
    zero.weight.data.fill_(1)
    zero.reset_parameters()
    assert not zero.weight.any()
    AffineSkip(Blur()).reset_parameters()


@kinds
def test_attributes_of_the_convolution(kind: type[Skip]) -> None:
    conv = MoNetConv(IN, OUT, kernel_size=4, dim=2)
    block = kind(conv)
    assert (block.in_channels, block.out_channels, block.kernel_size, block.dim) == (IN, OUT, 4, 2)
    assert block.theta is conv.theta
    assert not hasattr(block, "missing")
    with pytest.raises(AttributeError, match="'MoNetConv' object has no attribute 'missing'"):
        _ = block.missing
    with pytest.raises(AttributeError, match="_as_graph"):
        _ = block._as_graph


@kinds
@pytest.mark.parametrize("conv", [GCNConv(IN, OUT), GCNConv(IN, OUT, bias=False), Blur().float()])
def test_autocast(kind: type[Skip], conv: nn.Module) -> None:
    """A skip leaves the precision of the output as the convolution has it."""
    x = features(7, IN, dtype=torch.float32)
    args = (specimen().graph(torch.float32),) if isinstance(conv, Operator) else ()
    block = kind(conv)
    exact = block(x, *args)
    with torch.autocast("cpu", torch.bfloat16):
        y, bare = block(x, *args), conv(x, *args)
    assert y.dtype == bare.dtype
    assert_close(y.float(), exact, rtol=0.05, atol=0.05)


@kinds
def test_lives_where_the_convolution_does(kind: type[Skip]) -> None:
    conv = GCNConv(IN, OUT).double().to("meta").eval()
    block = kind(conv)
    assert {(p.dtype, p.device.type) for p in block.parameters()} == {(torch.float64, "meta")}
    assert not block.training


def test_prints() -> None:
    assert "AffineSkip(\n  3 → 2\n  (conv): GCNConv(3, 2)" in repr(AffineSkip(GCNConv(3, 2)))
    assert "channels at the first call" in repr(AffineSkip(Blur()))


def test_make_block() -> None:
    conv = GCNConv(IN, OUT)
    assert make_block(conv) is conv
    assert make_block(conv, "none") is conv
    for name, kind in [("affine", AffineSkip), ("residual", ResidualSkip), ("polynomial", PolynomialSkip)]:
        block: Any = make_block(conv, name)
        assert type(block) is kind
        assert block.conv is conv
    block = make_block(conv, skip="polynomial", hidden_channels=7, init="zeros")
    assert block.weight_out.shape == (7, OUT)
    assert not block.weight_out.any()
    with pytest.raises(ValueError, match=r"skip='none' takes no options, got \['hidden_channels', 'init'\]"):
        make_block(conv, "none", init="zeros", hidden_channels=3)


def test_only_is_undone_after_an_error() -> None:
    block, other = AffineSkip(GCNConv(IN, OUT)), AffineSkip(Blur())
    seen = []

    def fail() -> None:
        seen.extend([block.part, other.part])
        raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"), only(nn.Sequential(block, nn.ReLU()), "affine"):
        fail()
    assert seen == ["affine", "both"]
    assert [block.part, other.part] == ["both", "both"]


def test_only_needs_blocks() -> None:
    says = "model: Linear has no blocks with skips; add some with add_skips"
    with pytest.raises(ValueError, match=says), only(nn.Linear(2, 2), "affine"):
        pass


def replica(module: nn.Module) -> Any:
    """A copy as ``torch.nn.DataParallel`` makes them: its parameters are plain tensors."""
    copied = module._replicate_for_data_parallel()
    for name, parameter in module._parameters.items():
        setattr(copied, name, None if parameter is None else parameter.clone())
    for name, child in module._modules.items():
        setattr(copied, name, replica(child) if child is not None else None)
    return copied


@kinds
@with_and_without_bias
def test_copies_of_data_parallel(case: Case, kind: type[Skip]) -> None:
    block, x, graph = kind(case.make()), features(2, 7, IN), case.specimen().graph()
    assert_close(replica(block)(x, graph), block(x, graph), rtol=0, atol=0)
    assert_close(replica(block.conv)(x, graph), block.conv(x, graph), rtol=0, atol=0)
