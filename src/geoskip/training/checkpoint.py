"""Checkpoints that survive kills, power loss and full disks.

Each checkpoint is a folder, ``checkpoints/step-00001234``, written under a temporary name and then renamed:

    model.safetensors       parameters and buffers, by name
    optimiser.safetensors   every other tensor: moments of the optimizer, states of random generators
    state.json              everything else
    manifest.json           format, step, size and sha256 of each file above, and a sha256 of itself; written last

The manifest stays JSON with its own ``sha256`` in every future format, so that damage can be told from a newer format.
No file can execute code (no pickle). Only one process at a time may save in a folder.
"""

from __future__ import annotations

import json
import logging
import math
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from geoskip import __version__
from geoskip.records.files import MANIFEST, checksums, pack_manifest, parse_manifest, rename_folder, sync
from geoskip.records.os_errors import WRITE_ERRORS
from geoskip.records.reading import ReadError, parse_json, parse_tensors, read_bytes

FORMAT = 1
MODEL, OPTIMIZER, STATE = "model.safetensors", "optimiser.safetensors", "state.json"


class CheckpointError(ValueError):
    """A checkpoint is missing, damaged or of another format. The message says which, and what to do."""


class Damaged(Exception):
    """What is wrong with a checkpoint."""


@dataclass(frozen=True, eq=False)
class State:
    """Everything that is needed to resume training exactly where it stopped.

    step: updates of the weights so far.
    model: the model's ``state_dict()``.
    optimizer: the optimizer's ``state_dict()``.
    progress: whatever else, as nested dictionaries and lists of plain finite values and tensors: place of the sampler,
        states of random generators (uint8 tensors), configuration, curves so far.
    """

    step: int
    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Any] = field(default_factory=dict)
    progress: Mapping[str, Any] = field(default_factory=dict)


def to_files(state: State) -> dict[str, bytes]:
    """Names and contents, in the order in which they are to be written."""
    plain, tensors = flatten({"optimiser": state.optimizer, "progress": state.progress})
    files = {
        MODEL: save(apart(state.model)),
        OPTIMIZER: save(apart(tensors)),
        STATE: json.dumps(plain, allow_nan=False).encode(),
    }
    manifest = {"format": FORMAT, "geoskip": __version__, "step": state.step, "files": checksums(files)}
    return {**files, MANIFEST: pack_manifest(manifest)}


def from_files(path: Path) -> State:
    """The state in a folder, on the CPU; Damaged, or CheckpointError for another format."""
    manifest, files = read_files(path)
    try:
        rest = unflatten(parse_json(files[STATE]), parse_tensors(files[OPTIMIZER])[0])
        return State(manifest["step"], parse_tensors(files[MODEL])[0], rest["optimiser"], rest["progress"])
    except (ReadError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"its files are not those of a checkpoint ({error!r:.200})") from error


def read_files(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest and the files, which agree with it byte for byte; Damaged, or CheckpointError for another format."""
    manifest = _manifest(path)
    if manifest["format"] != FORMAT:
        raise CheckpointError(
            f"{path}: a checkpoint of format {manifest['format']}, and this geoskip reads format {FORMAT}; resume with "
            f"geoskip {manifest.get('geoskip', 'of the version that wrote it')}, or train anew in another folder"
        )
    files = {}
    for name in (MODEL, OPTIMIZER, STATE):
        files[name] = _bytes(path / name)
        if checksums({name: files[name]})[name] != manifest["files"].get(name):
            raise Damaged(f"{name} does not match its checksum")
    return manifest, files


def _manifest(path: Path) -> dict[str, Any]:
    try:
        return parse_manifest(_bytes(path / MANIFEST))
    except ReadError as error:
        raise Damaged(f"{MANIFEST}: {error}") from error


def _bytes(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except PermissionError:
        raise  # not damage: the user can change it
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read ({error.strerror})") from error


log = logging.getLogger(__name__)

# While a checkpoint is replaced by one of the same step it is called step-….old.
_NAME = re.compile(r"step-(\d{8,})(\.old)?")


class CheckpointNotSaved(OSError):
    """The system refused to write a checkpoint. The message says why, and which older one is still available."""


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
    matches = [(match, path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(matches, key=lambda pair: (-int(pair[0][1]), pair[0][2] or ""))]


def _prune(folder: Path, saved: Path, keep: int) -> None:
    """A checkpoint that cannot be removed does no harm: the new one is saved, and nothing is raised."""
    listing = _listing(folder)
    index = listing.index(saved)
    if index:
        names = ", ".join(path.name for path in listing[:index])
        log.warning("%s: removed, as training went on from before them: %s", folder, names)
    earlier = [path for path in listing[index + 1 :] if not path.name.endswith(".old")]
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
    reason = WRITE_ERRORS.get(error.errno or 0, "the system refused")
    left = f"{older[0]} is still there" if older else "there is no older one"
    explained = CheckpointNotSaved(f"{target}: not saved: {reason} ({error.strerror or error}); {left}")
    explained.errno = error.errno
    return explained


Tensors = dict[str, Tensor]


def flatten(tree: Any, name: str = "") -> tuple[Any, Tensors]:
    """``tree`` as plain JSON, and its tensors by name; ValueError names what fits in neither."""
    tensors: Tensors = {}
    return _plain(tree, name, tensors), tensors


def unflatten(plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    """What :func:`flatten` was given; KeyError where a tensor is missing."""
    if isinstance(plain, list):
        return [unflatten(value, tensors) for value in plain]
    if not isinstance(plain, dict):
        return plain
    if "$tensor" in plain:
        return tensors[plain["$tensor"]]
    if "$tuple" in plain:
        return tuple(unflatten(value, tensors) for value in plain["$tuple"])
    if "$numbered" in plain:
        return {int(key): unflatten(value, tensors) for key, value in plain["$numbered"].items()}
    return {key: unflatten(value, tensors) for key, value in plain.items()}


def apart(tensors: Mapping[str, Tensor]) -> Tensors:
    """Contiguous copies on the CPU that share no memory: safetensors takes nothing else."""
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}


def _plain(value: Any, name: str, tensors: Tensors) -> Any:
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"$tensor": name}
    if isinstance(value, Mapping):
        return _plain_mapping(value, name, tensors)
    if isinstance(value, list | tuple):
        items = [_plain(item, _below(name, index), tensors) for index, item in enumerate(value)]
        return {"$tuple": items} if isinstance(value, tuple) else items
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(f"{name}: only tensors and finite plain values can be stored, not {value!r}")


def _plain_mapping(value: Mapping[Any, Any], name: str, tensors: Tensors) -> Any:
    items = {str(key): _plain(item, _below(name, key), tensors) for key, item in value.items()}
    if value and all(type(key) is int for key in value):
        return {"$numbered": items}
    if not all(isinstance(key, str) and not key.startswith("$") for key in value):
        raise ValueError(f"{name}: keys must be all words that do not begin with $, or all whole numbers")
    return items


def _below(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)
