"""A trained model by the folder it lies in."""

from __future__ import annotations

from pathlib import Path

import torch

from geoskip.records.reading import read_json
from geoskip.training.pretrained import CONFIG, Trained, from_pretrained
from geoskip.training.run import Run


def open_trained(folder: str | Path, device: str | torch.device = "cpu") -> Trained:
    """The model of a run, or one that ``geoskip export`` wrote; ValueError says what the folder is otherwise."""
    folder = Path(folder)
    return from_pretrained(folder, device) if _is_exported(folder / CONFIG) else Run.open(folder).trained(device)


def wants(trained: Trained, task: str, purpose: str) -> None:
    """ValueError unless the model was trained for ``task``, which ``purpose`` needs."""
    if trained.config.task != task:
        raise ValueError(f"{purpose} needs a model of {task}, and this is one of {trained.config.task}")


def _is_exported(path: Path) -> bool:
    try:
        return "library_name" in read_json(path)
    except (OSError, ValueError, TypeError):
        return False
