"""What is expensive to compute is kept on disk, under a key made of everything it depends on.

Correctness rests on the entries (:mod:`geoskip.data.entries`): checked at each load, renamed into place
whole. The lock only saves double work, and tells the remains of killed processes from work in progress. Behind the
commands ``geoskip data list``, ``check`` and ``clear``
stand :func:`entries` and :func:`clear`.
"""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from geoskip.data.declaration import user_folder
from geoskip.data.entries import (
    ENTRY_NAME,
    CacheFault,
    Stored,
    entry_name,
    entry_of_leftover,
    leftovers,
    read_entry,
    read_manifest,
    remove_entry,
    write_entry,
)
from geoskip.data.locks import exclusive, owned_locks

log = logging.getLogger(__name__)

PATIENCE = 3600.0
# Files are hashed in parts of this many bytes, so that a large archive keeps all threads busy.
PART_BYTES = 16 << 20


def cache_root() -> Path:
    """``$GEOSKIP_CACHE``, or ``geoskip`` in the user's cache folder (``$XDG_CACHE_HOME`` or ``~/.cache``)."""
    return user_folder("GEOSKIP_CACHE", "XDG_CACHE_HOME", ".cache")


def cached(
    kind: str,
    recipe: Mapping[str, Any],
    build: Callable[[], Stored],
    *,
    root: Path | None = None,
    patience: float = PATIENCE,
) -> Stored:
    """The entry of ``kind`` made by ``recipe``; ``build`` makes it when it is not there, or damaged.

    Everything that shapes the result belongs in the recipe: parameters, :func:`fingerprint` of the inputs,
    and a version number that changes with the code of ``build``. Of several processes that ask at once one
    builds and the others wait for it, ``patience`` seconds at most. Where the result cannot be written
    (disk full, read-only folder) it is returned all the same, and the log says that it was not kept.
    """
    folder = (root or cache_root()) / entry_name(kind, recipe)
    _remove_leftovers(folder.parent)
    if (found := _find(folder)) is not None:
        return found
    with exclusive(_lock(folder), patience):
        if (found := _find(folder)) is not None:
            return found
        built = build()
        try:
            write_entry(folder, kind, recipe, built)
        except OSError as error:
            log.warning("%s was not kept in %s: %s", folder.name, folder.parent, error.strerror or error)
        return Stored(built.arrays, json.loads(json.dumps(built.meta)))


def fingerprint(*arrays: np.ndarray) -> str:
    """sha256 of the dtype, shape and contents of some arrays, for use in a recipe."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.asarray(array, order="C").tobytes())
    return digest.hexdigest()


def fingerprint_files(paths: Iterable[Path], root: Path) -> str:
    """Hash (blake2b) of the names, relative to ``root``, and the contents of files, for use in a recipe.

    Every byte is read, by several threads: about 1 GB per second and core from memory, otherwise as fast as the disk.
    """
    parts = [(path, start) for path in sorted(paths) for start in range(0, max(path.stat().st_size, 1), PART_BYTES)]
    digest = hashlib.blake2b(digest_size=32)
    with ThreadPoolExecutor(max(8, os.cpu_count() or 1)) as pool:
        for (path, start), (size, part) in zip(parts, pool.map(_hash_part, parts), strict=True):
            digest.update(f"{path.relative_to(root).as_posix()}\0{start}\0{size}\0".encode() + part)
    return digest.hexdigest()


def _hash_part(part: tuple[Path, int]) -> tuple[int, bytes]:
    path, start = part
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        data = file.read(PART_BYTES)
    return len(data), hashlib.blake2b(data, digest_size=32).digest()


@dataclass(frozen=True)
class Entry:
    """One entry as ``list`` and ``check`` show it; ``fault`` is empty when nothing is wrong."""

    name: str
    kind: str
    num_bytes: int
    recipe: Mapping[str, Any]
    fault: str


def entries(root: Path | None = None, *, thorough: bool = False) -> list[Entry]:
    """What the cache holds, by name; ``thorough`` reads every byte, otherwise the manifests alone."""
    return [_describe(folder, thorough) for folder in _folders(root or cache_root())]


def clear(kind: str | None = None, root: Path | None = None) -> tuple[list[str], list[str]]:
    """Remove the entries (of one kind) and the remains of interrupted work: names removed, names in use.

    Only folders named as entries are touched, whatever else lies in the same place.
    """
    root = root or cache_root()
    _remove_leftovers(root)
    removed, kept = [], []
    names = {folder.name for folder in _folders(root)} | {lock.stem for lock in (root / "locks").glob("*.lock")}
    for name in sorted(names):
        folder = root / name
        if not ENTRY_NAME.fullmatch(name) or kind not in (None, _kind(name)):
            continue
        with exclusive(_lock(folder), patience=0.0) as held:
            if not held:
                kept.append(name)
                continue
            if folder.exists():
                remove_entry(folder)
                removed.append(name)
            with suppress(OSError):  # Windows keeps files that are open, as this one is
                _lock(folder).unlink()
    return removed, kept


def _find(folder: Path) -> Stored | None:
    if not folder.exists():
        return None
    try:
        return read_entry(folder)
    except CacheFault as fault:
        log.warning("cache entry %s is damaged (%s): building it again", folder, fault)
        return None


def _describe(folder: Path, thorough: bool) -> Entry:
    num_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    try:
        manifest = read_manifest(folder)
        if thorough:
            read_entry(folder)
        return Entry(folder.name, manifest["kind"], num_bytes, manifest["recipe"], "")
    except CacheFault as fault:
        return Entry(folder.name, _kind(folder.name), num_bytes, {}, str(fault))


def _folders(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if path.is_dir() and ENTRY_NAME.fullmatch(path.name))


def _kind(name: str) -> str:
    return name.rpartition("-")[0]


def _lock(folder: Path) -> Path:
    return folder.parent / "locks" / f"{folder.name}.lock"


def _remove_leftovers(root: Path) -> None:
    """Remove what killed processes left in the cache; an entry that is being built is locked, and left alone."""
    names = {entry_of_leftover(path) for path in leftovers(root)} | {path.stem for path in owned_locks(root / "locks")}
    for name in names:
        with exclusive(_lock(root / name), patience=0.0) as held:
            for path in leftovers(root) if held else ():
                if entry_of_leftover(path) == name:
                    shutil.rmtree(path, ignore_errors=True)
