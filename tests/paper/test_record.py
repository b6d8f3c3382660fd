"""Records of analyses: what is written is read, and what is not one is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from geoskip.paper.findings import AnalysisRecord, read_analysis, write_analysis


def test_a_record_comes_back(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"method": "FeaStNet†", "values": [1.0, 2]}, {"method": "GCN", "values": []}]
    record = AnalysisRecord("power", {"seeds": 3}, rows, 1.5)
    write_analysis(tmp_path / "made" / "power.json", record)
    assert read_analysis(tmp_path / "made" / "power.json") == record
    assert record.versions["geoskip"]
    assert record.device == "cpu"
    assert AnalysisRecord("smoothness", {}, [], 1.0, "a card").device == "a card"


def test_numbers_are_short_and_rows_have_a_line_each(tmp_path: Path) -> None:
    write_analysis(tmp_path / "a.json", AnalysisRecord("depth", {}, [{"x": 1 / 3}, {"x": 1e-9 / 3}], 0.1234567))
    text = (tmp_path / "a.json").read_text()
    assert '  {"x": 0.3333333},\n  {"x": 3.333333e-10}\n' in text
    assert json.loads(text)["seconds"] == 0.12


def test_numbers_that_json_does_not_know_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_analysis(tmp_path / "a.json", AnalysisRecord("depth", {}, [{"x": float("nan")}], 0.0))
    assert not (tmp_path / "a.json").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "analysis": "depth"}'])
def test_what_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"a\.json: not a readable record of an analysis"):
        read_analysis(path)
    with pytest.raises(ValueError, match=r"b\.json: not a readable record"):
        read_analysis(tmp_path / "b.json")
