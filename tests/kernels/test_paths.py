"""Which path a call takes by itself."""

from __future__ import annotations

import pytest
import torch

from geoskip import AffineSkip, ChebConv, FeaStConv, GCNConv, GINConv, Graph
from geoskip.kernels import cpu, paths
from geoskip.meshes import icosphere
from geoskip.operators import Operator

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
