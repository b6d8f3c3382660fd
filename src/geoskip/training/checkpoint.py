"""Checkpoints that survive kills, power loss and full disks: a folder each, written aside and renamed into place.

``checkpoints/step-00001234`` holds the files of :mod:`geoskip.training.checkpoint_files`. One process at a time saves
in a folder.
"""

from __future__ import annotations

import logging
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from geoskip.records.refusals import REASONS
from geoskip.records.system import rename_folder, sync
from geoskip.training.checkpoint_files import CheckpointError, Damaged, State, from_files, read_files, to_files

__all__ = [
    "CheckpointError",
    "CheckpointNotSaved",
    "State",
    "load_checkpoint",
    "newest_checkpoint",
    "remove_unfinished",
    "save_checkpoint",
]

log = logging.getLogger(__name__)

# While a checkpoint is replaced by one of the same step it is called step-….old.
_NAME = re.compile(r"step-(\d{8,})(\.old)?")


class CheckpointNotSaved(OSError):
    """The system refused to write a checkpoint; the message says why, and which older one is still there."""


def save_checkpoint(folder: Path, state: State, keep: int = 2) -> Path:
    """Save ``state`` in ``folder/step-…`` and return that path; then all but the ``keep`` newest are removed.

    It is there whole or not at all, and older ones are touched only once it is on the disk. Checkpoints of later steps
    belong to a history that was given up by resuming before them, and are removed too. Raises CheckpointNotSaved where
    the system refuses; what was begun is then gone, and what was there before is still there.
    """
    if keep < 1:
        raise ValueError(f"keep: at least 1 checkpoint has to be kept, got {keep}")
    target, files = folder / f"step-{state.step:08d}", to_files(state)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished(folder)
        _write(target, files)
    except OSError as error:
        raise _not_saved(target, error) from error
    _prune(folder, target, keep)
    return target


def newest_checkpoint(folder: Path) -> Path | None:
    """The whole checkpoint of the latest step; damaged ones are skipped with a warning that names them.

    None where there is no whole one. CheckpointError for one of another format: to go on from an older one instead
    has to be decided, not guessed.
    """
    for path in _listing(folder):
        try:
            read_files(path)
            return path
        except Damaged as fault:
            log.warning("%s: a damaged checkpoint, skipped: %s", path, fault)
    return None


def load_checkpoint(path: Path) -> State:
    """The state in a checkpoint, on the CPU, after every byte was compared with the manifest; else CheckpointError."""
    if not path.is_dir():
        raise CheckpointError(f"{path}: there is no such checkpoint; name a folder step-… of a run's checkpoints")
    try:
        return from_files(path)
    except Damaged as fault:
        raise CheckpointError(f"{path}: {fault}; choose another, or resume with the newest whole one") from fault


def _write(target: Path, files: Mapping[str, bytes]) -> None:
    aside = _aside(target)
    try:
        aside.mkdir()
        for name, data in files.items():
            (aside / name).write_bytes(data)
            sync(aside / name)
        sync(aside)
        _put_in_place(aside, target)
        sync(target.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _put_in_place(aside: Path, target: Path) -> None:
    """A folder cannot replace another in one step, so the other keeps a name under which it would be found."""
    if not target.exists():
        rename_folder(aside, target)
        return
    old = target.with_name(f"{target.name}.old")
    _remove(old)
    rename_folder(target, old)
    try:
        rename_folder(aside, target)
    except OSError:
        rename_folder(old, target)
        raise


def _listing(folder: Path) -> list[Path]:
    """Checkpoints, the latest step first, and what replaces another before what it replaces."""
    if not folder.is_dir():
        return []
    found = [(match, path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found, key=lambda pair: (-int(pair[0][1]), pair[0][2] or ""))]


def _prune(folder: Path, saved: Path, keep: int) -> None:
    """A checkpoint that cannot be removed does no harm: the new one is saved, and nothing is raised."""
    listing = _listing(folder)
    place = listing.index(saved)
    if place:
        names = ", ".join(path.name for path in listing[:place])
        log.warning("%s: removed, as training went on from before them: %s", folder, names)
    earlier = [path for path in listing[place + 1 :] if not path.name.endswith(".old")]
    for path in listing:
        if path != saved and path not in earlier[: keep - 1]:
            try:
                _remove(path)
            except OSError as error:
                log.warning("%s: an old checkpoint that could not be removed: %s", path, error.strerror)


def _remove(path: Path) -> None:
    """Rename first, so that a reader never sees a half-deleted checkpoint."""
    if path.exists():
        aside = _aside(path)
        rename_folder(path, aside)
        shutil.rmtree(aside)


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}")


def remove_unfinished(folder: Path) -> None:
    """Remove what was left when a process was killed while it saved a checkpoint."""
    for path in sorted(folder.glob(".step-*")):
        shutil.rmtree(path, ignore_errors=True)


def _not_saved(target: Path, error: OSError) -> CheckpointNotSaved:
    older = [path.name for path in _listing(target.parent)]
    reason = REASONS.get(error.errno or 0, "the system refused")
    left = f"{older[0]} is still there" if older else "there is no older one"
    told = CheckpointNotSaved(f"{target}: not saved: {reason} ({error.strerror or error}); {left}")
    told.errno = error.errno
    return told
