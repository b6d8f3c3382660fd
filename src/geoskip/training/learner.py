"""The end of a step: Adam moves the weights, and what there is to know of the step is written down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from geoskip.graphs import record_keys
from geoskip.kernels.paths import on_triton
from geoskip.shapes import Float, Int
from geoskip.training.config import Config
from geoskip.training.devices import Group
from geoskip.training.tasks.base import Task


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

    def __init__(self, optimizer: torch.optim.Adam, scaler: torch.amp.GradScaler, notes: Notes) -> None:
        self.optimizer, self.scaler, self.notes = optimizer, scaler, notes
        # By the places and sizes of what they point to. All are kept: a captured step reads the one it began with.
        self._tables: dict[Any, Any] = {}

    def __call__(self, loss: Float[Tensor, ""], count: int) -> None:
        """``loss`` is that of a batch of ``count`` items."""
        groups = self.optimizer.param_groups
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
        return plain and on_triton(parameter) and "exp_avg" in self.optimizer.state[parameter]

    def _at_once(
        self, moved: list[Tensor], gradients: list[Tensor], group: dict[str, Any], loss: Tensor, count: int
    ) -> None:
        from geoskip.kernels.triton.training import AdamTable, adam, locate, record_step

        states = [(parameter, self.optimizer.state[parameter]) for parameter in moved]
        located = tuple(locate(p, state["exp_avg"], state["exp_avg_sq"], state["step"]) for p, state in states)
        table = self._tables.get(located)
        if table is None:
            table = self._tables[located] = AdamTable(located, moved[0].device)
        contiguous = [gradient.contiguous() for gradient in gradients]
        adam(table, contiguous, group["lr"], group["betas"], group["eps"], group["weight_decay"])
        record_step(table, loss.float(), count, self.notes)

    def _in_turn(self, gradients: list[Tensor], loss: Tensor, count: int) -> None:
        notes = self.notes
        # With fp16 the scale may have made the gradients overflow: the scaler skips the step and halves the scale. At a
        # scale of 1 or less they are not finite by themselves, and further halving would skip steps for ever.
        scaled = self.scaler.scale(torch.ones_like(notes.last)) > 1
        fine = loss.isfinite() & (torch.nn.utils.get_total_norm(gradients).isfinite() | scaled)
        notes.fault.copy_(torch.where((notes.fault < 0) & ~fine, notes.step, notes.fault))
        notes.step.add_(1)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        notes.last.copy_(loss)
        notes.loss.add_(loss.double() * count)


DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Learner:
    """Model, optimizer and running sums. :meth:`update` never waits for the device, so that it can be captured.

    ``last``, ``loss``, ``step`` and ``fault`` are :class:`~geoskip.training.learner.Notes`.
    """

    def __init__(self, task: Task, model: nn.Module, config: Config, group: Group | None = None) -> None:
        self.task, self.device = task, task.device
        self.model = model.to(self.device).train()
        self.group = group or Group()
        self.dtype = DTYPES.get(config.precision)
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = self._adam(config)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=config.precision == "fp16")
        notes = Notes.at(self.device)
        self.last, self.loss, self.step, self.fault = notes
        self.finish = Update(self.optimizer, self.scaler, notes)

    def _adam(self, config: Config) -> torch.optim.Adam:
        captured = self.device.type == "cuda"
        # In a tensor, the rate of a captured step can still change.
        rate: Any = torch.tensor(float(config.optim.lr), device=self.device) if captured else config.optim.lr
        decay = config.optim.weight_decay
        adam = torch.optim.Adam(self.parameters, lr=rate, weight_decay=decay, fused=True, capturable=captured)
        # Made at once, as Adam would at its first step: there is then something to load a checkpoint into.
        for parameter in self.parameters:
            moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            adam.state[parameter] = {"step": torch.zeros((), device=self.device), **moments}
        return adam

    def set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def update(self, items: Int[Tensor, " items"], total: int | None = None) -> None:
        """One step on the items of a batch, of which there are ``total`` over all processes."""
        self._learn(items, len(items), total or len(items))

    def update_without_items(self, total: int) -> None:
        """A step to which the other processes alone contribute: this one takes part in the sums."""
        self._learn(torch.zeros(1, dtype=torch.int64, device=self.device), 0, total)

    def _learn(self, items: Tensor, count: int, total: int) -> None:
        batch = self.task.batch(items)
        self.optimizer.zero_grad(set_to_none=True)
        # The cache of autocast would outlive a capture.
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not None, cache_enabled=False):
            loss = self.task.loss(self.model, batch)
        self.scaler.scale(loss * (count / total) if count != total else loss).backward()
        self.group.sum_all(self._gradients())
        self.finish(loss.detach(), count)

    def _gradients(self) -> list[Tensor]:
        """Of all parameters: where processes add them up, none may be missing in one of them."""
        if self.group.size > 1:
            for parameter in self.parameters:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def tensors(self) -> dict[str, Tensor]:
        """Everything that an update changes, by name, as it is: a change of these is a change of the learner."""
        state, fixed = self.model.state_dict(keep_vars=True), record_keys(self.model)
        held = {f"model.{name}": tensor for name, tensor in state.items() if name not in fixed}
        for place, parameter in enumerate(self.parameters):
            held |= {f"adam.{place}.{name}": value for name, value in self.optimizer.state[parameter].items()}
        return {**held, "loss": self.loss, "last": self.last, "step": self.step, "fault": self.fault}

    def steps_taken(self) -> Float[Tensor, ""]:
        """How many updates moved the weights: with fp16 those whose scaled gradients overflow are skipped."""
        return torch.stack([self.optimizer.state[parameter]["step"] for parameter in self.parameters]).max()

    def moments(self) -> dict[str, dict[str, Tensor]]:
        """The optimizer's state, by the names of the parameters."""
        named = [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]
        return {name: dict(self.optimizer.state[parameter]) for name, parameter in named}

    @torch.no_grad()
    def load(self, model: Mapping[str, Tensor], moments: Mapping[str, Mapping[str, Tensor]], step: int) -> None:
        """Go on from another learner's weights and moments."""
        self.model.load_state_dict(model)
        for name, own in self.moments().items():
            for key, tensor in own.items():
                tensor.copy_(moments[name][key])
        self.step.fill_(step)
