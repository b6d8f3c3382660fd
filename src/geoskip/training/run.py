"""The folder of a run: its files, and whether and where to resume it.

config.json           the resolved configuration, with the location of the data
context.safetensors   what the trained model needs of its training data
metrics.jsonl         metrics during training, one line per epoch and evaluation
checkpoints/          see geoskip.training.checkpoint
model.safetensors     the final weights and buffers
record.json           the results, see geoskip.records.RunRecord
evaluation.json       the results of ``geoskip evaluate``
samples.safetensors   some test items with the model's output
items.safetensors     the error of each test item
manifest.json         checksums of the complete files above, see geoskip.records.files
pictures/
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
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
from geoskip.records.reading import parse_json, parse_tensors, read_json
from geoskip.training.checkpoint import State, checkpoint_step, cpu_copies, load_checkpoint, newest_checkpoint
from geoskip.training.config import Config
from geoskip.training.tasks import Task, find_task
from geoskip.training.trained import Context, Trained, context_bytes, read_context, rebuild, weights_sha256

CONFIG, METRICS, MODEL, RECORD = "config.json", "metrics.jsonl", "model.safetensors", "record.json"
CONTEXT, EVALUATION, SAMPLES = "context.safetensors", "evaluation.json", "samples.safetensors"
ITEMS = "items.safetensors"
CHECKPOINTS, PICTURES, LOCK = "checkpoints", "pictures", ".lock"
# The key in config.json of the data's path relative to the run's folder.
DATA_FROM_RUN = "data_from_run"
# Settings that may change when a run is resumed: they do not change what is computed in an epoch. The results of a
# finished run depend on the first group.
IN_RESULTS = {
    *("optim.epochs", "test_items", "test", "data"),
    *(f"data_options.{option.name}" for option in OPTIONS.values() if not option.is_recipe and option.kind is Path),
}
CHANGEABLE = {
    *IN_RESULTS,
    *("device", "evaluate_every", "checkpoint_every", "keep"),
    "init_from",  # only where it is: the weights are compared by init_sha256
    *(f"data_options.{option.name}" for option in OPTIONS.values() if not option.is_recipe),
}

log = logging.getLogger(__name__)


class RunError(ValueError):
    """A folder that is not a run, or a run that lacks what is needed; the message says which."""


@dataclass(frozen=True)
class Run:
    """A run, finished or not. Open one with :meth:`open`, or start one with :meth:`create`."""

    folder: Path
    config: Config

    @classmethod
    def create(cls, folder: Path, config: Config) -> Run:
        """Create the folder and store the configuration, with the data's path made absolute and relative to the run."""
        folder = Path(folder)
        data, options = absolute(config.data, config.data_options)
        source = config.init_from
        if source is not None and Path(source).exists():
            source = str(Path(source).resolve())
        entries = replace(config, data=data, data_options=options, init_from=source).to_json()
        if Path(data).is_absolute():
            with suppress(ValueError):  # Windows has no relative path from one drive to another
                entries[DATA_FROM_RUN] = os.path.relpath(data, folder.resolve())
        start_manifest(folder)
        created = cls(folder, config)
        created.discard_evaluation()
        write_with_checksum(folder / CONFIG, (json.dumps(entries, indent=1) + "\n").encode())
        return created

    @classmethod
    def open(cls, folder: Path | str, data: str | None = None) -> Run:
        """The run in a folder, whose complete files match their checksums; RunError if there is none.

        Pass ``data`` if the data have moved.
        """
        folder = Path(folder)
        if not folder.exists():
            raise RunError(f"{folder}: there is no such run; `geoskip train … -o {folder}` starts one")
        if not (folder / CONFIG).is_file():
            raise RunError(f"{folder}: not the folder of a run: it has no {CONFIG}")
        if is_exported(folder):
            raise RunError(f"{folder}: an exported model, not a run; name the run that it was exported from")
        verify_folder(folder)
        try:
            entries = parse_json(read_verified(folder / CONFIG))
            nearby = entries.pop(DATA_FROM_RUN, None)
            config = Config.from_json(entries)
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
        """The results; RunError if the run is not finished."""
        if not (self.folder / RECORD).is_file():
            raise RunError(f"{self.folder}: no {RECORD}: the run is not finished; resume it with `geoskip train`")
        return read_record(self.folder / RECORD)

    @property
    def checkpoints(self) -> Path:
        return self.folder / CHECKPOINTS

    @property
    def checkpoint(self) -> Path | None:
        """The newest undamaged checkpoint."""
        return newest_checkpoint(self.checkpoints)

    @property
    def pictures(self) -> Path:
        return self.folder / PICTURES

    @cached_property
    def weights(self) -> tuple[dict[str, Tensor], int]:
        """The latest weights and buffers by name, and their step: the final ones, or those of the newest checkpoint."""
        checkpoint, path = self.checkpoint, self.folder / MODEL
        step = -1 if checkpoint is None else checkpoint_step(checkpoint)
        if MODEL in read_manifest(self.folder) and path.is_file():
            try:
                tensors, metadata = parse_tensors(read_verified(path))
                stored = int(metadata.get("step", 0))
            except DamagedFileError:
                raise
            except ValueError as error:
                raise RunError(
                    f"{path}: damaged, or not a file of weights ({error}); restore the file, or train again"
                ) from error
            if stored >= step:
                return tensors, stored
        if checkpoint is None:
            raise RunError(
                f"{self.folder}: no weights: neither an undamaged checkpoint nor a complete {MODEL}; train it first"
            )
        return dict(load_checkpoint(checkpoint).model), step

    @property
    def weights_sha256(self) -> str:
        """Checksum of the names, types, shapes and values of the latest weights."""
        return weights_sha256(self.weights[0])

    def discard_evaluation(self) -> None:
        """Remove the files of ``geoskip evaluate``, because the weights or the test items are about to change."""
        (self.folder / EVALUATION).unlink(missing_ok=True)
        for name in EVALUATION_PICTURES:
            (self.pictures / name).unlink(missing_ok=True)

    def model(self, device: str | torch.device = "cpu") -> nn.Module:
        """The trained model in evaluation mode. The training data are not needed."""
        return self.trained(device).model

    def trained(self, device: str | torch.device = "cpu") -> Trained:
        """The model with everything needed to use it."""
        weights, context = self.weights[0], self.context
        try:
            return rebuild(find_task(self.config.task), self.config, weights, context, self.folder).to(device)
        except (ValueError, TypeError) as error:
            raise RunError(f"{self.folder}: {error}") from error

    @cached_property
    def context(self) -> Context:
        """Constants and facts of the training data."""
        if not (self.folder / CONTEXT).is_file():
            raise RunError(
                f"{self.folder}: the run has no {CONTEXT}, which is written when training starts; restore the file, or "
                "train again"
            )
        return read_context(self.folder / CONTEXT, find_task(self.config.task).context_class)

    def write_context(self, task: Task) -> None:
        """Store what the model will need of the data; done before training, since it does not change."""
        write_with_checksum(self.folder / CONTEXT, context_bytes(task.context()))

    def write_model(self, model: nn.Module, step: int) -> None:
        """Store the final weights."""
        write_with_checksum(self.folder / MODEL, save(cpu_copies(model.state_dict()), {"step": str(step)}))


def is_exported(folder: Path) -> bool:
    """Whether ``geoskip export`` wrote the folder."""
    try:
        return "library_name" in read_json(folder / CONFIG)
    except (OSError, ValueError, TypeError):
        return False


def find_state(run: Run, resume: str | Path) -> State | None:
    """The state to resume from, None to start from the beginning; see :func:`geoskip.training.loop.train`.

    RunError if the folder must not be resumed, or if the state is of a run with other settings.
    """
    if is_exported(run.folder):
        raise RunError(f"{run.folder}: contains an exported model; choose another folder")
    if resume == "never":
        if (run.folder / CONFIG).exists():
            raise RunError(
                f"{run.folder}: contains a run, and resume is never; choose another folder, or resume with auto"
            )
        return None
    checkpoint = run.checkpoint if resume == "auto" else Path(resume)
    if checkpoint is None:
        return None
    state = load_checkpoint(checkpoint)
    check_settings(run.config, state.progress["config"], run.folder if resume == "auto" else checkpoint)
    return state


def is_finished(run: Run, state: State | None) -> bool:
    """Whether the folder contains this run, complete, undamaged, and evaluated on the same items, so that nothing is
    left to do. Otherwise what is missing is written from ``state``, the newest checkpoint.

    RunError if the run cannot become the one that is asked for.
    """
    config, folder, needed = run.config, run.folder, {CONFIG, MODEL, RECORD}
    if state is not None:
        needed.add(CONTEXT)
        epochs = config.optim.epochs
        steps = config.optim.steps_per_epoch(state.progress["num_items"]) * epochs
        if state.step < steps:
            return False
        if state.step > steps:
            raise RunError(
                f"optim.epochs: the run in {folder} was trained for {state.step:,} steps, more than the {steps:,} steps"
                f" of {epochs} {'epoch' if epochs == 1 else 'epochs'}; ask for more epochs, or choose another folder"
            )
    try:
        complete = verify_folder(folder)
    except DamagedFileError as error:
        if state is None:
            raise
        log.warning("%s. It is written again from the last checkpoint", error)
        return False
    if not needed <= complete:
        return False
    data, options = absolute(config.data, config.data_options)
    before, now = Run.open(folder).config, replace(config, data=data, data_options=options)
    changed = {name: values for name, values in changed_settings(before, now).items() if name in IN_RESULTS}
    if state is None:
        check_settings(now, before.to_json(), folder)
        for name, (old, new) in changed.items():
            raise RunError(
                f"{folder}: contains a finished run without checkpoints, so it cannot be extended to {name} {new} "
                f"from {old}; choose another folder"
            )
    return not changed


def check_settings(config: Config, started_with: Mapping[str, Any], folder: Path) -> None:
    """RunError, naming the setting, if a run cannot be resumed because it was started with another value."""
    # Settings that are missing in an older configuration had their defaults.
    before = Config.from_json(started_with)
    if before.init_sha256 != config.init_sha256:
        begun, now = (
            "new weights" if source is None else f"the weights of {source}"
            for source in (before.init_from, config.init_from)
        )
        now = now if now != begun else "those that it has now"
        raise RunError(f"init_from: the run in {folder} was started with {begun}, not {now}; choose another folder")
    for name, (old, new) in changed_settings(before, config).items():
        if name not in CHANGEABLE:
            raise RunError(
                f"{name}: the run in {folder} was started with {old}, not {new}; use the same value, or choose another "
                "folder"
            )


def changed_settings(before: Config, now: Config) -> dict[str, tuple[str, str]]:
    """The settings that differ, by their dotted names, with both values."""
    olds, news = before.flat(), now.flat()
    pairs = {name: (olds.get(name), news.get(name)) for name in sorted(olds.keys() | news.keys())}
    return {
        name: ("the default" if old is None else str(old), "the default" if new is None else str(new))
        for name, (old, new) in pairs.items()
        if old != new
    }


def method_name(config: Config) -> str:
    """The paper's name of operator and skip: ``Aff-MoNet``, with † if the center vertex is left out."""
    operator = operator_info(config.operator)
    without = any(config.options.get(option) == value for option, value in operator.without_center.items())
    return skip_prefix(config.skip) + operator.title + "†" * without


def row_name(config: Config) -> str:
    """The same with the kernel size: ``Aff-MoNet M=9``."""
    return method_name(config) + (f" M={config.kernel_size}" if config.kernel_size else "")
