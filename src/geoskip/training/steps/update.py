"""The end of a step: Adam moves the weights, and what there is to know of the step is written down."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from geoskip.kernels.ops import on_triton
from geoskip.shapes import Float, Int


class Notes(NamedTuple):
    """What is known of the steps so far, on the device: it is written there, and read without waiting for it.

    Attributes:
        last: the loss of the last batch.
        loss: the sum of the losses of all items since it was last set to 0, float64.
        step: updates so far.
        fault: the first step whose loss or gradient was not finite, -1 while there is none. With fp16, a gradient that
            only overflowed because of the loss scale does not count.
    """

    last: Float[Tensor, ""]
    loss: Float[Tensor, ""]
    step: Int[Tensor, ""]
    fault: Int[Tensor, ""]

    @classmethod
    def at(cls, device: torch.device) -> Notes:
        step = torch.zeros((), dtype=torch.int64, device=device)
        loss = torch.zeros((), dtype=torch.float64, device=device)
        return cls(torch.zeros((), device=device), loss, step, torch.full_like(step, -1))


class Update:
    """One step of Adam with the gradients as they are. On CUDA it is a few kernels for all parameters at once; they
    do what torch's Adam does, with its state, so that either can go on where the other has stopped."""

    def __init__(self, optimiser: torch.optim.Adam, scaler: torch.amp.GradScaler, notes: Notes) -> None:
        self.optimiser, self.scaler, self.notes = optimiser, scaler, notes
        # By the places and sizes of what they point to. All are kept: a captured step reads the one it began with.
        self._tables: dict[Any, Any] = {}

    def __call__(self, loss: Float[Tensor, ""], count: int) -> None:
        """``loss`` is that of a batch of ``count`` items."""
        groups = self.optimiser.param_groups
        moved = [parameter for group in groups for parameter in group["params"] if parameter.grad is not None]
        gradients = [parameter.grad for parameter in moved]
        if moved and len(groups) == 1 and self._is_usual(groups[0]) and all(map(self._fits, moved)):
            self._at_once(moved, gradients, groups[0], loss, count)
        else:
            self._in_turn(gradients, loss, count)

    def _is_usual(self, group: dict[str, Any]) -> bool:
        """Whether the kernels know the rule."""
        if any(group.get(name) for name in ("amsgrad", "maximize", "decoupled_weight_decay")):
            return False
        # With a scale the gradients are to be divided by it, and the step may be left out.
        return min(group["betas"]) > 0 and isinstance(group["lr"], Tensor) and not self.scaler.is_enabled()

    def _fits(self, parameter: Tensor) -> bool:
        plain = parameter.dtype == torch.float32 and parameter.is_contiguous() and parameter.numel() > 0
        return plain and on_triton(parameter) and "exp_avg" in self.optimiser.state[parameter]

    def _at_once(
        self, moved: list[Tensor], gradients: list[Tensor], group: dict[str, Any], loss: Tensor, count: int
    ) -> None:
        from geoskip.kernels.triton.adam import Place, Rule, Table, adam, note

        states = [(parameter, self.optimiser.state[parameter]) for parameter in moved]
        places = tuple(Place.of(p, state["exp_avg"], state["exp_avg_sq"], state["step"]) for p, state in states)
        table = self._tables.get(places)
        if table is None:
            table = self._tables[places] = Table(places, moved[0].device)
        beta_1, beta_2 = group["betas"]
        rule = Rule(beta_1, beta_2, group["eps"], group["weight_decay"])
        adam(table, [gradient.contiguous() for gradient in gradients], group["lr"], rule)
        note(table, loss.float(), count, self.notes)

    def _in_turn(self, gradients: list[Tensor], loss: Tensor, count: int) -> None:
        notes = self.notes
        # With fp16 the scale may have made the gradients overflow: the scaler skips the step and halves the scale. At a
        # scale of 1 or less they are not finite by themselves, and further halving would skip steps for ever.
        scaled = self.scaler.scale(torch.ones_like(notes.last)) > 1
        fine = loss.isfinite() & (torch.nn.utils.get_total_norm(gradients).isfinite() | scaled)
        notes.fault.copy_(torch.where((notes.fault < 0) & ~fine, notes.step, notes.fault))
        notes.step.add_(1)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        notes.last.copy_(loss)
        notes.loss.add_(loss.double() * count)
