"""Trained models in the layout that hubs of models expect: a folder with ``config.json`` and ``model.safetensors``.

``model.safetensors`` holds parameters and buffers by name (topology included) and, as ``context.…``, the constants of
the training data, such as mean and deviation; ``config.json`` the configuration and facts such as the length of a
unit. Nothing else is needed to use the model, the training data least of all, and there is no code in either to run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from geoskip import __version__
from geoskip.records.atomic import write_whole
from geoskip.training.config import Config
from geoskip.training.context import Context
from geoskip.training.rebuild import rebuild_model
from geoskip.training.trees import apart

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
_PREFIX = "context."


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model with everything that is needed to use it.

    config: how it was made.
    model: the model, in evaluation mode.
    context: constants and facts of the data it was trained on.
    """

    config: Config
    model: nn.Module
    context: Context

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def to(self, device: str | torch.device) -> Trained:
        """The model moves, as modules do; constants stay where they are."""
        self.model.to(device)
        return self


def save_pretrained(folder: str | Path, trained: Trained) -> list[Path]:
    """Write ``trained`` to ``folder``; each file is there whole or not at all. Returns their paths."""
    constants = {_PREFIX + name: tensor for name, tensor in trained.context.constants.items()}
    tensors = apart({**trained.model.state_dict(), **constants})
    about = {
        "library_name": "geoskip",
        "architectures": [type(trained.model).__name__],
        "format": FORMAT,
        "geoskip": __version__,
        "config": _without_folders(trained.config).to_json(),
        "facts": dict(trained.context.facts),
    }
    paths = [Path(folder) / WEIGHTS, Path(folder) / CONFIG]
    write_whole(paths[0], save(tensors, {"format": "pt"}))
    write_whole(paths[1], (json.dumps(about, indent=1, allow_nan=False) + "\n").encode())
    return paths


def _without_folders(config: Config) -> Config:
    """Paths as bare names: where the data lie on this machine is of no use to others."""

    def bare(value: Any) -> Any:
        return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value

    options = {name: bare(value) for name, value in config.data_options.items()}
    return replace(config, data=bare(config.data), data_options=options)


def from_pretrained(folder: str | Path, device: str | torch.device = "cpu") -> Trained:
    """What :func:`save_pretrained` wrote; ValueError says what is missing, damaged or of another version."""
    folder = Path(folder)
    about, tensors = _read_config(folder / CONFIG), _read_tensors(folder / WEIGHTS)
    weights = {name: tensor for name, tensor in tensors.items() if not name.startswith(_PREFIX)}
    constants = {name.removeprefix(_PREFIX): tensor for name, tensor in tensors.items() if name.startswith(_PREFIX)}
    try:
        config = Config.from_json(about["config"])
        model = rebuild_model(config, weights, about["facts"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder}: not a whole model: {error}") from error
    return Trained(config, model, Context(constants, about["facts"])).to(device)


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path.parent}: not a pretrained model: it has no {path.name}; `geoskip export` writes one")
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        version = about["format"], about["library_name"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not the description of a model of geoskip") from error
    if version != (FORMAT, "geoskip"):
        raise ValueError(
            f"{path}: a model of {version[1]} in format {version[0]}, and this geoskip reads format {FORMAT}; "
            f"export it again, or use geoskip {about.get('geoskip', 'of the version that wrote it')}"
        )
    return about


def _read_tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ValueError(f"{path.parent}: not a pretrained model: it has no {path.name}")
    try:
        with safe_open(path, framework="pt") as file:
            names = file.keys()
            return {name: file.get_tensor(name) for name in names}
    except SafetensorError as error:
        raise ValueError(f"{path}: damaged, or not a file of weights ({error})") from error
