"""A checkpoint as files: what they hold, and whether they are whole.

    model.safetensors       parameters and buffers, by name
    optimiser.safetensors   every other tensor: moments of the optimiser, states of random generators
    state.json              everything else
    manifest.json           format, step, size and sha256 of each file above, and a sha256 of itself; written last

In all formats to come the manifest stays JSON with its own ``sha256``, so that damage and another format are told
apart. There is no code in any file to run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from geoskip import __version__
from geoskip.records.manifest import MANIFEST, pack_manifest, parse_manifest, sums
from geoskip.records.reading import ReadError, parse_json, parse_tensors, read_bytes
from geoskip.training.trees import apart, flatten, unflatten

FORMAT = 1
MODEL, OPTIMISER, STATE = "model.safetensors", "optimiser.safetensors", "state.json"


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
    manifest = {"format": FORMAT, "geoskip": __version__, "step": state.step, "files": sums(files)}
    return {**files, MANIFEST: pack_manifest(manifest)}


def from_files(path: Path) -> State:
    """The state in a folder, on the CPU; Damaged, or CheckpointError for another format."""
    manifest, files = read_files(path)
    try:
        rest = unflatten(parse_json(files[STATE]), parse_tensors(files[OPTIMISER])[0])
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
    for name in (MODEL, OPTIMISER, STATE):
        files[name] = _bytes(path / name)
        if sums({name: files[name]})[name] != manifest["files"].get(name):
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
