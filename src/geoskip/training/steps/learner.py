"""A model that learns: one update of its weights, and what is added up on the way, all on one device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from geoskip.graphs import record_keys
from geoskip.shapes import Float, Int
from geoskip.training.config import Config
from geoskip.training.distributed import Group
from geoskip.training.steps.update import Notes, Update
from geoskip.training.tasks.base import Task

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Learner:
    """Model, optimiser and running sums. :meth:`update` never waits for the device, so that it can be captured.

    ``last``, ``loss``, ``step`` and ``fault`` are :class:`~geoskip.training.steps.update.Notes`.
    """

    def __init__(self, task: Task, model: nn.Module, config: Config, group: Group | None = None) -> None:
        self.task, self.device = task, task.device
        self.model = model.to(self.device).train()
        self.group = group or Group()
        self.dtype = DTYPES.get(config.precision)
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimiser = self._adam(config)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=config.precision == "fp16")
        notes = Notes.at(self.device)
        self.last, self.loss, self.step, self.fault = notes
        self.finish = Update(self.optimiser, self.scaler, notes)

    def _adam(self, config: Config) -> torch.optim.Adam:
        captured = self.device.type == "cuda"
        # In a tensor, the rate of a captured step can still change.
        rate: Any = torch.tensor(config.optim.lr, device=self.device) if captured else config.optim.lr
        decay = config.optim.weight_decay
        adam = torch.optim.Adam(self.parameters, lr=rate, weight_decay=decay, fused=True, capturable=captured)
        # Made at once, as Adam would at its first step: there is then something to load a checkpoint into.
        for parameter in self.parameters:
            moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            adam.state[parameter] = {"step": torch.zeros((), device=self.device), **moments}
        return adam

    def set_rate(self, rate: float) -> None:
        for group in self.optimiser.param_groups:
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
        self.optimiser.zero_grad(set_to_none=True)
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
            held |= {f"adam.{place}.{name}": value for name, value in self.optimiser.state[parameter].items()}
        return {**held, "loss": self.loss, "last": self.last, "step": self.step, "fault": self.fault}

    def steps_taken(self) -> Float[Tensor, ""]:
        """How many updates moved the weights: with fp16 those whose scaled gradients overflow are skipped."""
        return torch.stack([self.optimiser.state[parameter]["step"] for parameter in self.parameters]).max()

    def moments(self) -> dict[str, dict[str, Tensor]]:
        """The optimiser's state, by the names of the parameters."""
        named = [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]
        return {name: dict(self.optimiser.state[parameter]) for name, parameter in named}

    @torch.no_grad()
    def load(self, model: Mapping[str, Tensor], moments: Mapping[str, Mapping[str, Tensor]], step: int) -> None:
        """Go on from another learner's weights and moments."""
        self.model.load_state_dict(model)
        for name, own in self.moments().items():
            for key, tensor in own.items():
                tensor.copy_(moments[name][key])
        self.step.fill_(step)
