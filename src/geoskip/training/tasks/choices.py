"""From a configuration to a task with its data."""

from __future__ import annotations

from typing import Any

from geoskip.training.config import Config
from geoskip.training.tasks.base import Task


def make_task(config: Config, data: Any = None) -> Task:
    """The task of a configuration, on the CPU.

    ``data`` is a set that is at hand (:class:`~geoskip.data.mesh_set.MeshSet` for reconstruction,
    :class:`~geoskip.data.correspondence_set.CorrespondenceSet`, :class:`~geoskip.data.graph_set.GraphSet` for
    classification); without it ``config.data`` is loaded.
    """
    make: Any = task_class(config.task)
    return make(config, data)


def task_class(name: str) -> type[Task]:
    """The class of a task by its name in a configuration."""
    if name == "reconstruction":
        from geoskip.training.tasks.reconstruction import Reconstruction

        return Reconstruction
    if name == "correspondence":
        from geoskip.training.tasks.correspondence import Correspondence

        return Correspondence
    from geoskip.training.tasks.classification import Classification

    return Classification
