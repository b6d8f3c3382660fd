"""One training step: forward, backward, Adam, and running sums that are read without waiting for the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from geoskip.graphs import record_keys
from geoskip.graphs.checks import widest_float
from geoskip.kernels.paths import on_triton
from geoskip.shapes import Float, Int
from geoskip.training.config import Config
from geoskip.training.devices import Group
from geoskip.training.tasks.base import Task

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class FusedAdam:
    """What ``torch.optim.Adam(fused=True)`` computes, to the bit.

    A ``torch.optim.Optimizer`` imports all of ``torch._dynamo`` when it is made, which takes longer than everything
    else up to the first step. ``param_groups`` and ``state`` are as there, and a ``GradScaler`` can take a step.
    """

    # A scaler then sets `grad_scale` and `found_inf` during a step.
    _step_supports_amp_scaling = True

    def __init__(self, parameters: list[nn.Parameter], lr: float | Tensor, weight_decay: float) -> None:
        settings = {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": weight_decay}
        self.param_groups: list[dict[str, Any]] = [{"params": parameters, **settings}]
        # Complete before the first step, so that a checkpoint can be loaded.
        self.state: dict[nn.Parameter, dict[str, Tensor]] = {}
        for parameter in parameters:
            moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            self.state[parameter] = {"step": torch.zeros((), device=parameter.device), **moments}

    def zero_grad(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        (group,) = self.param_groups
        grad_scale, found_inf = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        updated = [parameter for parameter in group["params"] if parameter.grad is not None]
        for dtype in dict.fromkeys(parameter.dtype for parameter in updated):
            parameters = [parameter for parameter in updated if parameter.dtype == dtype]
            states = [self.state[parameter] for parameter in parameters]
            means, squares, steps = ([s[name] for s in states] for name in ("exp_avg", "exp_avg_sq", "step"))
            torch._foreach_add_(steps, 1)
            torch._fused_adam_(
                parameters,
                [parameter.grad for parameter in parameters],
                means,
                squares,
                [],
                steps,
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
                grad_scale=grad_scale,
                found_inf=found_inf,
            )
            if found_inf is not None:
                torch._foreach_sub_(steps, [found_inf] * len(steps))


class Learner:
    """Model, optimizer and running sums. :meth:`update` never waits for the device, so that it can be captured.

    Attributes:
        last_loss: the loss of the last batch.
        loss_sum: the sum of the losses of all items since it was last set to 0, in float64 where the device has it.
        step: number of updates so far.
        first_bad_step: the first step whose loss or gradient was not finite, -1 if there is none. With fp16, a gradient
            that overflowed only because of the loss scale does not count.
    """

    def __init__(self, task: Task, model: nn.Module, config: Config, group: Group | None = None) -> None:
        self.task, self.device, self.group = task, task.device, group or Group()
        self.model = model.to(self.device).train()
        self.dtype = DTYPES.get(config.precision)
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=config.precision == "fp16")
        self.last_loss = torch.zeros((), device=self.device)
        self.loss_sum = torch.zeros((), dtype=widest_float(self.device), device=self.device)
        self.step = torch.zeros((), dtype=torch.int64, device=self.device)
        self.first_bad_step = torch.full_like(self.step, -1)
        captured = self.device.type == "cuda"
        # In a tensor, the rate of a captured step can still change.
        rate: Any = torch.tensor(float(config.optim.lr), device=self.device) if captured else config.optim.lr
        self.optimizer = FusedAdam(self.parameters, rate, config.optim.weight_decay)
        # By the addresses and sizes of the tensors. None is removed: a captured step reads the one of its recording.
        self._adam_tables: dict[Any, Any] = {}

    def set_lr(self, lr: float) -> None:
        (group,) = self.optimizer.param_groups
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr

    def update(self, items: Int[Tensor, " items"]) -> None:
        """One step on a batch. This process takes its share of the items; without any, it contributes zeros."""
        own = self.group.share(items)
        batch = self.task.batch(own if len(own) else items[:1])
        self.optimizer.zero_grad()
        # The cache of autocast would outlive a capture.
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not None, cache_enabled=False):
            loss = self.task.loss(self.model, batch)
        self.scaler.scale(loss * (len(own) / len(items)) if len(own) < len(items) else loss).backward()
        if self.group.size > 1:
            for parameter in self.parameters:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            self.group.sum_all([parameter.grad for parameter in self.parameters if parameter.grad is not None])
        self.apply_gradients(loss.detach(), len(own))

    def apply_gradients(self, loss: Float[Tensor, ""], count: int) -> None:
        """Update the weights by their gradients, and record the ``loss`` of ``count`` items."""
        updated = [parameter for parameter in self.parameters if parameter.grad is not None]
        if updated and self._has_kernels(updated):
            self._apply_with_kernels(updated, loss, count)
            return
        # With fp16 the scale may have made the gradients overflow: the scaler skips the step and halves the scale. At a
        # scale of 1 or less they are not finite by themselves, and further halving would skip steps forever.
        scaled = self.scaler.scale(torch.ones_like(self.last_loss)) > 1
        norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in updated if parameter.grad is not None])
        is_finite = loss.isfinite() & (norm.isfinite() | scaled)
        self.first_bad_step.copy_(torch.where((self.first_bad_step < 0) & ~is_finite, self.step, self.first_bad_step))
        self.step.add_(1)
        self.scaler.step(cast(torch.optim.Optimizer, self.optimizer))
        self.scaler.update()
        self.last_loss.copy_(loss)
        self.loss_sum.add_(loss.to(self.loss_sum.dtype) * count)

    def _has_kernels(self, updated: list[nn.Parameter]) -> bool:
        """Whether all of ``updated`` can be updated at once: the kernels read the rate from the device and do not know
        the loss scale."""
        if self.scaler.is_enabled() or not isinstance(self.optimizer.param_groups[0]["lr"], Tensor):
            return False
        return all(on_triton(p) and p.dtype == torch.float32 and p.is_contiguous() and p.numel() for p in updated)

    def _apply_with_kernels(self, updated: list[nn.Parameter], loss: Tensor, count: int) -> None:
        """What torch's Adam does, with its state, in a few kernels for all parameters."""
        from geoskip.kernels.triton.training_step import AdamTable, adam, locate, record_step

        (group,), states = self.optimizer.param_groups, self.optimizer.state
        located = tuple(locate(p, states[p]["exp_avg"], states[p]["exp_avg_sq"], states[p]["step"]) for p in updated)
        table = self._adam_tables.get(located)
        if table is None:
            table = self._adam_tables[located] = AdamTable(located, self.device)
        gradients = [parameter.grad.contiguous() for parameter in updated if parameter.grad is not None]
        adam(table, gradients, group["lr"], group["betas"], group["eps"], group["weight_decay"])
        record_step(table, loss.float(), count, (self.last_loss, self.loss_sum, self.step, self.first_bad_step))

    def tensors(self) -> dict[str, Tensor]:
        """Everything that an update changes, by name: the tensors themselves, not copies."""
        state, fixed = self.model.state_dict(keep_vars=True), record_keys(self.model)
        tensors = {f"model.{name}": tensor for name, tensor in state.items() if name not in fixed}
        for number, parameter in enumerate(self.parameters):
            tensors |= {f"adam.{number}.{name}": value for name, value in self.optimizer.state[parameter].items()}
        sums = {name: getattr(self, name) for name in ("loss_sum", "last_loss", "step", "first_bad_step")}
        return {**tensors, **sums}

    def num_adam_steps(self) -> Float[Tensor, ""]:
        """How many updates moved the weights: with fp16, those whose scaled gradients overflow are skipped."""
        return torch.stack([self.optimizer.state[parameter]["step"] for parameter in self.parameters]).max()

    def adam_state(self) -> dict[str, dict[str, Tensor]]:
        """The optimizer's state, by the names of the parameters."""
        named = [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]
        return {name: dict(self.optimizer.state[parameter]) for name, parameter in named}

    @torch.no_grad()
    def load(self, model: Mapping[str, Tensor], adam_state: Mapping[str, Mapping[str, Tensor]], step: int) -> None:
        """Continue from the weights and moments of another learner."""
        self.model.load_state_dict(model)
        for name, own in self.adam_state().items():
            for key, tensor in own.items():
                tensor.copy_(adam_state[name][key])
        self.step.fill_(step)
