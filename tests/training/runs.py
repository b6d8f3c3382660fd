"""Runs on disk, made without training: what evaluation, use and export need, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from geoskip.training.run import Run
from geoskip.training.tasks import Task, make_task
from tests.training import sets


def untrained(folder: Path, task: str = "reconstruction", data: Any = None, **given: Any) -> tuple[Run, Task]:
    """A run whose weights are perturbed initial values, and the task that it would have been trained on."""
    config = sets.config(task, **given)
    made = make_task(config, sets.data(task) if data is None else data)
    run = Run.create(folder, config)
    run.write_context(made)
    run.write_model(perturbed(made.make_model()), step=7)
    return run, made


def perturbed(model: nn.Module, seed: int = 1) -> nn.Module:
    """Other weights than the initial ones, so that a model that was never loaded is seen."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=random), alpha=0.1)
    return model
