"""Checkpoints that survive kills, power loss and full disks.

Each checkpoint is a folder, ``checkpoints/step-00001234``, written under a temporary name and then renamed:

    model.safetensors       parameters and buffers, by name
    optimizer.safetensors   every other tensor: moments of the optimizer, states of random generators
    state.json              everything else
    manifest.json           format, step, size and sha256 of each file above, and a sha256 of itself; written last

The manifest stays JSON with its own ``sha256`` in every future format, so that damage and a newer format can be told
apart. No file can execute code (no pickle). Only one process at a time may save in a folder.
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
from geoskip.records.files import MANIFEST, DamagedFileError, checksums, pack_manifest, parse_manifest, rename, sync
from geoskip.records.os_errors import WRITE_ERRORS
from geoskip.records.reading import ReadError, parse_json, parse_tensors, read_bytes

FORMAT = 1
MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
# While a checkpoint is replaced by one of the same step, the old one is called step-….old.
_NAME = re.compile(r"step-(\d{8,})(\.old)?")

log = logging.getLogger(__name__)


class CheckpointError(ValueError):
    """A checkpoint is missing, damaged or of another format. The message says which, and what to do."""


class CheckpointNotSaved(OSError):
    """A checkpoint could not be written. The message says why, and which older one is still available."""


@dataclass(frozen=True, eq=False)
class State:
    """Everything that is needed to resume training exactly where it stopped.

    step: number of updates of the weights so far.
    model: the model's ``state_dict()``.
    optimizer: the optimizer's ``state_dict()``.
    progress: everything else, as nested dictionaries and lists of plain finite values and tensors: the sampler's
        position, states of random generators (uint8 tensors), configuration, curves so far.
    """

    step: int
    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Any] = field(default_factory=dict)
    progress: Mapping[str, Any] = field(default_factory=dict)


def save_checkpoint(folder: Path, state: State, keep: int = 2) -> Path:
    """Save ``state`` in ``folder/step-…`` and return that path; then remove all but the ``keep`` newest.

    The checkpoint appears complete or not at all, and older ones are removed only after it is on the disk. Checkpoints
    of later steps were abandoned by resuming before them, and are removed too. If writing fails, CheckpointNotSaved is
    raised and the folder is as it was before.
    """
    target, files = folder / f"step-{state.step:08d}", _to_files(state)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished(folder)
        _write(target, files)
    except OSError as error:
        older = [path.name for path in _newest_first(folder)]
        reason = WRITE_ERRORS.get(error.errno or 0, "the operating system reports an error")
        left = f"{older[0]} is still there" if older else "there is no older one"
        explained = CheckpointNotSaved(f"{target}: not saved: {reason} ({error.strerror or error}); {left}")
        explained.errno = error.errno
        raise explained from error
    prune_checkpoints(folder, state.step, keep)
    return target


def newest_checkpoint(folder: Path) -> Path | None:
    """The undamaged checkpoint of the latest step, None if there is none. Damaged ones are logged and skipped.

    CheckpointError if the newest one is of another format: geoskip does not silently resume from an older one.
    """
    for path in _newest_first(folder):
        try:
            read_checkpoint_files(path)
            return path
        except DamagedFileError as fault:
            log.warning("%s: a damaged checkpoint, skipped: %s", path, fault)
    return None


def load_checkpoint(path: Path) -> State:
    """The state in a checkpoint, on the CPU, after every byte was compared with the manifest; else CheckpointError."""
    if not path.is_dir() or not (_NAME.fullmatch(path.name) or (path / STATE).is_file()):
        raise CheckpointError(f"{path}: there is no such checkpoint; name a folder step-… of a run's checkpoints")
    try:
        manifest, files = read_checkpoint_files(path)
        try:
            rest = unflatten(parse_json(files[STATE]), parse_tensors(files[OPTIMIZER])[0])
            return State(manifest["step"], parse_tensors(files[MODEL])[0], rest["optimizer"], rest["progress"])
        except (ReadError, KeyError, TypeError, AttributeError) as error:
            raise DamagedFileError(f"its files are not those of a checkpoint ({error!r:.200})") from error
    except DamagedFileError as fault:
        raise CheckpointError(f"{path}: {fault}; choose another, or resume from the newest undamaged one") from fault


def checkpoint_step(path: Path) -> int:
    """The step of a checkpoint, from its name."""
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1])


def read_checkpoint_files(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest and the files, after every byte was compared with it; CheckpointError for another format."""
    try:
        manifest = parse_manifest(_bytes(path / MANIFEST))
    except ReadError as error:
        raise DamagedFileError(f"{MANIFEST}: {error}") from error
    if manifest["format"] != FORMAT:
        raise CheckpointError(
            f"{path}: a checkpoint of format {manifest['format']}, but this version reads format {FORMAT}; resume with "
            f"geoskip {manifest.get('geoskip', 'of the version that wrote it')}, or start again in another folder"
        )
    files = {name: _bytes(path / name) for name in (MODEL, OPTIMIZER, STATE)}
    for name, checksum in checksums(files).items():
        if checksum != manifest["files"].get(name):
            raise DamagedFileError(f"{name} does not match its checksum")
    return manifest, files


def remove_unfinished(folder: Path) -> None:
    """Remove what processes left that were killed while they saved a checkpoint."""
    for path in sorted(folder.glob(".step-*")):
        shutil.rmtree(path, ignore_errors=True)


def _to_files(state: State) -> dict[str, bytes]:
    """The names and contents of the files, in the order in which they are written."""
    tensors: dict[str, Tensor] = {}
    plain = flatten({"optimizer": state.optimizer, "progress": state.progress}, tensors)
    files = {
        MODEL: save(cpu_copies(state.model)),
        OPTIMIZER: save(cpu_copies(tensors)),
        STATE: json.dumps(plain, allow_nan=False).encode(),
    }
    manifest = {"format": FORMAT, "geoskip": __version__, "step": state.step, "files": checksums(files)}
    return {**files, MANIFEST: pack_manifest(manifest)}


def _bytes(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except PermissionError:
        raise  # not damage: the user can change it
    except OSError as error:
        raise DamagedFileError(f"{path.name} cannot be read ({error.strerror})") from error


def _write(target: Path, files: Mapping[str, bytes]) -> None:
    temporary = _temporary(target)
    try:
        temporary.mkdir()
        for name, data in files.items():
            (temporary / name).write_bytes(data)
            sync(temporary / name)
        sync(temporary)
        _rename(temporary, target)
        sync(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _rename(source: Path, target: Path) -> None:
    """A folder cannot replace another one in one operation, so the old one is renamed to a name that is still found."""
    if not target.exists():
        rename(source, target)
        return
    old = target.with_name(f"{target.name}.old")
    _remove(old)
    rename(target, old)
    try:
        rename(source, target)
    except OSError:
        rename(old, target)
        raise


def _newest_first(folder: Path) -> list[Path]:
    """Checkpoints, the latest step first; of the same step, the new one before the old one."""
    paths = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(paths, key=lambda path: (-checkpoint_step(path), path.name))


def prune_checkpoints(folder: Path, step: int, keep: int) -> None:
    """Remove abandoned checkpoints and all but the ``keep`` newest, if ``folder`` has one of this step.

    If one cannot be removed, that is only logged: the new one is saved.
    """
    saved, listing = folder / f"step-{step:08d}", _newest_first(folder)
    if saved not in listing:
        return
    index = listing.index(saved)
    if index:
        names = ", ".join(path.name for path in listing[:index])
        log.warning("%s: removed, because training resumed from an earlier step: %s", folder, names)
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
        temporary = _temporary(path)
        rename(path, temporary)
        shutil.rmtree(temporary)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}")


def cpu_copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous copies on the CPU that share no memory, as safetensors requires."""
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}


def flatten(value: Any, tensors: dict[str, Tensor], name: str = "") -> Any:
    """``value`` as plain JSON, with its tensors moved to ``tensors``; ValueError names what fits in neither."""
    prefix = f"{name}." if name else ""
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"$tensor": name}
    if isinstance(value, list | tuple):
        items = [flatten(item, tensors, f"{prefix}{index}") for index, item in enumerate(value)]
        return {"$tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):
        numbered = bool(value) and all(type(key) is int for key in value)
        if not numbered and not all(isinstance(key, str) and not key.startswith("$") for key in value):
            raise ValueError(f"{name}: keys must be strings that do not start with $, or all be integers")
        entries = {str(key): flatten(item, tensors, f"{prefix}{key}") for key, item in value.items()}
        return {"$numbered": entries} if numbered else entries
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(f"{name}: only tensors and finite plain values can be stored, not {value!r}")


def unflatten(plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of :func:`flatten`; KeyError if a tensor is missing."""
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
