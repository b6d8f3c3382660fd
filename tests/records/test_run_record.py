import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from geoskip.records import RecordError, RunRecord, read_record, write_record

RECORD = RunRecord(
    name="Aff-MoNet",
    config={"task": "reconstruction", "optim": {"lr": 1e-3}},
    seed=3,
    parameters=167865,
    steps=1000,
    epochs=2.5,
    seconds=12.5,
    device="cpu",
    versions={"torch": "2.13.0"},
    metrics={"mean_mm": 0.4},
    curves={"loss": [(1.0, 0.5), (2.0, 0.25)]},
    experiment="table1",
    row="Aff-MoNet M=9",
    schedule="short",
    paper={"mean_mm": 0.406},
)


def test_written_and_read_again(tmp_path: Path) -> None:
    write_record(tmp_path / "deep" / "record.json", RECORD)
    assert read_record(tmp_path / "deep" / "record.json") == RECORD
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["record.json"]


def test_what_cannot_be_written_leaves_the_old_record(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(path, RECORD)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        write_record(path, replace(RECORD, metrics={"mean_mm": float("nan")}))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 3}, "format 3; this version reads 1 and 2"),
        ({"colour": 1}, "unknown entries colour"),
        ({"name": 1}, "name: expected text, got 1"),
        ({"seed": "3"}, "seed: expected a whole number, got '3'"),
        ({"seconds": True}, "seconds: expected a number, got True"),
        ({"metrics": [1]}, "metrics: expected names with values"),
        ({"metrics": {"mean_mm": "low"}}, "metrics: expected names with values, got .*low"),
        ({"curves": {"loss": [[1]]}}, "curves: expected names with values, got .*loss"),
        ({"config": 1}, "config: expected names with values"),
        ({"versions": 1}, "versions: expected names with values"),
    ],
)
def test_what_is_no_record_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "record.json"
    write_record(path, RECORD)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RecordError, match=message) as raised:
        read_record(path)
    assert str(path) in str(raised.value)


def test_a_missing_entry_is_named(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(path, RECORD)
    entries = json.loads(path.read_text())
    del entries["seed"]
    path.write_text(json.dumps(entries))
    with pytest.raises(RecordError, match="seed"):
        read_record(path)


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", '"a"'])
def test_files_that_are_something_else(tmp_path: Path, text: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=r"record\.json"):
        read_record(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be read as a run record"):
        read_record(tmp_path / "record.json")
