import json
from pathlib import Path

import pytest

from geoskip.paper.experiments import EXPERIMENTS
from geoskip.records import RecordError, write_record, write_samples
from geoskip.report.runs import Metric, find_runs
from tests.report.made_runs import made_run, mesh_samples, spheres, write_runs

ROWS = EXPERIMENTS["table1"].rows


def test_runs_are_found_at_any_depth_in_the_order_of_their_paths(tmp_path: Path) -> None:
    runs = [made_run(row, "faces", 0) for row in ROWS[:3]]
    runs[1] = made_run(ROWS[1], "faces", 0, mesh_samples(spheres(1), "none", 0, 1.0))
    write_runs(tmp_path / "a" / "b", runs)
    found = find_runs([tmp_path])
    assert [run.record.row for run in found.runs] == [row.label for row in ROWS[:3]]
    assert [run.samples is not None for run in found.runs] == [False, True, False]
    assert found.problems == ()
    assert [run.record.row for run in find_runs([tmp_path / "a" / "b" / "run-002"]).runs] == [ROWS[2].label]
    assert len(find_runs([tmp_path / "a" / "b" / "run-002" / "record.json", tmp_path]).runs) == 3


def test_a_record_by_any_name_counts_once_with_its_samples(tmp_path: Path) -> None:
    run = made_run(ROWS[0], "faces", 4, mesh_samples(spheres(1), "none", 0, 1.0))
    write_record(tmp_path / "results" / "faces-short-4.json", run.record)
    write_runs(tmp_path / "work", [run])
    (tmp_path / "work" / "config.json").write_text('{"format": 1}')
    (tmp_path / "work" / "broken.json").write_text("{")
    found = find_runs([tmp_path])
    assert len(found.runs) == 1
    assert found.runs[0].samples is not None
    assert found.problems == ()


def test_samples_next_to_a_record_by_any_name(tmp_path: Path) -> None:
    run = made_run(ROWS[0], "faces", 0, mesh_samples(spheres(1), "none", 0, 1.0))
    assert run.samples is not None
    write_record(tmp_path / "faces-short-0.json", run.record)
    write_record(tmp_path / "faces-short-1.json", made_run(ROWS[0], "faces", 1).record)
    write_samples(tmp_path / "faces-short-0.samples.safetensors", run.samples)
    (tmp_path / "faces-short-0.safetensors").write_bytes(b"the errors of the items, which are no samples")
    found = find_runs([tmp_path])
    assert [run.samples is not None for run in found.runs] == [True, False]
    assert found.problems == ()


@pytest.mark.parametrize(
    ("change", "percent", "points"),
    [
        (-20.4, "−20 %", "−20 points"),
        (13.0, "+13 %", "+13 points"),
        (-0.18, "−0.2 %", "−0.2 points"),
        (0.04, "+0.04 %", "+0.04 points"),
        (-0.001, "0 %", "0 points"),
    ],
)
def test_changes_read_the_right_way(change: float, percent: str, points: str) -> None:
    assert Metric("mean_mm", "Mean error").shown_change(change) == percent
    assert Metric("accuracy_pct", "Accuracy", better="higher").shown_change(change) == points


def test_what_cannot_be_read_is_reported_and_costs_no_other_run(tmp_path: Path) -> None:
    write_runs(tmp_path, [made_run(row, "faces", 0) for row in ROWS[:3]])
    (tmp_path / "run-000" / "record.json").write_text("{}")
    (tmp_path / "run-001" / "samples.safetensors").write_bytes(b"no")
    found = find_runs([tmp_path])
    assert [run.record.row for run in found.runs] == [row.label for row in ROWS[1:3]]
    assert [Path(problem.split(":")[0]).parent.name for problem in found.problems] == ["run-000", "run-001"]


def test_no_runs(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no runs given"):
        find_runs([])
    with pytest.raises(RecordError, match="there is no such file or folder"):
        find_runs([tmp_path / "nowhere"])
    with pytest.raises(RecordError, match="contains no finished run"):
        find_runs([tmp_path])
    (tmp_path / "record.json").write_text(json.dumps({"format": 9}))
    with pytest.raises(RecordError, match="format 9"):
        find_runs([tmp_path])
