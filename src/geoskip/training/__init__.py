"""Training: configurations, tasks, one loop for all of them, checkpoints and runs.

The public names are loaded when they are first used, so that ``geoskip --help`` need not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geoskip.training.config import Config, Optim, override, resolve
    from geoskip.training.cuda_graphs import capture
    from geoskip.training.evaluation import evaluate_run
    from geoskip.training.loop import train
    from geoskip.training.run import Run
    from geoskip.training.tasks import TASKS, Context, Evaluation, Task, make_task

_MODULES = {
    "TASKS": "tasks",
    "Config": "config",
    "Context": "tasks",
    "Evaluation": "tasks",
    "Optim": "config",
    "Run": "run",
    "Task": "tasks",
    "capture": "cuda_graphs",
    "evaluate_run": "evaluation",
    "make_task": "tasks",
    "override": "config",
    "resolve": "config",
    "train": "loop",
}

__all__ = [
    "TASKS",
    "Config",
    "Context",
    "Evaluation",
    "Optim",
    "Run",
    "Task",
    "capture",
    "evaluate_run",
    "make_task",
    "override",
    "resolve",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"geoskip.training.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'geoskip.training' has no attribute {name!r}")
