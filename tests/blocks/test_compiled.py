"""Blocks under torch.compile and torch.export."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor, nn
from torch.testing import assert_close

from geoskip.blocks import AffineSkip, PolynomialSkip, ResidualSkip, Skip, add_skips, only
from geoskip.kernels import use_path
from geoskip.operators import GCNConv
from tests.blocks.pyg_recipes import EDGES, IN, OUT, features
from tests.compiled import MODES, assert_trains_compiled
from tests.operators.cases import FIRST, Case
from tests.specimens import features as specimen_features
from tests.specimens import specimen

pytestmark = pytest.mark.compiled
kinds = pytest.mark.parametrize("kind", [AffineSkip, ResidualSkip, PolynomialSkip])


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def trained(module: Callable[..., Tensor], parameters: list[nn.Parameter], *args: Any) -> list[Tensor | None]:
    """y and all gradients."""
    for parameter in parameters:
        parameter.grad = None
    y = module(*args)
    y.square().sum().backward()
    return [y.detach(), *(None if p.grad is None else p.grad.clone() for p in parameters)]


def assert_compiles(block: nn.Module, *args: Any) -> None:
    parameters = list(block.parameters())
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    assert_close(trained(compiled, parameters, *args), trained(block, parameters, *args), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", FIRST[:2], ids=lambda case: case.name)
def test_around_operators(case: Case) -> None:
    x, graph = specimen_features(2, 7, 3, dtype=torch.float32), case.specimen().graph(torch.float32)
    assert_compiles(AffineSkip(case.make(torch.float32)), x, graph)


@kinds
@pytest.mark.parametrize("bias", [True, False])
def test_every_skip(kind: type[Skip], bias: bool) -> None:
    x, graph = specimen_features(7, 3, dtype=torch.float32), specimen().graph(torch.float32)
    assert_compiles(kind(GCNConv(3, 2, bias=bias)), x, graph)


@pytest.mark.parametrize("conv", [pyg_nn.GATConv(IN, OUT, heads=2), pyg_nn.SAGEConv(IN, OUT)])
def test_around_pyg(conv: nn.Module) -> None:
    """One with a bias that the block shares, one without."""
    assert_compiles(AffineSkip(conv), features(), EDGES)


def test_finished_model_after_its_first_call() -> None:
    model = pyg_nn.models.GIN(IN, 8, 2, OUT).eval()
    add_skips(model)
    model(features(), EDGES)
    assert_compiles(model, features(), EDGES)


@kinds
def test_parts_of_a_compiled_block(kind: type[Skip]) -> None:
    """Compiled code notices that a part is switched off, and on again."""
    block = kind(nn.Linear(IN, OUT), IN, OUT)
    compiled = torch.compile(block, fullgraph=True, backend="eager")
    x = features()
    whole = compiled(x)
    with only(block, "affine"):
        affine = compiled(x)
    with only(block, "convolution"):
        convolution = compiled(x)
    assert_close(affine, block.affine(x))
    assert_close(affine + convolution, whole)
    assert_close(compiled(x), whole)


@kinds
def test_exported(kind: type[Skip]) -> None:
    block = kind(GCNConv(3, 2))
    x, graph = specimen_features(7, 3, dtype=torch.float32), specimen().graph(torch.float32)
    exported = torch.export.export(block, (x, graph)).module()
    assert_close(exported(x, graph), block(x, graph))
    assert_close(exported(2 * x, graph), block(2 * x, graph))


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
@kinds
@pytest.mark.parametrize("case", FIRST, ids=lambda case: case.name)
def test_every_skip_around_every_operator_on_cuda(case: Case, kind: type[Skip], mode: str) -> None:
    block = kind(case.make(torch.float32)).cuda()
    graph = case.specimen().graph(torch.float32).to("cuda")
    inputs = [specimen_features(size, 7, 3, seed=size, dtype=torch.float32).cuda() for size in (2, 4)]
    assert_trains_compiled(block, inputs, graph, mode)


@kinds
@pytest.mark.parametrize("case", FIRST, ids=lambda case: case.name)
def test_second_derivatives_through_a_block(case: Case, kind: type[Skip]) -> None:
    block, graph, x = kind(case.make()), case.specimen().graph(), specimen_features(7, 3)

    def function(x: Tensor) -> Tensor:
        return block(x, graph).sigmoid().sum()

    hessian = torch.autograd.functional.hessian
    with use_path("reference"):
        expected = hessian(function, x)
    assert float(expected.abs().max()) > 1e-3
    assert_close(hessian(function, x), expected)
    assert_close(torch.func.hessian(function)(x), expected)
