"""The step recorded once for each size of batch, and replayed: on CUDA a graph of all its kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from geoskip.kernels.branches import stream_to_capture
from geoskip.shapes import Int
from geoskip.training.steps.learner import Learner
from geoskip.training.steps.snapshot import Snapshot

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
