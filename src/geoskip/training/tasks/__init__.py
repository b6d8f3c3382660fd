"""What is trained on what: one file per task, behind one base."""

from geoskip.training.tasks.base import TASKS, Context, Evaluation, Program, Task, find_task, make_task

__all__ = ["TASKS", "Context", "Evaluation", "Program", "Task", "find_task", "make_task"]
