"""A checkpoint as files: what they hold, and whether they are whole.

    model.safetensors       parameters and buffers, by name
    optimiser.safetensors   every other tensor: moments of the optimiser, states of random generators
    state.json              everything else
    manifest.json           format, step, size and sha256 of each file above, and a sha256 of itself; written last

In all formats to come the manifest stays JSON with its own ``sha256``, so that damage and another format are told
apart. There is no code in any file to run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from geoskip import __version__
from geoskip.training.trees import apart, flatten, unflatten

FORMAT = 1
MODEL, OPTIMISER, STATE, MANIFEST = "model.safetensors", "optimiser.safetensors", "state.json", "manifest.json"


class CheckpointError(ValueError):
    """A checkpoint that is damaged, of another format, or none at all; the message says which and what to do."""


class Damaged(Exception):
    """What is wrong with a checkpoint."""


@dataclass(frozen=True, eq=False)
class State:
    """Everything that training needs to go on as if nothing had happened.

    step: updates of the weights so far.
    model: the model's ``state_dict()``.
    optimiser: the optimiser's ``state_dict()``.
    progress: whatever else, as nested dictionaries and lists of plain finite values and tensors: place of the sampler,
        states of random generators (uint8 tensors), configuration, curves so far.
    """

    step: int
    model: Mapping[str, Tensor]
    optimiser: Mapping[str, Any] = field(default_factory=dict)
    progress: Mapping[str, Any] = field(default_factory=dict)


def to_files(state: State) -> dict[str, bytes]:
    """Names and contents, in the order in which they are to be written."""
    plain, tensors = flatten({"optimiser": state.optimiser, "progress": state.progress})
    files = {
        MODEL: save(apart(state.model)),
        OPTIMISER: save(apart(tensors)),
        STATE: json.dumps(plain, allow_nan=False).encode(),
    }
    sums = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    manifest = {"format": FORMAT, "geoskip": __version__, "step": state.step, "files": sums}
    return {**files, MANIFEST: json.dumps(manifest | {"sha256": _digest(manifest)}, indent=1).encode()}


def from_files(path: Path) -> State:
    """The state in a folder, on the CPU; Damaged, or CheckpointError for another format."""
    manifest, files = read_files(path)
    rest = unflatten(json.loads(files[STATE]), load(files[OPTIMISER]))
    return State(manifest["step"], load(files[MODEL]), rest["optimiser"], rest["progress"])


def read_files(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest and the files, which agree with it byte for byte; Damaged, or CheckpointError for another format."""
    manifest = _manifest(path)
    if manifest["format"] != FORMAT:
        raise CheckpointError(
            f"{path}: a checkpoint of format {manifest['format']}, and this geoskip reads format {FORMAT}; resume with "
            f"geoskip {manifest.get('geoskip', 'of the version that wrote it')}, or train anew in another folder"
        )
    files = {}
    for name in (MODEL, OPTIMISER, STATE):
        files[name] = _bytes(path / name)
        if hashlib.sha256(files[name]).hexdigest() != manifest["files"][name]["sha256"]:
            raise Damaged(f"{name} does not match its checksum")
    return manifest, files


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(_bytes(path / MANIFEST))
        checksum = manifest.pop("sha256")
        sound = checksum == _digest(manifest)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{MANIFEST} cannot be read") from error
    if not sound:
        raise Damaged(f"{MANIFEST} does not match its checksum")
    return manifest


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except PermissionError:
        raise  # not damage: the user can change it
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read ({error.strerror})") from error


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
