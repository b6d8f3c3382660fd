"""One entry of the cache on disk: a folder ``<kind>-<key>`` with arrays (safetensors) and a manifest (JSON).

The key is the sha256 of the recipe (JSON), so another recipe is another entry. The manifest repeats the recipe and
carries the sha256 of the arrays and of itself, checked at each load: this finds damage and mistakes, and there is no
code in either file to run. An entry is written aside, synced and renamed: it is there whole or not at all.
"""

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from geoskip.records.files import rename_folder, sync
from geoskip.records.reading import ReadError, read_arrays, read_json

FORMAT = 1
ARRAYS, MANIFEST = "arrays.safetensors", "manifest.json"
ENTRY_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*-[0-9a-f]{32}")
LEFTOVER = re.compile(rf"\.{ENTRY_NAME.pattern}\.[^.]+")


class CacheFault(ValueError):
    """An entry of the cache that is damaged, or was not made by this recipe."""


@dataclass(frozen=True, eq=False)
class Stored:
    """What an entry holds: named arrays, and whatever else fits in JSON."""

    arrays: Mapping[str, np.ndarray]
    meta: Mapping[str, Any] = field(default_factory=dict)


def entry_name(kind: str, recipe: Mapping[str, Any]) -> str:
    """``<kind>-<key>``; the key is the first half of the recipe's sha256."""
    name = f"{kind}-{_digest({'kind': kind, 'recipe': recipe})[:32]}"
    if not ENTRY_NAME.fullmatch(name):
        raise ValueError(f"cache kind {kind!r}: use lower-case words joined by '-'")
    return name


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of an entry, if it agrees with its own sha256 and the entry's name; else CacheFault."""
    try:
        manifest = read_json(folder / MANIFEST)
        checksum = manifest.pop("sha256")
        if checksum != _digest(manifest):
            raise CacheFault(f"{MANIFEST} does not match its checksum")
        if manifest["format"] != FORMAT:
            raise CacheFault(f"written in format {manifest['format']}, this version reads {FORMAT}")
        if entry_name(manifest["kind"], manifest["recipe"]) != folder.name:
            raise CacheFault("made by another recipe than its name says")
        return manifest
    except CacheFault:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CacheFault(f"unreadable: {error!r}") from error


def read_entry(folder: Path) -> Stored:
    """Read an entry and check every byte of it; CacheFault if it fails."""
    manifest = read_manifest(folder)
    try:
        if _file_digest(folder / ARRAYS) != manifest["arrays_sha256"]:
            raise CacheFault(f"{ARRAYS} does not match its checksum")
        return Stored(read_arrays(folder / ARRAYS), manifest["meta"])
    except (OSError, KeyError, ReadError) as error:
        raise CacheFault(f"unreadable: {error!r}") from error


def write_entry(folder: Path, kind: str, recipe: Mapping[str, Any], stored: Stored) -> None:
    """Write an entry beside its place, sync it and rename it there. A sound entry already there stays."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = _aside(folder)
    try:
        _write_files(aside, kind, recipe, stored)
        if folder.exists() and not _sound(folder):
            remove_entry(folder)
        try:
            rename_folder(aside, folder)
        except OSError:
            if not _sound(folder):  # otherwise another process was first, with the same content
                raise
        sync(folder.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def remove_entry(folder: Path) -> None:
    """Remove an entry. It is renamed first, so that a reader never sees a half-deleted entry."""
    aside = _aside(folder)
    try:
        rename_folder(folder, aside / folder.name)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def leftovers(root: Path) -> list[Path]:
    """The temporary folders in a cache: of entries that are being written, or that killed processes left behind."""
    try:
        return sorted(path for path in root.iterdir() if LEFTOVER.fullmatch(path.name))
    except OSError:
        return []


def entry_of_leftover(path: Path) -> str:
    """The name of the entry that a temporary folder belongs to."""
    return path.name[1:].rpartition(".")[0]


def _aside(folder: Path) -> Path:
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    aside.chmod(0o755)  # mkdtemp is for secrets, a cache may be shared
    return aside


def _sound(folder: Path) -> bool:
    try:
        read_entry(folder)
        return True
    except CacheFault:
        return False


def _write_files(aside: Path, kind: str, recipe: Mapping[str, Any], stored: Stored) -> None:
    # save_file takes memory as it lies: an array that is not in C order would come back scrambled.
    save_file({name: np.asarray(array, order="C") for name, array in stored.arrays.items()}, aside / ARRAYS)
    manifest: dict[str, Any] = {"format": FORMAT, "kind": kind, "recipe": recipe, "meta": stored.meta}
    manifest["arrays_sha256"] = _file_digest(aside / ARRAYS)
    manifest["sha256"] = _digest(manifest)
    (aside / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    for path in (aside / ARRAYS, aside / MANIFEST, aside):
        sync(path)


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(value: Any) -> str:
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a cache entry's recipe and meta hold plain finite JSON values only: {error}") from error
    return hashlib.sha256(text.encode()).hexdigest()
