"""What is trained on what: one file per task, behind one base."""

from geoskip.training.tasks.base import Evaluation, Task, make_task

__all__ = ["Evaluation", "Task", "make_task"]
