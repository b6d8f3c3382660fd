"""The folder of a run: what lies in it, and how to take it up again.

config.json           the resolved configuration, with where the data are
metrics.jsonl         what was measured on the way, a line each time
checkpoints/          see geoskip.training.checkpoint
model.safetensors     the weights and buffers at the end
record.json           what came out, see geoskip.records.RunRecord
evaluation.json       what ``geoskip evaluate`` found
samples.safetensors   some items of the test set as the model sees them
manifest.json         checksums of the files above that are complete, see geoskip.records.files
pictures/
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from geoskip.blocks import skip_prefix
from geoskip.data.catalog import OPTIONS, absolute
from geoskip.operators import operator_info
from geoskip.records import EVALUATION_PICTURES, RunRecord, read_record
from geoskip.records.files import (
    DamagedFileError,
    read_manifest,
    read_verified,
    start_manifest,
    verify_folder,
    write_with_checksum,
)
from geoskip.records.reading import parse_json, parse_tensors
from geoskip.training.checkpoint import State, apart, load_checkpoint, newest_checkpoint
from geoskip.training.config import Config
from geoskip.training.tasks import Task, make_task
from geoskip.training.trained import Context, Trained, context_bytes, context_of, read_context, rebuild

CONFIG, METRICS, MODEL, RECORD = "config.json", "metrics.jsonl", "model.safetensors", "record.json"
LOCK = ".lock"
CONTEXT, EVALUATION, SAMPLES, CHECKPOINTS, PICTURES = (
    "context.safetensors",
    "evaluation.json",
    "samples.safetensors",
    "checkpoints",
    "pictures",
)


# In config.json: the path to the data from the folder of the run.
DATA_FROM_RUN = "data_from_run"


class RunError(ValueError):
    """A folder that is no run, or a run that lacks what is asked of it; the message says which."""


@dataclass(frozen=True)
class Run:
    """A run, finished or not. Make one with :meth:`open`, or, to begin it, with :meth:`create`."""

    folder: Path
    config: Config

    @classmethod
    def create(cls, folder: Path, config: Config) -> Run:
        """Make the folder, if need be, and store the configuration, so that its data are found from any folder."""
        folder = Path(folder)
        data, options = absolute(config.data, config.data_options)
        entries = replace(config, data=data, data_options=options).to_json()
        if Path(data).is_absolute():
            with suppress(ValueError):  # there is no way from one drive of Windows to another
                entries[DATA_FROM_RUN] = os.path.relpath(data, folder.resolve())
        start_manifest(folder)
        write_with_checksum(folder / CONFIG, (json.dumps(entries, indent=1) + "\n").encode())
        return cls(folder, config)

    @classmethod
    def open(cls, folder: Path | str, data: str | None = None) -> Run:
        """The run in a folder, whose complete files match their checksums; RunError if there is none.

        ``data`` says where its data are now, if they moved.
        """
        folder = Path(folder)
        if not folder.exists():
            raise RunError(f"{folder}: there is no such run; `geoskip train … -o {folder}` makes one")
        if not (folder / CONFIG).is_file():
            raise RunError(f"{folder}: not the folder of a run: it has no {CONFIG}")
        verify_folder(folder)
        try:
            entries = parse_json(read_verified(folder / CONFIG))
            if "library_name" in entries:
                raise RunError(f"{folder}: an exported model, to be applied; name the run that it was exported from")
            nearby = entries.pop(DATA_FROM_RUN, None)
            config = Config.from_json(entries)
        except RunError:
            raise
        except (ValueError, TypeError, AttributeError) as error:
            raise RunError(f"{folder / CONFIG}: not a configuration that this version reads: {error}") from error
        if data is not None:
            config = replace(config, data=data)
        elif isinstance(nearby, str) and not Path(config.data).exists() and (folder / nearby).exists():
            # Run and data were moved together.
            config = replace(config, data=str((folder / nearby).resolve()))
        return cls(folder, config)

    @property
    def record(self) -> RunRecord:
        """What came out; RunError if the run did not end."""
        if not (self.folder / RECORD).is_file():
            raise RunError(f"{self.folder}: the run has no {RECORD}: it has not ended; resume it with `geoskip train`")
        return read_record(self.folder / RECORD)

    @property
    def checkpoints(self) -> Path:
        return self.folder / CHECKPOINTS

    @property
    def checkpoint(self) -> Path | None:
        """The newest whole checkpoint."""
        return newest_checkpoint(self.checkpoints)

    @property
    def pictures(self) -> Path:
        return self.folder / PICTURES

    def make_task(self, data: Any = None) -> Task:
        """The task, with the data of the configuration or with ``data``."""
        return make_task(self.config, data=data)

    @cached_property
    def weights(self) -> tuple[dict[str, Tensor], int]:
        """The latest weights and buffers, by name, and their step: those at the end, or the newest checkpoint's."""
        checkpoint = self.checkpoint
        step = -1 if checkpoint is None else int(checkpoint.name.split("-")[1].split(".")[0])
        if MODEL in read_manifest(self.folder) and (self.folder / MODEL).is_file():
            tensors, stored = _read_model(self.folder / MODEL)
            if stored >= step:
                return tensors, stored
        if checkpoint is None:
            raise RunError(
                f"{self.folder}: no weights: neither a whole checkpoint nor a complete {MODEL}; train it first"
            )
        return dict(load_checkpoint(checkpoint).model), step

    @property
    def weights_sha256(self) -> str:
        """Checksum of the latest weights: of names, kinds, shapes and numbers, wherever they are stored."""
        digest = sha256()
        for name, tensor in sorted(self.weights[0].items()):
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def discard_evaluation(self) -> None:
        """Remove what ``geoskip evaluate`` wrote: the weights are about to change."""
        (self.folder / EVALUATION).unlink(missing_ok=True)
        for name in EVALUATION_PICTURES:
            (self.pictures / name).unlink(missing_ok=True)

    def model(self, device: str | torch.device = "cpu") -> nn.Module:
        """The trained model, ready for inference; the training data are not needed."""
        return self.trained(device).model

    def trained(self, device: str | torch.device = "cpu") -> Trained:
        """The model with all that is needed to use it."""
        weights, context = self.weights[0], self.context
        try:
            return rebuild(self.config, weights, context, self.folder).to(device)
        except (ValueError, TypeError) as error:
            raise RunError(f"{self.folder}: {error}") from error

    @cached_property
    def context(self) -> Context:
        """Constants and facts of the training data."""
        if not (self.folder / CONTEXT).is_file():
            raise RunError(
                f"{self.folder}: the run has no {CONTEXT}, which is written when training begins; "
                "begin it with `geoskip train`, or put the file back"
            )
        return read_context(self.folder / CONTEXT)

    def write_context(self, task: Task) -> None:
        """Store what the model will need of the data; done before training, since it does not change."""
        write_with_checksum(self.folder / CONTEXT, context_bytes(context_of(task)))

    def write_model(self, model: nn.Module, step: int) -> None:
        """Store the weights of the end."""
        write_with_checksum(self.folder / MODEL, save(apart(model.state_dict()), {"step": str(step)}))


def _read_model(path: Path) -> tuple[dict[str, Tensor], int]:
    try:
        tensors, metadata = parse_tensors(read_verified(path))
        return tensors, int(metadata.get("step", 0))
    except DamagedFileError:
        raise
    except ValueError as error:
        raise RunError(
            f"{path}: damaged, or not a file of weights ({error}); train it again, or put the file back"
        ) from error


log = logging.getLogger(__name__)

# What may differ: how long a run goes on, where, what is told and kept of it, and where its data lie.
FREE = ("optim.epochs", "device", "evaluate_every", "checkpoint_every", "keep", "test_items", "test", "data")
FREE_OPTIONS = tuple(f"data_options.{option.name}" for option in OPTIONS.values() if not option.is_recipe)


def find_state(folder: Path, resume: str | Path) -> State | None:
    """The state to go on from, None to begin; see :func:`geoskip.training.loop.train`."""
    if resume == "never":
        if (folder / CONFIG).exists():
            raise RunError(f"{folder}: holds a run already; choose another folder, or let it go on with resume auto")
        return None
    if resume != "auto":
        return load_checkpoint(Path(resume))
    newest = newest_checkpoint(folder / CHECKPOINTS)
    return None if newest is None else load_checkpoint(newest)


def check_same(config: Config, state: State, folder: Path) -> None:
    """RunError, naming what differs, unless the state is one of a run of this configuration."""
    _compare(config, state.progress["config"], folder)


def is_finished(config: Config, folder: Path) -> bool:
    """Whether the folder holds the end of this very run, its checkpoints being gone; RunError if it is another's."""
    if not {CONFIG, MODEL, RECORD} <= verify_folder(folder):
        return False
    before = Run.open(folder).config
    data, options = absolute(config.data, config.data_options)
    _compare(replace(config, data=data, data_options=options), before.to_json(), folder)
    if config.optim.epochs != before.optim.epochs:
        raise RunError(
            f"{folder}: holds a finished run of {before.optim.epochs} epochs whose checkpoints are gone, so it cannot "
            f"become one of {config.optim.epochs}; choose another folder"
        )
    return True


def is_complete(folder: Path) -> bool:
    """Whether the folder holds every file of a finished run, undamaged; if not, resuming it writes them again."""
    try:
        return {CONFIG, CONTEXT, MODEL, RECORD} <= verify_folder(folder)
    except DamagedFileError as error:
        log.warning("%s. It is made again from the last checkpoint", error)
        return False


def _compare(config: Config, entries: Mapping[str, Any], folder: Path) -> None:
    # A run that an older version began lacks settings that are new; it had their defaults.
    begun, given = _leaves(Config.from_json(entries).to_json()), _leaves(config.to_json())
    for name in sorted(begun.keys() | given.keys()):
        if begun.get(name) != given.get(name) and name not in FREE + FREE_OPTIONS:
            raise RunError(
                f"{name}: the run in {folder} was begun with {begun.get(name)}, and now it is {given.get(name)}; "
                "say the same, or choose another folder"
            )


def is_done(config: Config, state: State) -> bool:
    """Whether the state is that at the end of training."""
    items = state.progress["sampler"]["num_items"]
    return state.step >= -(-items // min(config.optim.batch, items)) * config.optim.epochs


def _leaves(entries: Mapping[str, Any]) -> dict[str, Any]:
    return dict(_walk("", entries))


def _walk(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield prefix, value
        return
    for key, inner in value.items():
        yield from _walk(f"{prefix}.{key}" if prefix else key, inner)


def method_name(config: Config) -> str:
    """The paper's name of operator and skip: ``Aff-MoNet``, and † where the center vertex is left out."""
    operator = operator_info(config.operator)
    without = any(config.options.get(option) == value for option, value in operator.without_center.items())
    return skip_prefix(config.skip) + operator.title + "†" * without


def row_name(config: Config) -> str:
    """The same with the kernel size: ``Aff-MoNet M=9``."""
    return method_name(config) + (f" M={config.kernel_size}" if config.kernel_size else "")
