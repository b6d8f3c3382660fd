"""Which checkpoint a run goes on from, and whether it is one of the same run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from geoskip.data.catalog import OPTIONS, absolute
from geoskip.records.manifest import DamagedFile, check_folder
from geoskip.training.checkpoint import State, load_checkpoint, newest_checkpoint
from geoskip.training.config import Config
from geoskip.training.run import CHECKPOINTS, CONFIG, CONTEXT, MODEL, RECORD, Run, RunError

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
    if not {CONFIG, MODEL, RECORD} <= check_folder(folder):
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
        return {CONFIG, CONTEXT, MODEL, RECORD} <= check_folder(folder)
    except DamagedFile as error:
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
