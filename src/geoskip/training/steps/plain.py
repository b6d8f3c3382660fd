"""The step as it reads."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from geoskip.shapes import Int
from geoskip.training.steps.learner import Learner


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
