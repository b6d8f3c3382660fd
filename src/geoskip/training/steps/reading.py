"""Figures on their way from the device, so that nobody waits for them."""

from __future__ import annotations

import torch

from geoskip.training.steps.learner import Learner


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
