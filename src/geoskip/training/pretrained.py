"""Trained models in folders as model hubs expect them, with ``config.json`` and ``model.safetensors``.

The latter holds parameters and buffers by name (topology included) and, as ``context.…``, the constants of the training
data, such as mean and deviation; ``config.json`` the configuration and facts such as the length of a unit. The training
data are not needed to use the model, and neither file can execute code (no pickle).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from geoskip import __version__
from geoskip.records.files import (
    MANIFEST,
    DamagedFileError,
    read_verified,
    start_manifest,
    verify_folder,
    write_with_checksum,
)
from geoskip.records.reading import ReadError, parse_json, parse_tensors, read_bytes
from geoskip.training.checkpoint import cpu_copies
from geoskip.training.config import Config
from geoskip.training.run import CONTEXT, Run, is_exported
from geoskip.training.tasks import find_task
from geoskip.training.trained import Trained, rebuild

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
_PREFIX = "context."


def save_pretrained(folder: str | Path, trained: Trained) -> list[Path]:
    """Write ``trained`` to ``folder``, with the checksums of its files in ``manifest.json``. Returns their paths."""
    constants = {_PREFIX + name: tensor for name, tensor in trained.context.constants.items()}
    tensors = cpu_copies({**trained.model.state_dict(), **constants})
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
    write_with_checksum(paths[0], save(tensors, {"format": "pt"}))
    write_with_checksum(paths[1], (json.dumps(about, indent=1, allow_nan=False) + "\n").encode())
    return paths


def _without_folders(config: Config) -> Config:
    """Paths as bare names: where data and models are on this machine is of no use to others."""

    def bare(value: Any) -> Any:
        return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value

    options = {name: bare(value) for name, value in config.data_options.items()}
    return replace(config, data=bare(config.data), data_options=options, init_from=bare(config.init_from))


def from_pretrained(folder: str | Path, device: str | torch.device = "cpu") -> Trained:
    """Load what :func:`save_pretrained` wrote. ValueError says what is missing, damaged or of another version."""
    folder = Path(folder)
    about = _read_config(folder / CONFIG)
    if not (folder / WEIGHTS).is_file():
        raise ValueError(f"{folder}: not a pretrained model: it has no {WEIGHTS}")
    if missing := [name for name in (WEIGHTS, CONFIG) if name not in verify_folder(folder)]:
        raise ValueError(f"{folder}: {missing[0]} has no checksum in {MANIFEST}; export the model again")
    try:
        tensors, _ = parse_tensors(read_bytes(folder / WEIGHTS))
        names = [name for name in tensors if name.startswith(_PREFIX)]
        constants = {name.removeprefix(_PREFIX): tensors.pop(name) for name in names}
        config = Config.from_json(about["config"])
        task = find_task(config.task)
        trained = rebuild(task, config, tensors, task.context_class.from_parts(constants, about["facts"]), folder)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder}: cannot load the model: {error}") from error
    return trained.to(device)


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path.parent}: not a pretrained model: it has no {path.name}; `geoskip export` writes one")
    if (path.parent / CONTEXT).is_file():
        raise ValueError(
            f"{path.parent}: a run, not a pretrained model; use geoskip.inference.load, or `geoskip export`"
        )
    try:
        about = parse_json(read_verified(path))
        version = about["format"], about["library_name"]
    except DamagedFileError:
        raise
    except (ReadError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not the configuration of a geoskip model") from error
    if version != (FORMAT, "geoskip"):
        raise ValueError(
            f"{path}: a model of {version[1]} in format {version[0]}, but this version reads format {FORMAT}; "
            f"export it again, or use geoskip {about.get('geoskip', 'of the version that wrote it')}"
        )
    return about


def load(folder: str | Path, device: str | torch.device = "cpu") -> Trained:
    """Load a trained model from the folder of a run or of ``geoskip export``. ValueError if the folder is neither."""
    folder = Path(folder)
    return from_pretrained(folder, device) if is_exported(folder) else Run.open(folder).trained(device)
