"""What a run would do and need, told before it begins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from geoskip.training.tasks import Task


def plan(task: Task) -> dict[str, Any]:
    """Sizes of the model by its parts, steps, and memory in bytes on the device that trains."""
    from geoskip.training.memory import estimate_step_memory, tensors_in

    model, optim = task.outline(), task.config.optim
    parts = {name: _count(module.parameters()) for name, module in model.named_children()}
    parameters = _count(model.parameters())
    per_epoch = -(-task.num_items // min(optim.batch_size, task.num_items))
    # First, because it packs the graphs, which are kept with the data.
    step = estimate_step_memory(task)
    # What is kept from the first batch on counts with the data.
    task.batch(torch.arange(1))
    # Weights and two moments last; gradients are part of the step.
    held = {"weights": 12 * parameters + _bytes(model.buffers()), "data": _bytes(tensors_in(vars(task)))}
    return {
        "items": {"train": task.num_items, "test": task.num_test},
        "parameters": {"all": parameters, **{name: count for name, count in parts.items() if count}},
        "steps": {"per_epoch": per_epoch, "all": per_epoch * optim.epochs},
        "memory": {**held, "step": step, "all": sum(held.values()) + step},
    }


def _count(parameters: Iterable[Tensor]) -> int:
    return sum(parameter.numel() for parameter in parameters if parameter.requires_grad)


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Each tensor once, however often it is met."""
    # Outlined tensors have no address.
    seen = {tensor.data_ptr() or id(tensor): tensor.numel() * tensor.element_size() for tensor in tensors}
    return sum(seen.values())
