"""One training step: run directly, or captured once as a CUDA graph and replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from geoskip.kernels.branches import stream_to_capture
from geoskip.shapes import Int
from geoskip.training.learner import Learner


@runtime_checkable
class Step(Protocol):
    """How a learner is updated."""

    def run(self, items: Int[Tensor, " items"]) -> None:
        """One update on a batch, given for all processes together, on the device."""
        ...


class PlainStep:
    """Each process takes its share of the batch."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner

    def run(self, items: Int[Tensor, " items"]) -> None:
        own = self.learner.group.share(items)
        if len(own):
            self.learner.update(own, len(items))
        else:
            self.learner.update_without_items(len(items))


def random_states(device: torch.device) -> dict[str, Tensor]:
    """States of the generators that a step draws from."""
    states = {"cpu": torch.get_rng_state()}
    return states if device.type != "cuda" else {**states, "cuda": torch.cuda.get_rng_state(device)}


def set_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


class Snapshot:
    """What a learner holds, copied."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.tensors = {name: tensor.detach().clone() for name, tensor in learner.tensors().items()}
        self.random = random_states(learner.device)
        self.scaler: dict[str, Any] = learner.scaler.state_dict()

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything back in place: a captured step goes on to use the same memory."""
        for name, tensor in self.learner.tensors().items():
            tensor.copy_(self.tensors[name])
        set_random_states(self.random, self.learner.device)
        if self.scaler:
            self.learner.scaler.load_state_dict(self.scaler)


# Before the capture: kernels compile, libraries make their workspaces.
WARMUPS = 3
Replay = Callable[[], None]
Record = Callable[[Callable[[], None]], Replay]


class StaticStep:
    """A step on tensors that stay where they are: items are copied into a buffer, and what was recorded runs.

    The uneven batch at the end of an epoch has a recording of its own. When the task's batches change their layout, the
    step is recorded again. Recording runs the step a few times; weights, moments, sums and random states are put back
    afterwards.
    """

    def __init__(self, learner: Learner, record: Record) -> None:
        self.learner, self.record = learner, record
        self.recorded: dict[int, tuple[int, Tensor, Replay]] = {}

    def run(self, items: Int[Tensor, " items"]) -> None:
        layout = self.learner.task.layout(len(items))
        if len(items) not in self.recorded or self.recorded[len(items)][0] != layout:
            self.recorded[len(items)] = (layout, *self._record(items))
        _, buffer, replay = self.recorded[len(items)]
        buffer.copy_(items)
        replay()

    def _record(self, items: Tensor) -> tuple[Tensor, Replay]:
        buffer, before = items.clone(), Snapshot(self.learner)
        # Whatever the task prepares at its first batch is not part of the step.
        self.learner.task.batch(buffer)
        replay = self.record(lambda: self.learner.update(buffer))
        before.restore()
        return buffer, replay


def record_graph(step: Callable[[], None]) -> Replay:
    """Capture a step as a CUDA graph. Dropout draws from torch's generator, whose place each replay moves on."""
    current, aside = torch.cuda.current_stream(), stream_to_capture()
    aside.wait_stream(current)
    with torch.cuda.stream(aside):
        for _ in range(WARMUPS):
            step()
    current.wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=aside):
        step()
    return graph.replay


def record_nothing(step: Callable[[], None]) -> Replay:
    """The same without a graph, for devices that have none: the warm-up, and then the step itself."""
    for _ in range(WARMUPS):
        step()
    return step


class Reading:
    """Sum of losses, first faulty step and steps of Adam, as they are now; the copy runs while training goes on."""

    def __init__(self, learner: Learner) -> None:
        loss = learner.loss.clone()
        learner.group.sum_all([loss])
        figures = torch.stack([loss, learner.fault.double(), learner.steps_taken().double()])
        self._event: torch.cuda.Event | None = None
        self._host = figures
        if figures.is_cuda:
            self._host = torch.empty(3, dtype=torch.float64, pin_memory=True).copy_(figures, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()

    @property
    def ready(self) -> bool:
        return self._event is None or self._event.query()

    def wait(self) -> tuple[float, int, int]:
        """The sum of losses over all processes, the first faulty step, or -1, and the steps that moved the weights."""
        if self._event is not None:
            self._event.synchronize()
        loss, fault, taken = self._host.tolist()
        return loss, int(fault), int(taken)


def make_step(learner: Learner, capture: bool = True) -> Step:
    """On a single CUDA device a captured step, unless told otherwise; elsewhere the plain one.

    Between several devices gradients are exchanged in every step, which is not captured.
    """
    if capture and learner.device.type == "cuda" and learner.group.size == 1:
        return StaticStep(learner, record_graph)
    return PlainStep(learner)
