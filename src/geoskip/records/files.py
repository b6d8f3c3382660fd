"""Writing files: complete or absent whatever interrupts the writer, with checksums, on every operating system.

**Atomic writes.** A file is written under a temporary name and renamed. Its writer locks it until then, so that other
processes can tell a file that is being written from one whose writer was killed: the operating system drops the locks
of a dead process. Before its first write in a folder, a process removes what dead writers left there.

**Unfinished files.** While a command writes several files, a hidden note in their folder lists them. It is locked as
long as the command runs and removed when all files are complete. A note without a lock belongs to a command that was
killed or failed; its next run may replace the listed files.

**Manifests.** The ``manifest.json`` of runs, exported models and checkpoints holds the size and sha256 of every
complete file, and a sha256 of itself. A file enters it after it has been written and leaves it before it is replaced,
so that a listed file that differs from its entry is damaged, and a file that is not listed was never finished. This
finds damage, not forgery: the manifest is not signed.

Everything that differs between operating systems is in this module; ``tests/test_architecture.py`` checks it.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from filelock import lock_descriptor

from geoskip import __version__
from geoskip.records.reading import MAX_JSON_BYTES, ReadError, parse_json, read_bytes

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.geoskip")
_NOTE = re.compile(r"\.geoskip-unfinished-[0-9a-f]{8}\.json")
# On file systems without locks, a file this old has no writer.
_OLD_SECONDS = 24 * 3600.0
# Windows cannot rename or remove open files, so a file is unlocked for a moment before it gets its name.
_WINDOWS_SECONDS = 60.0
_ATTEMPTS = 5
# Windows refuses to rename what another program (a virus scanner, an indexer) has open for a moment.
RETRY_SECONDS = (0.01, 0.05, 0.2, 0.5)

MANIFEST = "manifest.json"
MANIFEST_FORMAT = 1


def is_windows() -> bool:
    return os.name == "nt"


def sync(path: Path) -> None:
    """Wait until the contents of a file, or the names in a folder, are on the disk."""
    if is_windows() and path.is_dir():  # Windows cannot open folders
        return
    # Windows flushes only what is open for writing.
    descriptor = os.open(path, os.O_RDWR if is_windows() else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Rename a file or a folder. A file called ``target`` is replaced; a folder of that name must not exist."""
    for seconds in RETRY_SECONDS if is_windows() else ():
        try:
            os.replace(source, target)
            return
        except PermissionError:
            time.sleep(seconds)
    os.replace(source, target)


def termination_signals() -> tuple[signal.Signals, ...]:
    """The signals, besides Ctrl-C, that ask a process to end: SIGTERM and the signal of a closing terminal.

    The latter is SIGHUP, or SIGBREAK on Windows. It is left out if it is ignored, as under ``nohup``.
    """
    closing = getattr(signal, "SIGBREAK" if is_windows() else "SIGHUP", None)
    if closing is None or signal.getsignal(closing) == signal.SIG_IGN:
        return (signal.SIGTERM,)
    return (signal.SIGTERM, closing)


def atomic_write(path: str | Path, data: bytes) -> None:
    """Write ``data`` to a temporary file next to ``path``, sync it and rename it to ``path``.

    Missing folders are created. Until the rename, ``path`` keeps its old contents. A killed process can leave the
    temporary file (see :func:`remove_leftovers`), never a part of ``path``. Errors name ``path``.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers_once(path.parent.resolve())
    temporary = path.with_name(temporary_name(path.name))
    try:
        with open_locked(temporary) as file:
            file.write(data)
            file.flush()
            sync(temporary)
            _close_on_windows(file)
            rename(temporary, path)
    except OSError as error:
        if error.errno is None:
            raise
        # The folder exists, so "no such file" means that it does not accept files.
        number = errno.EACCES if error.errno == errno.ENOENT and path.parent.is_dir() else error.errno
        raise OSError(number, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):  # a read-only file system refuses even to look for the file
            temporary.unlink(missing_ok=True)
    sync(path.parent)


def temporary_name(name: str) -> str:
    """A new hidden name for what will become ``name``; long names are cut, so that the result is valid."""
    return f".{name[:50]}.{secrets.token_hex(4)}.geoskip"


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of dead writers from a folder. Those of running writers stay."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in list(entries):
            if _TEMPORARY.fullmatch(entry.name) and entry.is_file():
                with suppress(OSError), _open_if_abandoned(Path(entry.path)) as file:
                    if file is not None:
                        _close_on_windows(file)
                        Path(entry.path).unlink()


@lru_cache(maxsize=256)
def _remove_leftovers_once(folder: Path) -> None:
    remove_leftovers(folder)


def open_locked(path: Path) -> BinaryIO:
    """Create a file and lock it until it is closed. FileExistsError if it exists already."""
    for attempt in range(_ATTEMPTS):
        file = path.open("x+b")
        with suppress(OSError):  # a file system without locks
            lock_descriptor(file.fileno())
            # Another process can have removed the file before it was locked: create it again.
            if os.fstat(file.fileno()).st_nlink == 0 and attempt < _ATTEMPTS - 1:
                file.close()
                continue
        break
    return file


@contextmanager
def _open_if_abandoned(path: Path) -> Iterator[BinaryIO | None]:
    """The file, opened and locked, if the process that created it with :func:`open_locked` is dead; else None.

    On a file system without locks, a file counts as abandoned one day after its last change.
    """
    with path.open("r+b") as file:
        try:
            unlocked = lock_descriptor(file.fileno(), blocking=False)
            seconds = _WINDOWS_SECONDS if is_windows() else 0.0
        except OSError:
            unlocked, seconds = True, _OLD_SECONDS
        age = time.time() - os.fstat(file.fileno()).st_mtime
        yield file if unlocked and (not seconds or age >= seconds) else None


def _close_on_windows(file: BinaryIO) -> None:
    """Windows neither renames nor removes open files. Elsewhere the lock is kept until the file has its name."""
    if is_windows():
        file.close()


def unfinished_files(folder: Path) -> set[str]:
    """The names of the files in ``folder`` that interrupted commands were writing; some may not exist."""
    return {name for note in _notes(folder) for name in _abandoned_names(note) or ()}


@contextmanager
def mark_unfinished(folder: Path, names: Iterable[str]) -> Iterator[None]:
    """Mark the files ``names`` in ``folder`` as unfinished until the block has ended without an error.

    Files that existed before and were not left by an interrupted command are not marked: they belong to the user.
    """
    folder.mkdir(parents=True, exist_ok=True)
    replaceable = unfinished_files(folder)
    marked = sorted(name for name in set(names) if name in replaceable or not (folder / name).exists())
    note = folder / f".geoskip-unfinished-{secrets.token_hex(4)}.json"
    with open_locked(note) as file:
        file.write(json.dumps(marked).encode())
        file.flush()
        sync(note)
        yield
        _remove_from_notes(folder, set(marked))
        _close_on_windows(file)
        note.unlink(missing_ok=True)


def _remove_from_notes(folder: Path, finished: set[str]) -> None:
    for note in _notes(folder):
        names = _abandoned_names(note)
        if names is None:
            continue
        if not names - finished:
            note.unlink(missing_ok=True)
        elif names & finished:
            atomic_write(note, json.dumps(sorted(names - finished)).encode())


def _notes(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if _NOTE.fullmatch(path.name))
    except OSError:
        return []


def _abandoned_names(note: Path) -> set[str] | None:
    """The names in the note of a dead command, none if it died before it wrote them; None while the command runs."""
    with suppress(OSError), _open_if_abandoned(note) as file:
        if file is not None:
            try:
                names = parse_json(file.read(MAX_JSON_BYTES))
            except ReadError:
                names = []
            return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
    return None


class DamagedFileError(ValueError):
    """A file differs from its entry in the manifest; the message names it."""


def json_sha256(value: Any) -> str:
    """sha256 of plain JSON; the order of names does not matter. ValueError or TypeError if the value is not that."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def checksums(files: Mapping[str, bytes]) -> dict[str, Any]:
    """The size and sha256 of each file, as a manifest holds them."""
    return {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}


def pack_manifest(entries: Mapping[str, Any]) -> bytes:
    """The bytes of a manifest, with a checksum of itself."""
    return (json.dumps({**entries, "sha256": json_sha256(entries)}, indent=1) + "\n").encode()


def parse_manifest(data: bytes) -> dict[str, Any]:
    """The entries of a manifest; ReadError if they do not match its own checksum."""
    entries = parse_json(data)
    if not isinstance(entries, dict) or not isinstance(entries.get("files"), dict):
        raise ReadError("not a manifest")
    if entries.pop("sha256", None) != json_sha256(entries):
        raise ReadError("does not match its own checksum")
    return entries


def read_manifest(folder: Path) -> dict[str, Any]:
    """The files that the manifest of a folder lists, with their checksums; empty if there is no manifest."""
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    try:
        entries = parse_manifest(read_bytes(path))
    except ReadError as error:
        raise DamagedFileError(f"{path}: damaged: {error}; restore the file, or create {folder} again") from error
    if entries.get("format") != MANIFEST_FORMAT:
        raise DamagedFileError(
            f"{path}: format {entries.get('format')!r}, but this version reads {MANIFEST_FORMAT}; update geoskip"
        )
    for name, entry in entries["files"].items():
        if Path(name).name != name or not isinstance(entry, dict):
            raise DamagedFileError(f"{path}: lists {name!r}, which is not a file of its folder; create {folder} again")
    return entries["files"]


def start_manifest(folder: Path) -> None:
    """Write an empty manifest: nothing in the folder is complete any more."""
    _write_manifest(folder, {})


def add_to_manifest(folder: Path, names: Iterable[str]) -> None:
    """List files that have been written completely."""
    _write_manifest(folder, {**read_manifest(folder), **checksums({name: read_bytes(folder / name) for name in names})})


def remove_from_manifest(folder: Path, names: Iterable[str]) -> None:
    """Take out files that are about to be replaced."""
    files, removed = read_manifest(folder), set(names)
    if removed & files.keys():
        _write_manifest(folder, {name: entry for name, entry in files.items() if name not in removed})


def write_with_checksum(path: Path, data: bytes) -> None:
    """Write a file atomically and list it in the manifest of its folder."""
    remove_from_manifest(path.parent, [path.name])
    atomic_write(path, data)
    add_to_manifest(path.parent, [path.name])


def verify_folder(folder: Path) -> set[str]:
    """The names of the listed files that exist, each compared with the manifest; DamagedFileError if one differs."""
    files = {name: entry for name, entry in read_manifest(folder).items() if (folder / name).is_file()}
    for name in files:
        _verified(folder / name, files)
    return set(files)


def read_verified(path: Path) -> bytes:
    """The bytes of a file, compared with the manifest of its folder if that lists it."""
    return _verified(path, read_manifest(path.parent))


def _verified(path: Path, files: Mapping[str, Any]) -> bytes:
    data = read_bytes(path)
    if path.name in files and checksums({path.name: data})[path.name] != files[path.name]:
        raise DamagedFileError(
            f"{path}: damaged: it does not match its checksum in {MANIFEST}; restore the file, or create {path.parent} "
            "again"
        )
    return data


def _write_manifest(folder: Path, files: Mapping[str, Any]) -> None:
    entries = {"format": MANIFEST_FORMAT, "geoskip": __version__, "files": files}
    atomic_write(folder / MANIFEST, pack_manifest(entries))
