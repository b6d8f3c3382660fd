"""Compiled and exported operators compute what eager ones do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from geoskip.graphs import Graph
from geoskip.kernels import paths, use_path
from geoskip.operators import FeaStConv, MoNetConv, SpiralConv
from tests.compiled import MODES, assert_trains_compiled
from tests.operators.cases import CASES, FIRST, IN, OUT, Case
from tests.specimens import features

pytestmark = pytest.mark.compiled

ABLATIONS = [case for case in CASES if case.options.keys() & {"center", "self_loops", "closed"} and case not in FIRST]
SKIP = features(IN, OUT, seed=2, dtype=torch.float32)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def some(case: Case) -> tuple[nn.Module, Tensor, Graph]:
    return (
        case.make(torch.float32),
        features(2, 7, IN, dtype=torch.float32),
        case.specimen().graph(torch.float32),
    )


def assert_equal_training(conv: nn.Module, compiled: Callable[..., Tensor], x: Tensor, graph: Graph) -> None:
    """y and all gradients; the two share their parameters."""

    def trained(call: Callable[..., Tensor]) -> list[Tensor]:
        y = call(x, graph, skip=SKIP)
        return [y.detach(), *torch.autograd.grad(y.square().sum(), list(conv.parameters()))]

    assert_close(trained(compiled), trained(conv), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize(
    "case", [case for case in FIRST if case.operator is not SpiralConv], ids=lambda case: case.name
)
def test_jit_trace_follows_its_edges(case: Case) -> None:
    conv, random = case.make(torch.float32), torch.Generator().manual_seed(0)

    def inputs(num_edges: int) -> list[Tensor]:
        edges = torch.randint(0, 7, (2, num_edges), generator=random)
        pseudo = [torch.rand(num_edges, case.dim, generator=random)] if conv.uses_pseudo else []
        return [features(7, IN, dtype=torch.float32), edges, *pseudo]

    traced = torch.jit.trace(conv, inputs(12), check_trace=False)
    others = inputs(15)
    assert_close(traced(*others), conv(*others))
    traced(*others).sum().backward()


@pytest.mark.parametrize("case", FIRST, ids=lambda case: case.name)
def test_compiled_equals_eager(case: Case) -> None:
    """Traced before the graph has remembered anything, and after."""
    conv, x, graph = some(case)
    compiled = torch.compile(conv, fullgraph=True, backend="aot_eager")
    fresh_graph = case.specimen().graph(torch.float32)
    assert_close(compiled(x, fresh_graph, skip=SKIP), conv(x, graph, skip=SKIP), rtol=1e-5, atol=1e-5)
    assert_equal_training(conv, compiled, x, graph)


@pytest.mark.parametrize("case", FIRST, ids=lambda case: case.name)
def test_compiled_kernels_of_cuda_equal_eager_ones(case: Case) -> None:
    """As operators of torch they have rules to keep that the CPU's have not met: in Triton's interpreter."""
    conv, x, graph = some(case)
    with use_path("interpreter"):
        assert_equal_training(conv, torch.compile(conv, fullgraph=True, backend="aot_eager"), x, graph)


@pytest.mark.parametrize("path", ["fast", "interpreter"])
@pytest.mark.parametrize("case", FIRST, ids=lambda case: case.name)
def test_no_kernel_runs_on_what_torch_traces_with(case: Case, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for tensors have no memory to give to a kernel: on CUDA that is an error, in backward too."""
    from geoskip.kernels import cpu, triton

    calls = 0

    def guarded(kernel: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            assert all(type(arg) in (Tensor, nn.Parameter) for arg in args if isinstance(arg, Tensor))
            return kernel(*args, **kwargs)

        return call

    # torch 2.13 says that it compiles while it traces a backward pass, too; before, it did not.
    monkeypatch.setattr(torch.compiler, "_compile_session_context", nullcontext, raising=False)
    module = cpu if path == "fast" else triton
    for name in module.__all__:
        if callable(kernel := getattr(module, name)):
            monkeypatch.setattr(module, name, guarded(kernel))
    conv, x, graph = some(case)
    with use_path(path):
        assert_equal_training(conv, torch.compile(conv, fullgraph=True, backend="aot_eager"), x, graph)
    assert calls > 0


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", FIRST, ids=lambda case: case.name)
def test_on_cuda_with_changing_batches(case: Case, mode: str) -> None:
    conv = case.make(torch.float32).cuda()
    graph = case.specimen().graph(torch.float32).to("cuda")
    skip = SKIP.cuda().requires_grad_()
    inputs = [features(batch, 7, IN, seed=batch, dtype=torch.float32).cuda().requires_grad_() for batch in (2, 5, 3)]
    assert_trains_compiled(conv, inputs, graph, mode, skip=skip)


@pytest.mark.gpu
def test_a_compiled_operator_on_cuda_runs_our_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the reference's."""
    from geoskip.kernels import triton

    called = []
    for name in ("gaussian_convolution", "gaussian_convolution_gradients"):
        kernel = getattr(triton, name)

        def call(*args: Any, kernel: Any = kernel, name: str = name) -> Any:
            called.append(name)
            return kernel(*args)

        monkeypatch.setattr(triton, name, call)
    case = FIRST[0]
    conv, graph = case.make(torch.float32).cuda(), case.specimen().graph(torch.float32).to("cuda")
    torch.compile(conv, fullgraph=True)(features(2, 7, IN, dtype=torch.float32).cuda(), graph).sum().backward()
    assert called == ["gaussian_convolution", "gaussian_convolution_gradients"]


@pytest.mark.parametrize(
    "case", [case for case in FIRST if case.operator in (MoNetConv, FeaStConv)], ids=lambda c: c.name
)
def test_inductor_equals_eager(case: Case) -> None:
    conv, x, graph = some(case)
    assert_equal_training(conv, torch.compile(conv, fullgraph=True), x, graph)


@pytest.mark.parametrize("case", FIRST + ABLATIONS, ids=lambda case: case.name)
def test_exported_equals_eager(case: Case) -> None:
    """The graph is an input of the exported program: it runs on other values of the same size."""
    conv, x, graph = some(case)
    exported = torch.export.export(conv, (x, graph)).module()
    y = conv(x, graph)
    assert_close(exported(x, graph), y, rtol=1e-5, atol=1e-5)
    other = case.specimen().relabelled(torch.arange(6, -1, -1)).graph(torch.float32)
    assert not torch.allclose(conv(x, other), y)
    assert_close(exported(x, other), conv(x, other), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", FIRST, ids=lambda case: case.name)
def test_exported_for_batches_of_every_size(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches, which eager code on the CPU computes by the formula, and large ones."""
    monkeypatch.setattr(paths, "SMALL", 100)
    conv, x, graph = some(case)
    sizes = torch.export.ShapesCollection()
    sizes[x] = {0: torch.export.Dim("items", min=1)}
    shapes = sizes.dynamic_shapes(conv, (x, graph))
    exported = torch.export.export(conv, (x, graph), dynamic_shapes=shapes).module()
    for items in (1, 9):
        batch = features(items, 7, IN, dtype=torch.float32)
        assert_close(exported(batch, graph), conv(batch, graph), rtol=1e-5, atol=1e-5)
