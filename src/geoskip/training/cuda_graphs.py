"""Captures a training step as a CUDA graph, once per shape of its inputs, and replays it on changing inputs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from geoskip.kernels.branches import stream_to_capture, values_kept

# Runs before the capture: kernels compile, and libraries allocate their workspaces.
WARMUPS = 3
Replay = Callable[[], Any]


def record_graph(step: Callable[[], Any]) -> Replay:
    """Capture a step as a CUDA graph. Each replay advances torch's generator, so dropout draws new numbers."""
    with capture_stream():
        for _ in range(WARMUPS):
            step()
    return record_once(step)


@contextmanager
def capture_stream(device: torch.device | str = "cuda") -> Iterator[None]:
    """Work on the stream that captures, so that libraries allocate their workspaces and memory is reused there; no
    change on a device other than CUDA."""
    if torch.device(device).type != "cuda":
        yield
        return
    current, side = torch.cuda.current_stream(), stream_to_capture()
    side.wait_stream(current)
    try:
        with torch.cuda.stream(side):
            yield
    finally:
        current.wait_stream(side)


def record_once(step: Callable[[], Any]) -> Replay:
    """Capture a step that has run before on the stream of captures. A failure leaves no trace outside of the step."""
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    try:
        # torch.cuda.graph does not return to the current stream if the capture fails.
        with torch.cuda.stream(torch.cuda.current_stream()), _capturing(graph, pool=pool), values_kept() as kept:
            result = step()
    except Exception as error:
        _undo_failed_capture(pool)
        if not isinstance(error, RuntimeError) or "captur" not in str(error):
            raise
        raise RuntimeError(
            "step: cannot be captured, because it waits for the GPU or uses an optimizer without capturable=True. "
            "Return tensors instead of reading them with .item(), and see the error above"
        ) from error

    return partial(_replayed, graph, result, kept)


def _replayed(graph: torch.cuda.CUDAGraph, result: Any, kept: list[Any]) -> Any:
    # What the graph reads is kept for as long as the graph.
    graph.replay()
    return result


def _undo_failed_capture(pool: tuple[int, int]) -> None:
    """After a capture that CUDA invalidated, PyTorch keeps allocating for it, and its generator cannot draw numbers."""
    device = torch.cuda.current_device()
    # The first call raises if the capture has ended as it should, because the step failed for a reason of its own.
    with suppress(RuntimeError):
        torch._C._cuda_endAllocateToPool(device, pool)
        torch._C._cuda_releasePool(device, pool)
        # The end of a capture that succeeds sets the generator back.
        scratch = torch.zeros(1, device="cuda")
        with _capturing(torch.cuda.CUDAGraph()):
            scratch.zero_()


def _capturing(graph: torch.cuda.CUDAGraph, **options: Any) -> torch.cuda.graph:
    # By default, other threads must not call CUDA meanwhile, as those of loaders do that pin memory.
    return torch.cuda.graph(graph, stream=stream_to_capture(), capture_error_mode="thread_local", **options)


class Recording(NamedTuple):
    """A recorded step: the layout it was recorded for, the buffers that it reads its inputs from, and its replay."""

    layout: Hashable
    buffers: list[Tensor]
    replay: Replay


class CapturedStep:
    """A function of tensors that is recorded once for each shape of its inputs, and then replayed.

    A call copies the inputs into buffers and replays the recording. The result is overwritten by the next call.
    Recording runs the function a few times; afterwards the state, the random generators and the gradient scaler are
    put back in place.

    Args:
        step: the function. It must not wait for the device. A recording keeps using the memory it was recorded with, so
            everything the function reads or changes must stay in place.
        state: returns all tensors that the function changes, such as weights, moments and running sums.
        scaler: the gradient scaler, if the function uses one.
        layout: a function of the inputs; when its value changes, the step is recorded again for this shape.
        prepare: a function of the inputs that is called before a recording.
        record: how to record, :func:`record_graph` except in tests on a CPU.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        state: Callable[[], Iterable[Tensor]],
        *,
        scaler: torch.amp.GradScaler | None = None,
        layout: Callable[..., Hashable] | None = None,
        prepare: Callable[..., Any] | None = None,
        record: Callable[[Callable[[], Any]], Replay] = record_graph,
    ) -> None:
        self.step, self.state, self.scaler, self.layout, self.record = step, state, scaler, layout, record
        self.prepare = prepare
        self.recordings: dict[Hashable, Recording] = {}

    def __call__(self, *inputs: Tensor) -> Any:
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        layout = None if self.layout is None else self.layout(*inputs)
        recording = self.recordings.get(shapes)
        if recording is None or recording.layout != layout:
            recording = self.recordings[shapes] = self._recorded(inputs, layout)
        for buffer, tensor in zip(recording.buffers, inputs, strict=True):
            buffer.copy_(tensor)
        return recording.replay()

    def _recorded(self, inputs: Sequence[Tensor], layout: Hashable) -> Recording:
        buffers = [tensor.clone() for tensor in inputs]
        with preserved(self.state(), inputs[0].device, self.scaler):
            if self.prepare is not None:
                self.prepare(*inputs)
            replay = self.record(lambda: self.step(*buffers))
        return Recording(layout, buffers, replay)


@contextmanager
def preserved(
    tensors: Iterable[Tensor], device: torch.device, scaler: torch.amp.GradScaler | None = None
) -> Iterator[None]:
    """After the block, also if it raises, tensors, the random states of a device and a gradient scaler are as they were
    before it."""
    copies = [(tensor, tensor.detach().clone()) for tensor in tensors]
    random, scale = random_states(device), {} if scaler is None else scaler.state_dict()
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, copy in copies:
                tensor.copy_(copy)
        set_random_states(random, device)
        if scaler is not None and scale:
            scaler.load_state_dict(scale)


def random_states(device: torch.device) -> dict[str, Tensor]:
    """The states of the generators that a step draws from."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    if device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    if device.type == "mps" and "mps" in states:
        torch.mps.set_rng_state(states["mps"])
