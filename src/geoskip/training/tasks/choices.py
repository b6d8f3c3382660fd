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
    if config.task == "reconstruction":
        from geoskip.training.tasks.reconstruction import Reconstruction

        return Reconstruction(config, data)
    if config.task == "correspondence":
        from geoskip.training.tasks.correspondence import Correspondence

        return Correspondence(config, data)
    from geoskip.training.tasks.classification import Classification

    return Classification(config, data)
