"""Captures a training step as a CUDA graph, once per shape of its inputs, and replays it on changing inputs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from geoskip.kernels.branches import stream_to_capture

# Runs before the capture: kernels compile, and libraries allocate their workspaces.
WARMUPS = 3
Replay = Callable[[], Any]


def record_graph(step: Callable[[], Any]) -> Replay:
    """Capture a step as a CUDA graph. Each replay advances torch's generator, so dropout draws new numbers."""
    current, side = torch.cuda.current_stream(), stream_to_capture()
    side.wait_stream(current)
    with torch.cuda.stream(side):
        for _ in range(WARMUPS):
            step()
    current.wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        result = step()

    def replay() -> Any:
        graph.replay()
        return result

    return replay


def record_nothing(step: Callable[[], Any]) -> Replay:
    """Warm up as :func:`record_graph` does and return the step itself, for devices without graphs."""
    for _ in range(WARMUPS):
        step()
    return step


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
        record: how to record, :func:`record_graph` or :func:`record_nothing`.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        state: Callable[[], Iterable[Tensor]],
        *,
        scaler: torch.amp.GradScaler | None = None,
        layout: Callable[..., Hashable] | None = None,
        record: Callable[[Callable[[], Any]], Replay] = record_graph,
    ) -> None:
        self.step, self.state, self.scaler, self.layout, self.record = step, state, scaler, layout, record
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
        before = Snapshot(self.state(), inputs[0].device, self.scaler)
        replay = self.record(lambda: self.step(*buffers))
        before.restore()
        return Recording(layout, buffers, replay)


class Snapshot:
    """Copies of tensors, of the random states of a device and of a gradient scaler, to be put back in place."""

    def __init__(
        self, tensors: Iterable[Tensor], device: torch.device, scaler: torch.amp.GradScaler | None = None
    ) -> None:
        self.tensors = [(tensor, tensor.detach().clone()) for tensor in tensors]
        self.device, self.random = device, random_states(device)
        self.scaler, self.scale = scaler, {} if scaler is None else scaler.state_dict()

    @torch.no_grad()
    def restore(self) -> None:
        for tensor, copy in self.tensors:
            tensor.copy_(copy)
        set_random_states(self.random, self.device)
        if self.scaler is not None and self.scale:
            self.scaler.load_state_dict(self.scale)


def random_states(device: torch.device) -> dict[str, Tensor]:
    """The states of the generators that a step draws from."""
    states = {"cpu": torch.get_rng_state()}
    return states if device.type != "cuda" else {**states, "cuda": torch.cuda.get_rng_state(device)}


def set_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
