"""Which path a call takes by itself."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
import torch

from geoskip import AffineSkip, ChebConv, FeaStConv, GCNConv, GINConv, Graph
from geoskip.kernels import cpu, cpu_tables, paths
from geoskip.kernels.autograd import Kernel
from geoskip.meshes import icosphere
from geoskip.operators import Operator, make_operator
from tests.specimens import specimen

MESH = icosphere(2)
GRAPH = Graph.from_faces(MESH.faces, MESH.num_vertices)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the features that the CPU kernels of convolutions are called with."""
    sizes: list[int] = []
    kernel = cpu.basis_convolution

    def spy(x: torch.Tensor, *rest: object) -> torch.Tensor:
        sizes.append(x.numel())
        return kernel(x, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(cpu, "basis_convolution", spy)
    return sizes


@pytest.mark.parametrize("items", [1, 8])
def test_small_inputs_take_the_formula(items: int, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, below a number of features; the result is the same up to rounding."""
    monkeypatch.setattr(paths, "SMALL", 4 * MESH.num_vertices * 8)
    block = AffineSkip(FeaStConv(8, 8, kernel_size=3)).double()
    x = torch.randn(items, MESH.num_vertices, 8, dtype=torch.float64)
    y = block(x, GRAPH)
    assert calls == ([] if items == 1 else [x.numel()])
    with paths.use_path("reference"):
        torch.testing.assert_close(y, block(x, GRAPH), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("small", [0, 1 << 20])
def test_types_do_not_depend_on_the_size(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "SMALL", small)
    block = AffineSkip(FeaStConv(8, 8, kernel_size=3))
    x = torch.randn(MESH.num_vertices, 8)
    with torch.autocast("cpu", torch.bfloat16):
        assert block(x, GRAPH).dtype is torch.bfloat16
    assert block(x, GRAPH).dtype is torch.float32


@pytest.mark.parametrize("operator", [ChebConv, FeaStConv, GCNConv, GINConv])
def test_autocast_leaves_float64_alone(operator: type[Operator]) -> None:
    """As it does in PyTorch's own layers."""
    sizes = {} if operator in (GCNConv, GINConv) else {"kernel_size": 3}
    block = AffineSkip(operator(8, 8, **sizes)).double()
    x = torch.randn(MESH.num_vertices, 8, dtype=torch.float64, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = block(x, GRAPH)
    assert torch.equal(y, block(x, GRAPH))
    y.sum().backward()


def test_contexts_of_threads_that_overlap() -> None:
    first, second = paths.use_path("reference"), paths.use_path("interpreter")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert paths._path == "interpreter"
    second.__exit__(None, None, None)
    assert paths._path == "fast"


def test_one_slot_needs_no_formula(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernel starts as fast: on the CPU, small inputs run it too."""
    monkeypatch.setattr(paths, "SMALL", 1 << 30)
    AffineSkip(GCNConv(8, 8))(torch.randn(MESH.num_vertices, 8), GRAPH)
    assert calls == [8 * MESH.num_vertices]


@pytest.mark.parametrize("is_small", [True, False])
def test_small_items_with_weights_of_their_own_are_one_graph(
    is_small: bool, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU, where each item starts kernels of its own."""
    item = MESH.num_vertices * 8
    monkeypatch.setattr(paths, "SMALL", item + 1 if is_small else item)
    copies = Mock(wraps=GRAPH.pattern.copies)
    monkeypatch.setattr(type(GRAPH.pattern), "copies", lambda pattern, count: copies(count))
    block = AffineSkip(FeaStConv(8, 8, kernel_size=3, self_loops=False)).double()
    x = torch.randn(2, 3, MESH.num_vertices, 8, dtype=torch.float64, requires_grad=True)
    inputs = [x, *block.parameters()]
    found = torch.autograd.grad(block(x, GRAPH).square().sum(), inputs)
    with paths.use_path("reference"):
        exact = torch.autograd.grad(block(x, GRAPH).square().sum(), inputs)
    torch.testing.assert_close(found, exact, rtol=1e-10, atol=1e-10)
    assert calls == [x.numel()]
    assert copies.call_count == is_small


def test_gin_is_one_node_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Mock(wraps=cpu.perceptron_convolution)
    monkeypatch.setattr(cpu, "perceptron_convolution", kernel)
    block, x = AffineSkip(GINConv(8, 8)), torch.randn(MESH.num_vertices, 8)
    block(x, GRAPH)
    assert kernel.call_count == 1
    # Sums are in float32, which its saved hidden layer would not be.
    block.bfloat16()(x.bfloat16(), GRAPH)
    assert kernel.call_count == 1


def test_without_gradients_there_is_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    block, x = AffineSkip(GCNConv(8, 8)), torch.randn(MESH.num_vertices, 8)
    expected = block(x, GRAPH)
    saved = Mock(side_effect=Kernel._save)
    monkeypatch.setattr(Kernel, "_save", lambda *inputs: saved(*inputs))
    with torch.no_grad():
        assert torch.equal(block(x, GRAPH), expected)
    assert not saved.called
    block(x, GRAPH)
    assert saved.called


@pytest.mark.parametrize("operator", ["cheb", "gcn", "gin", "monet", "spiral"])
@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_batches_in_parts_that_fit_the_cache(operator: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbors are read from tables of a few items; results do not depend on how many."""
    graph, channels = specimen(dim=3).graph(), 4
    item_bytes = graph.num_vertices * channels * 8
    monkeypatch.setattr(cpu_tables, "TABLE_BYTES", at_once * item_bytes)
    sizes: dict[str, Any] = {} if operator in ("gcn", "gin") else {"kernel_size": 3}
    block = AffineSkip(make_operator(operator, channels, channels, **sizes)).double()
    x = torch.randn(5, graph.num_vertices, channels, dtype=torch.float64, requires_grad=True)
    inputs = [x, *block.parameters()]
    with paths.use_path("reference"):
        exact = torch.autograd.grad(block(x, graph).square().sum(), inputs)
    tables, embedding_bag = [], torch.embedding_bag

    def spy(table: torch.Tensor, *rest: Any) -> Any:
        tables.append(table.numel() * 8)
        return embedding_bag(table, *rest)

    monkeypatch.setattr(torch, "embedding_bag", spy)
    found = torch.autograd.grad(block(x, graph).square().sum(), inputs)
    torch.testing.assert_close(found, exact, rtol=1e-10, atol=1e-10)
    assert max(tables) == at_once * item_bytes


def test_many_parts_of_a_batch_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of a gradient are summed in float32, in which rounding does not add up."""
    monkeypatch.setattr(cpu_tables, "TABLE_BYTES", 1)
    conv, x = ChebConv(4, 4, kernel_size=3, bias=False), torch.rand(1000, 7, 4).bfloat16()
    (exact,) = torch.autograd.grad(conv(x.float(), specimen().graph()).sum(), conv.theta)
    (found,) = torch.autograd.grad(conv.bfloat16()(x, specimen().graph()).sum(), conv.theta)
    torch.testing.assert_close(found.float(), exact, rtol=0.01, atol=0)


@pytest.mark.parametrize("operator", [ChebConv, GCNConv, GINConv])
def test_backward_under_autocast(operator: type[Operator]) -> None:
    """Gradients are in the precision of the forward pass, as if autocast had ended before."""
    sizes = {"kernel_size": 3} if operator is ChebConv else {}
    block, x = AffineSkip(operator(8, 8, **sizes)), torch.randn(MESH.num_vertices, 8, requires_grad=True)
    inputs = [x, *block.parameters()]
    expected = torch.autograd.grad(block(x, GRAPH).sum(), inputs)
    total = block(x, GRAPH).sum()
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.autograd.grad(total, inputs)
    assert all(map(torch.equal, found, expected))
