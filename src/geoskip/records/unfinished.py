"""The files that a command was writing when it was interrupted, so that its next run may replace them.

While a command writes files, a hidden note in their folder lists them. It is locked as long as the command runs and
removed when all files are complete. A note without a lock is that of a command that was killed or failed.
"""

import json
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from geoskip.records import system
from geoskip.records.atomic import open_if_abandoned, open_locked, write_whole
from geoskip.records.reading import MAX_JSON_BYTES, parse_json
from geoskip.records.system import sync

_NOTE = re.compile(r"\.geoskip-unfinished-[0-9a-f]{8}\.json")


def unfinished(folder: Path) -> set[str]:
    """The names of the files in ``folder`` that interrupted commands were writing; some may not exist."""
    return {name for note in _notes(folder) for name in _abandoned_names(note)}


@contextmanager
def writing(folder: Path, names: Iterable[str]) -> Iterator[None]:
    """Note that the files ``names`` are being written in ``folder``, until the block has ended without an error.

    Files that were there before and were not left by an interrupted command are not noted: they belong to the user.
    """
    folder.mkdir(parents=True, exist_ok=True)
    replaceable = unfinished(folder)
    noted = sorted(name for name in set(names) if name in replaceable or not (folder / name).exists())
    note = folder / f".geoskip-unfinished-{secrets.token_hex(4)}.json"
    with open_locked(note) as file:
        file.write(json.dumps(noted).encode())
        file.flush()
        sync(note)
        yield
        _forget(folder, set(noted))
        if not system.is_windows():
            note.unlink(missing_ok=True)
    if system.is_windows():  # which does not remove open files
        note.unlink(missing_ok=True)


def _forget(folder: Path, finished: set[str]) -> None:
    """Remove finished files from the notes of interrupted commands."""
    for note in _notes(folder):
        names = _abandoned_names(note)
        if names and (left := names - finished):
            if left != names:
                write_whole(note, json.dumps(sorted(left)).encode())
        elif names or _is_abandoned(note):
            note.unlink(missing_ok=True)


def _notes(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if _NOTE.fullmatch(path.name))
    except OSError:
        return []


def _is_abandoned(note: Path) -> bool:
    with suppress(OSError), open_if_abandoned(note) as file:
        return file is not None
    return False


def _abandoned_names(note: Path) -> set[str]:
    """The names in a note whose command is dead; none while it runs, or if it died before it wrote them."""
    with suppress(OSError, ValueError), open_if_abandoned(note) as file:
        if file is not None:
            names = parse_json(file.read(MAX_JSON_BYTES))
            return {name for name in names if isinstance(name, str)}
    return set()
