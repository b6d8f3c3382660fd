"""Branches of a captured graph: where they start, that they end with their block, and that they change no bit."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from torch import Tensor

from geoskip.graphs import Graph
from geoskip.kernels import branches as module
from geoskip.kernels.branches import branches, run_inline
from geoskip.operators import OPERATORS, make_operator


class Stream:
    """Writes down what it waits for and what runs on it."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log
        self.device_index, self.cuda_stream = 0, 1

    def wait_stream(self, other: Stream) -> None:
        self.log.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of streams in the place of CUDA's, during a capture."""
    found: list[str] = []

    def current(stream: Stream) -> AbstractContextManager[None]:
        found.append(f"on {stream.name}")
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream("main", found))
    monkeypatch.setattr(torch.cuda, "stream", current)
    monkeypatch.setattr(module, "_side_stream", lambda device, main, number: Stream(f"side {number}", found))
    monkeypatch.setattr(module, "_HAS_CUDA", True)
    return found


class OnCuda(Tensor):
    """A tensor that says so."""

    is_cuda = property(lambda _: True)


def on_cuda() -> Tensor:
    return torch.zeros(1).as_subclass(OnCuda)


def test_without_a_capture_calls_run_in_turn() -> None:
    with branches(torch.zeros(1)) as fork:
        assert fork(lambda: 3) == 3


def test_a_branch_starts_where_it_is_made_and_ends_with_the_block(log: list[str]) -> None:
    with branches(on_cuda()) as fork:
        found = fork(lambda: log.append("first")), fork(lambda: 5)
        log.append("block")
    assert found[1] == 5
    assert log == [
        *["side 0 waits for main", "on side 0", "first", "side 1 waits for main", "on side 1"],
        *["block", "main waits for side 0", "main waits for side 1"],
    ]


def test_an_error_joins_what_was_begun(log: list[str]) -> None:
    """A stream that is left apart would make CUDA refuse the capture, and hide the error."""

    def broken() -> None:
        with branches(on_cuda()) as fork:
            fork(lambda: None)
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        broken()
    assert log[-1] == "main waits for side 0"


def test_blocks_within_blocks_take_other_streams(log: list[str]) -> None:
    for _ in range(2):
        log.clear()
        with branches(on_cuda()) as outer:
            outer(lambda: None)
            with branches(on_cuda()) as inner:
                inner(lambda: None)
        assert log == [
            *["side 0 waits for main", "on side 0", "side 1 waits for main", "on side 1"],
            *["main waits for side 1", "main waits for side 0"],
        ]


def test_a_build_without_cuda_may_trace_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake tensor says that it is on CUDA, and there is no stream to ask."""
    monkeypatch.setattr(module, "_HAS_CUDA", False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: pytest.fail("asked"))
    with branches(on_cuda()) as fork:
        assert fork(lambda: 3) == 3


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [(), (16,)])
@pytest.mark.parametrize("operator", OPERATORS.names())
def test_a_captured_step_has_the_bits_of_an_eager_one(operator: str, batch: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    edge_index, spirals = torch.randint(300, (2, 2000)), torch.randint(300, (300, 4))
    graph = Graph.from_edge_index(edge_index, 300, torch.rand(2000, 3), spirals).to("cuda")
    size = None if operator in ("gcn", "gin") else 2 if operator == "spline" else 4
    conv = make_operator(operator, 24, 40, kernel_size=size, dim=3 if operator in ("monet", "spline") else None).cuda()
    x, grad = (torch.randn(*batch, 300, width).cuda() for width in (24, 40))
    x.requires_grad_()

    def step() -> tuple[Tensor, ...]:
        y = conv(x, graph)
        return y, *torch.autograd.grad(y, [x, *conv.parameters()], grad)

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        expected = [tensor.detach().clone() for tensor in step()]
    torch.cuda.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        found = step()
        with branches(x) as fork:
            assert fork is not run_inline
    for _ in range(3):
        for tensor in found:
            tensor.detach().fill_(float("nan"))
        recorded.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
