"""The record of the tests that need a GPU."""

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.gpu import ROOT, earlier_record, missing_packages, run, summary

MADE_OF = {"digest": "d1", "device": "a card"}


def outcome(name: str, how: str) -> dict[str, str]:
    return {"id": name, "outcome": how, "seconds": "1"}


def test_what_is_left_of_a_record_is_counted_once() -> None:
    first = summary(
        [outcome("a.py::1", "passed"), outcome("a.py::2", "failed"), outcome("b.py::1", "unfinished")], [], 10
    )
    assert (first["passed"], first["failed"], first["skipped"]) == (1, 1, 0)
    assert (first["failures"], first["unfinished"]) == (["a.py::2"], ["b.py::1"])
    assert first["files"]["b.py"]["unfinished"] == 1

    second = summary([outcome("a.py::2", "passed"), outcome("b.py::1", "failed")], ["a.py::2"], 5, first)
    assert (second["passed"], second["failed"], second["skipped"]) == (2, 1, 0)
    assert (second["failures"], second["unfinished"], second["seconds"]) == (["b.py::1"], [], 15)
    assert second["files"] == {
        "a.py": {"passed": 2, "failed": 0, "skipped": 0},
        "b.py": {"passed": 0, "failed": 1, "skipped": 0},
    }


def test_only_a_record_of_the_same_code_and_device_with_tests_left_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "record.json"

    def found(record: dict[str, Any]) -> bool:
        path.write_text(json.dumps(record))
        return earlier_record(path, MADE_OF) is not None

    assert earlier_record(path, MADE_OF) is None
    left = {**MADE_OF, "failures": [], "unfinished": ["a.py::1"]}
    assert found(left)
    assert found({**left, "failures": ["a.py::2"], "unfinished": []})
    assert not found({**left, "unfinished": []})
    assert not found({**left, "digest": "d2"})
    assert not found({**left, "device": "another card"})


def test_packages_are_missing_of_files_that_import_a_file_that_imports_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.gpu.find_spec", lambda name: None if name == "hypothesis" else find_spec(name))
    assert missing_packages(ROOT / "tests" / "pyg" / "test_accelerate.py") == ["hypothesis"]
    assert missing_packages(ROOT / "tests" / "pyg" / "test_layers.py") == ["hypothesis"]
    # Through `from tests.training import sets`.
    monkeypatch.setattr("tests.gpu.find_spec", lambda name: None if name == "numpy" else find_spec(name))
    assert missing_packages(ROOT / "tests" / "training" / "test_ahead.py") == ["numpy"]


def test_there_are_no_processes_without_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest would run all tests there."""
    listings = []

    def start(command: list[str], **options: Any) -> Mock:
        listings.append(Path(command[-1].removeprefix("@")).read_text().split())
        return Mock(wait=Mock(return_value=0))

    monkeypatch.setattr(subprocess, "Popen", start)
    outcomes = run(["a.py::1", "a.py::2"], jobs=4)
    assert listings == [["a.py::1"], ["a.py::2"]]
    assert [(one["id"], one["outcome"]) for one in outcomes] == [("a.py::1", "unfinished"), ("a.py::2", "unfinished")]
