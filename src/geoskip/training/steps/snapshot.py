"""A learner and the random generators as they were, to be put back: recording a step must leave no trace."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from geoskip.training.steps.learner import Learner


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
