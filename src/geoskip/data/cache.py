"""The cache: what is expensive to compute is kept on disk, under a key made of everything it depends on.

An entry is a folder ``<kind>-<key>`` with arrays (safetensors) and a manifest (JSON); neither format can contain code.
The key is the sha256 of the recipe, so another recipe is another entry. The manifest repeats the recipe and has the
sha256 of the arrays and of itself, which are checked at each load. An entry is written to a temporary folder, synced
and renamed, so that a reader never sees an incomplete one. Locks only avoid double work, and tell the remains of killed
processes from work in progress.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from geoskip.data.declaration import user_folder
from geoskip.data.locks import owned_locks, try_lock
from geoskip.records.files import json_sha256, rename, sync
from geoskip.records.reading import ReadError, read_arrays, read_json

log = logging.getLogger(__name__)

FORMAT = 1
ARRAYS, MANIFEST = "arrays.safetensors", "manifest.json"
ENTRY_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*-[0-9a-f]{32}")
TEMPORARY = re.compile(rf"\.({ENTRY_NAME.pattern})\.[^.]+")
LOCK_SECONDS = 3600.0
# Their versions are stored with each entry: the result may depend on them.
PACKAGES = ("geoskip", "numpy", "scipy", "torch", "anny", "scikit-image", "pillow", "potpourri3d", "pygeodesic")
# Files are hashed in parts of this many bytes, so that a large archive keeps all threads busy.
PART_BYTES = 16 << 20


class CacheError(ValueError):
    """An entry that is damaged, or was made by another recipe."""


@dataclass(frozen=True, eq=False)
class CacheEntry:
    """What an entry contains: named arrays, and anything else that fits in JSON."""

    arrays: Mapping[str, np.ndarray]
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EntryInfo:
    """An entry as ``geoskip data list`` shows it; ``fault`` is empty unless it is damaged."""

    name: str
    kind: str
    num_bytes: int
    recipe: Mapping[str, Any]
    fault: str


def cache_root() -> Path:
    """``$GEOSKIP_CACHE``, or ``geoskip`` in the user's cache folder (``$XDG_CACHE_HOME`` or ``~/.cache``)."""
    return user_folder("GEOSKIP_CACHE", "XDG_CACHE_HOME", ".cache")


def cached(
    kind: str,
    recipe: Mapping[str, Any],
    build: Callable[[], CacheEntry],
    *,
    root: Path | None = None,
    timeout: float = LOCK_SECONDS,
) -> CacheEntry:
    """The entry of ``kind`` made by ``recipe``; ``build`` makes it if it is missing or damaged.

    Everything that the result depends on belongs in the recipe: parameters, :func:`fingerprint` of the inputs, and a
    version number that changes with the code of ``build``. If several processes ask at once, one builds and the others
    wait for it, for at most ``timeout`` seconds. If the result cannot be written (disk full, read-only folder), it is
    still returned, with a warning in the log.
    """
    folder = (root or cache_root()) / entry_name(kind, recipe)
    _remove_leftovers(folder.parent)
    if (entry := _read_if_intact(folder)) is not None:
        return entry
    with try_lock(_lock(folder), timeout):
        if (entry := _read_if_intact(folder)) is not None:
            return entry
        built = build()
        try:
            write_entry(folder, kind, recipe, built)
        except OSError as error:
            log.warning("%s was not kept in %s: %s", folder.name, folder.parent, error.strerror or error)
        return CacheEntry(built.arrays, json.loads(json.dumps(built.meta)))


def fingerprint(*arrays: np.ndarray) -> str:
    """sha256 of the dtype, shape and contents of arrays, for a recipe."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.asarray(array, order="C").tobytes())
    return digest.hexdigest()


def fingerprint_files(paths: Iterable[Path], root: Path) -> str:
    """Hash (blake2b) of the contents of files and their names relative to ``root``, for a recipe.

    Several threads read every byte: about 1 GB per second and core from memory, otherwise as fast as the disk.
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


def versions_of(key: str, root: Path | None = None) -> dict[str, str]:
    """Versions of Python and the packages that made the entry ``<kind>-<key>``; empty if they are not known."""
    if not ENTRY_NAME.fullmatch(key):
        return {}
    with suppress(CacheError):
        return dict(_read_manifest((root or cache_root()) / key).get("versions", {}))
    return {}


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of Python and of those packages that are installed."""
    installed = {"python": platform.python_version()}
    for package in packages:
        with suppress(PackageNotFoundError):
            installed[package] = version(package)
    return installed


def entries(root: Path | None = None, *, thorough: bool = False) -> list[EntryInfo]:
    """The entries, sorted by name. Only the manifests are checked, unless ``thorough``: then every byte is."""
    infos = []
    for folder in _folders(root or cache_root()):
        num_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        recipe, fault = {}, ""
        try:
            recipe = _read_manifest(folder)["recipe"]
            if thorough:
                read_entry(folder)
        except CacheError as error:
            recipe, fault = {}, str(error)
        infos.append(EntryInfo(folder.name, _kind(folder.name), num_bytes, recipe, fault))
    return infos


def clear(kind: str | None = None, root: Path | None = None) -> tuple[list[str], list[str]]:
    """Remove the entries (of one kind) and the remains of killed processes: names removed, names in use.

    Nothing but entries is removed, even if the folder contains other files.
    """
    root = root or cache_root()
    _remove_leftovers(root)
    removed, in_use = [], []
    names = {folder.name for folder in _folders(root)} | {lock.stem for lock in (root / "locks").glob("*.lock")}
    for name in sorted(names):
        folder = root / name
        if not ENTRY_NAME.fullmatch(name) or kind not in (None, _kind(name)):
            continue
        with try_lock(_lock(folder), timeout=0.0) as locked:
            if not locked:
                in_use.append(name)
                continue
            if folder.exists():
                remove_entry(folder)
                removed.append(name)
            with suppress(OSError):  # Windows keeps files that are open, as this one is
                _lock(folder).unlink()
    return removed, in_use


def entry_name(kind: str, recipe: Mapping[str, Any]) -> str:
    """``<kind>-<key>``; the key is the first half of the recipe's sha256."""
    name = f"{kind}-{_json_sha256({'kind': kind, 'recipe': recipe})[:32]}"
    if not ENTRY_NAME.fullmatch(name):
        raise ValueError(f"cache kind {kind!r}: use lower-case words joined by '-'")
    return name


def read_entry(folder: Path) -> CacheEntry:
    """Read an entry and check every byte of it; CacheError if it is damaged."""
    manifest = _read_manifest(folder)
    try:
        if _file_sha256(folder / ARRAYS) != manifest["arrays_sha256"]:
            raise CacheError(f"{ARRAYS} does not match its checksum")
        return CacheEntry(read_arrays(folder / ARRAYS), manifest["meta"])
    except (OSError, KeyError, ReadError) as error:
        raise CacheError(f"unreadable: {error!r}") from error


def write_entry(folder: Path, kind: str, recipe: Mapping[str, Any], entry: CacheEntry) -> None:
    """Write an entry to a temporary folder, sync it and rename it. An intact entry of this name stays."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _temporary_folder(folder) as temporary:
        # save_file writes memory as it is: an array that is not in C order would come back scrambled.
        save_file({name: np.asarray(array, order="C") for name, array in entry.arrays.items()}, temporary / ARRAYS)
        manifest: dict[str, Any] = {"format": FORMAT, "kind": kind, "recipe": recipe, "meta": entry.meta}
        manifest["versions"] = installed_versions(PACKAGES)
        manifest["arrays_sha256"] = _file_sha256(temporary / ARRAYS)
        manifest["sha256"] = _json_sha256(manifest)
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        for path in (temporary / ARRAYS, temporary / MANIFEST, temporary):
            sync(path)
        if folder.exists() and _read_if_intact(folder) is None:
            remove_entry(folder)
        try:
            rename(temporary, folder)
        except OSError:
            if _read_if_intact(folder) is None:  # otherwise another process was first, with the same contents
                raise
        sync(folder.parent)


def remove_entry(folder: Path) -> None:
    """Remove an entry. It is renamed first, so that a reader never sees a half-deleted entry."""
    with _temporary_folder(folder) as temporary:
        rename(folder, temporary / folder.name)


def _read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of an entry; CacheError unless it matches its checksum and the entry's name."""
    try:
        manifest = read_json(folder / MANIFEST)
        checksum = manifest.pop("sha256")
        if checksum != _json_sha256(manifest):
            raise CacheError(f"{MANIFEST} does not match its checksum")
        if manifest["format"] != FORMAT:
            raise CacheError(f"written in format {manifest['format']}, this version reads {FORMAT}")
        if entry_name(manifest["kind"], manifest["recipe"]) != folder.name:
            raise CacheError("made by another recipe than its name says")
        return manifest
    except CacheError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CacheError(f"unreadable: {error!r}") from error


def _read_if_intact(folder: Path) -> CacheEntry | None:
    if not folder.exists():
        return None
    try:
        return read_entry(folder)
    except CacheError as error:
        log.warning("cache entry %s is damaged (%s): building it again", folder, error)
        return None


def _folders(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if path.is_dir() and ENTRY_NAME.fullmatch(path.name))


def _kind(name: str) -> str:
    return name.rpartition("-")[0]


def _lock(folder: Path) -> Path:
    return folder.parent / "locks" / f"{folder.name}.lock"


@contextmanager
def _temporary_folder(folder: Path) -> Iterator[Path]:
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        temporary.chmod(0o755)  # mkdtemp makes it private, but a cache may be shared
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _remove_leftovers(root: Path) -> None:
    """Remove the temporary folders of killed processes. An entry that is being built is locked, and left alone."""
    temporary = _temporary_folders(root)
    for name in {*temporary.values(), *(path.stem for path in owned_locks(root / "locks"))}:
        with try_lock(_lock(root / name), timeout=0.0) as locked:
            for path, entry in _temporary_folders(root).items() if locked else ():
                if entry == name:
                    shutil.rmtree(path, ignore_errors=True)


def _temporary_folders(root: Path) -> dict[Path, str]:
    """The temporary folders in a cache, and the entries that they belong to."""
    try:
        matches = [(path, TEMPORARY.fullmatch(path.name)) for path in root.iterdir()]
    except OSError:
        return {}
    return {path: match[1] for path, match in matches if match}


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _json_sha256(value: Any) -> str:
    try:
        return json_sha256(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a cache entry's recipe and meta hold plain finite JSON values only: {error}") from error
