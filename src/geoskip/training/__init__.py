"""Training: configurations, tasks, one loop for all of them, checkpoints and runs."""

# ruff: noqa: I001
from typing import TYPE_CHECKING

from geoskip.registry import lazy_names

if TYPE_CHECKING:
    from geoskip.training.compiling import compile_ahead as compile_ahead
    from geoskip.training.captured import capture as capture
    from geoskip.training.config import Config as Config, Optim as Optim, override as override, resolve as resolve
    from geoskip.training.evaluation import evaluate_run as evaluate_run
    from geoskip.training.loop import train as train
    from geoskip.training.run import Run as Run
    from geoskip.training.tasks import (
        TASKS as TASKS,
        Context as Context,
        Evaluation as Evaluation,
        Task as Task,
        make_task as make_task,
    )

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "compiling": "compile_ahead",
        "captured": "capture",
        "config": "Config Optim override resolve",
        "evaluation": "evaluate_run",
        "loop": "train",
        "run": "Run",
        "tasks": "TASKS Context Evaluation Task make_task",
    },
)
