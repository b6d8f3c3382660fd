"""Checksums of the files in a folder: the ``manifest.json`` of runs, exported models and checkpoints.

The manifest holds the size and sha256 of every file that is complete, and a sha256 of itself. A file enters it after
it has been written and leaves it before it is replaced, so that a listed file that differs from its entry is damaged,
and a file that is not listed was never finished. This finds damage, not forgery: the manifest is not signed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from geoskip import __version__
from geoskip.records.atomic import write_whole
from geoskip.records.reading import ReadError, parse_json, read_bytes

MANIFEST = "manifest.json"
FORMAT = 1


class DamagedFile(ValueError):
    """A file that is not the one its manifest describes; the message names it."""


def sums(files: Mapping[str, bytes]) -> dict[str, Any]:
    """Size and sha256 of each file, as a manifest holds them."""
    return {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}


def pack_manifest(entries: Mapping[str, Any]) -> bytes:
    """The bytes of a manifest, with a checksum of itself."""
    return (json.dumps({**entries, "sha256": digest(entries)}, indent=1) + "\n").encode()


def parse_manifest(data: bytes) -> dict[str, Any]:
    """The entries of a manifest that agree with its own checksum; ReadError if they do not."""
    entries = parse_json(data)
    if not isinstance(entries, dict) or not isinstance(entries.get("files"), dict):
        raise ReadError("not a manifest")
    if entries.pop("sha256", None) != digest(entries):
        raise ReadError("does not match its own checksum")
    return entries


def digest(value: Any) -> str:
    """sha256 of plain JSON, whatever the order of its names."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def listed_files(folder: Path) -> dict[str, Any]:
    """The files that the manifest of a folder lists; none where there is no manifest."""
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    try:
        entries = parse_manifest(read_bytes(path))
    except ReadError as error:
        raise DamagedFile(f"{path}: damaged: {error}; put the file back, or make {folder} again") from error
    if entries.get("format") != FORMAT:
        raise DamagedFile(f"{path}: format {entries.get('format')!r}, and this version reads {FORMAT}; update geoskip")
    return _checked_names(path, entries["files"])


def start_manifest(folder: Path) -> None:
    """An empty manifest: whatever the folder holds is no longer complete."""
    _write(folder, {})


def list_files(folder: Path, names: Iterable[str]) -> None:
    """Enter files that have been written completely."""
    _write(folder, {**listed_files(folder), **sums({name: read_bytes(folder / name) for name in names})})


def unlist_files(folder: Path, names: Iterable[str]) -> None:
    """Take files out that are about to be replaced."""
    files, changed = listed_files(folder), set(names)
    if changed & files.keys():
        _write(folder, {name: entry for name, entry in files.items() if name not in changed})


def write_listed(path: Path, data: bytes) -> None:
    """Write a file whole or not at all and enter it in the manifest of its folder."""
    unlist_files(path.parent, [path.name])
    write_whole(path, data)
    list_files(path.parent, [path.name])


def check_folder(folder: Path) -> set[str]:
    """Compare the listed files that are there with the manifest, and return their names; DamagedFile names one that
    differs. What to do without a file is for the one who needs it."""
    files = {name: entry for name, entry in listed_files(folder).items() if (folder / name).is_file()}
    for name in files:
        _compare(folder / name, files)
    return set(files)


def read_checked(path: Path) -> bytes:
    """The bytes of a file, compared with the manifest of its folder where it is listed there."""
    files = listed_files(path.parent)
    return _compare(path, files) if path.name in files else read_bytes(path)


def _compare(path: Path, files: Mapping[str, Any]) -> bytes:
    data = read_bytes(path)
    if sums({path.name: data})[path.name] != files[path.name]:
        raise DamagedFile(
            f"{path}: damaged: it does not match its checksum in {MANIFEST}; put the file back, or make "
            f"{path.parent} again"
        )
    return data


def _checked_names(path: Path, files: dict[str, Any]) -> dict[str, Any]:
    for name, entry in files.items():
        if Path(name).name != name or not isinstance(entry, dict):
            raise DamagedFile(f"{path}: lists {name!r}, which is not a file of its folder; make {path.parent} again")
    return files


def _write(folder: Path, files: Mapping[str, Any]) -> None:
    write_whole(folder / MANIFEST, pack_manifest({"format": FORMAT, "geoskip": __version__, "files": files}))
