"""A few hundred damaged inputs for every build; ``make fuzz`` runs as many as there is time for."""

from __future__ import annotations

import json
import os
import signal
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.__main__ import fuzz, unsound
from tests.fuzz.mutations import mutate_bytes
from tests.fuzz.page import PAGE, RECORD, table
from tests.fuzz.readers import Reader, all_readers

# Bad input reaches the code, not the shape checker.
pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> list[Reader]:
    return all_readers(tmp_path_factory.mktemp("seeds"))


def test_sound_inputs_are_accepted(readers: list[Reader], tmp_path: Path) -> None:
    assert unsound(readers, tmp_path) == []


def test_damaged_inputs_end_in_clear_errors(readers: list[Reader], tmp_path: Path) -> None:
    counts = fuzz(readers, 0, islice(count(), 15 * len(readers)), 1, tmp_path)
    assert counts.crashes == []
    assert counts.by_reader.keys() == {reader.name for reader in readers}


def test_damaged_models_are_never_used(readers: list[Reader], tmp_path: Path) -> None:
    """Indices of stored graphs are read unchecked by the kernels, so every one is checked when a file is opened."""
    chosen = [reader for reader in readers if reader.name in ("run", "export")]
    counts = fuzz(chosen, 1, islice(count(), 200), 1, tmp_path)
    assert counts.crashes == []
    assert counts.total["clear errors"] > 100


def segfault(folder: Path, name: str) -> Any:
    os.kill(os.getpid(), signal.SIGSEGV)


def leak(folder: Path, name: str) -> Any:
    raise KeyError("inner")


def unnamed(folder: Path, name: str) -> Any:
    raise OSError("something is damaged")


@pytest.mark.parametrize(("read", "fault"), [(segfault, "exit code -11"), (leak, "KeyError"), (unnamed, "something")])
def test_crashes_are_counted(read: Any, fault: str, tmp_path: Path) -> None:
    """A process that dies, an error that is not meant for users, one that does not name the file."""
    reader = Reader("planted", [{"file": b"contents"}], read, {"": mutate_bytes})
    counts = fuzz([reader], 0, iter(range(3)), 1, tmp_path)
    assert counts.total == {"crashes": 3}
    assert all(fault in crash for crash in counts.crashes)


def test_damage_that_is_accepted_is_counted(tmp_path: Path) -> None:
    reader = Reader("planted", [{"file": b"contents"}], lambda f, n: None, {"": mutate_bytes}, notices=True)
    counts = fuzz([reader], 0, iter(range(3)), 1, tmp_path)
    assert counts.total == {"crashes": 3}


def test_the_page_has_the_counts_of_the_record(readers: list[Reader]) -> None:
    record = json.loads(RECORD.read_text())
    assert record["crashes"] == 0
    assert table(record) in PAGE.read_text()
    assert record["readers"].keys() == {reader.name for reader in readers}
