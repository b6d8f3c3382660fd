"""Trained models in the layout that hubs of models expect: a folder with ``config.json`` and ``model.safetensors``.

``model.safetensors`` holds parameters and buffers by name (topology included) and, as ``context.…``, the constants of
the training data, such as mean and deviation; ``config.json`` the configuration and facts such as the length of a
unit. Nothing else is needed to use the model, the training data least of all, and there is no code in either to run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from geoskip import __version__
from geoskip.records.manifest import MANIFEST, DamagedFile, check_folder, read_checked, start_manifest, write_listed
from geoskip.records.reading import ReadError, parse_json, parse_tensors
from geoskip.training.config import Config
from geoskip.training.context import Context, check_context, check_sizes
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
    """Write ``trained`` to ``folder``, with the checksums of its files in ``manifest.json``. Returns their paths."""
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
    start_manifest(Path(folder))
    write_listed(paths[0], save(tensors, {"format": "pt"}))
    write_listed(paths[1], (json.dumps(about, indent=1, allow_nan=False) + "\n").encode())
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
    about = _read_config(folder / CONFIG)
    _check_complete(folder)
    tensors = _read_tensors(folder / WEIGHTS)
    weights = {name: tensor for name, tensor in tensors.items() if not name.startswith(_PREFIX)}
    constants = {name.removeprefix(_PREFIX): tensor for name, tensor in tensors.items() if name.startswith(_PREFIX)}
    try:
        config = Config.from_json(about["config"])
        trained = rebuild(config, weights, Context(constants, about["facts"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder}: not a whole model: {error}") from error
    return trained.to(device)


def rebuild(config: Config, weights: Mapping[str, Tensor], context: Context) -> Trained:
    """A trained model from what was stored of it, after all of it was checked; ValueError says what does not fit."""
    check_context(config.task, context)
    model = rebuild_model(config, weights, context.facts)
    check_sizes(context, model)
    return Trained(config, model, context)


def _check_complete(folder: Path) -> None:
    if not (folder / WEIGHTS).is_file():
        raise ValueError(f"{folder}: not a pretrained model: it has no {WEIGHTS}")
    if missing := [name for name in (WEIGHTS, CONFIG) if name not in check_folder(folder)]:
        raise ValueError(f"{folder}: {missing[0]} has no checksum in {MANIFEST}; export the model again")


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path.parent}: not a pretrained model: it has no {path.name}; `geoskip export` writes one")
    try:
        about = parse_json(read_checked(path))
        version = about["format"], about["library_name"]
    except DamagedFile:
        raise
    except (ReadError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not the description of a model of geoskip") from error
    if version != (FORMAT, "geoskip"):
        raise ValueError(
            f"{path}: a model of {version[1]} in format {version[0]}, and this geoskip reads format {FORMAT}; "
            f"export it again, or use geoskip {about.get('geoskip', 'of the version that wrote it')}"
        )
    return about


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return parse_tensors(read_checked(path))[0]
    except ReadError as error:
        raise ValueError(f"{path}: damaged, or not a file of weights ({error})") from error
