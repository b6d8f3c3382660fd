"""Where an experiment stands, and the commands that tell it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from geoskip.cli import app
from geoskip.paper import running
from geoskip.paper.experiments import EXPERIMENTS
from geoskip.paper.reproduction import (
    Reproduction,
    all_reproductions,
    device_rates,
    device_seconds,
    overview,
)
from geoskip.paper.running import Job, Outcome, stored_runs
from geoskip.records import RunRecord, write_record
from tests.paper.runs import job_of, kept, record_of, row_named

RESULTS = Path(__file__).resolve().parents[2] / "results"
MONET, AFF = row_named("table1", "MoNet M=9"), row_named("table1", "Aff-MoNet M=9")
ROWS = ("MoNet M=9", "Aff-MoNet M=9")


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def started(out: Path, seeds: tuple[int, ...] = (0, 1)) -> Reproduction:
    return Reproduction.start("table1", ROWS, seeds, "short", (), out)


def test_what_is_done_is_skipped(tmp_path: Path) -> None:
    kept(job_of(MONET), tmp_path, mean_mm=0.5)
    progress = started(tmp_path)
    assert [(job.row, job.seed) for job in progress.pending] == [(AFF, 0), (MONET, 1), (AFF, 1)]
    assert progress.summary() == "1 of 4 done, about 3 min left"


def test_it_counts_what_ends(tmp_path: Path) -> None:
    progress = started(tmp_path)
    assert progress.summary() == "0 of 4 done, 4 to go"
    first, second, third, fourth = progress.pending
    line = progress.add(Outcome(first, record_of(first, {"mean_mm": 0.512}, seconds=120.0)))
    assert line == "MoNet M=9, seed 0: 0.512 (0.528) in 2 min; 1 of 4 done, about 6 min left"
    assert progress.add(Outcome(second, None, "ValueError: no")) == "Aff-MoNet M=9, seed 0: failed: ValueError: no"
    assert progress.summary() == "1 of 4 done, 1 failed, about 4 min left"
    for job in (third, fourth):
        progress.add(Outcome(job, record_of(job, {"mean_mm": 0.4})))
    assert progress.summary() == "3 of 4 done, 1 failed"
    assert {row: list(records) for row, records in progress.runs.items()} == {MONET: [0, 1], AFF: [1]}
    assert progress.table().lines[0][1].startswith("0.456 ± ")


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Training that takes no time, and fails for one seed; the jobs it was asked for."""
    asked: list[Job] = []

    def run_job(job: Job, out: Path, device: str = "auto", progress: object = None, concurrency: int = 1) -> RunRecord:
        asked.append(job)
        if job.seed == 13:
            raise ValueError("no luck")
        return kept(job, out, mean_mm=0.4 + job.seed / 100, median_mm=0.3)

    monkeypatch.setattr(running, "run_job", run_job)
    return asked


def test_command_fills_the_table(tmp_path: Path, trained: list[Job]) -> None:
    given = ["table1", "--rows", "*MoNet M=9", "--schedule", "short", "-o", str(tmp_path)]
    told = command("reproduce", *given, "--seeds", "0..2")
    assert told.exit_code == 0
    assert "Aff-MoNet M=9, seed 2: 0.420 (0.406) in 1 min; 9 of 9 done" in told.stdout
    assert "0.410 ±" in told.stdout
    assert len(trained) == 9
    again = command("reproduce", *given, "--seeds", "0..3")
    assert len(trained) == 12
    assert "12 of 12 done" in again.stdout


def test_command_tells_what_failed(tmp_path: Path, trained: list[Job]) -> None:
    given = ["reproduce", "table1", "--rows", "MoNet M=9", "--seeds", "12,13", "-o", str(tmp_path)]
    told = command(*given)
    assert told.exit_code == 1
    assert "failed: MoNet M=9, seed 13: ValueError: no luck" in told.stderr
    assert "1 of 2 done, 1 failed" in told.stdout
    (fault,) = (tmp_path / "work").rglob("fault.txt")
    assert "no luck" in fault.read_text()
    assert command(*given[:-3], "12", *given[-2:]).exit_code == 0


def test_dry_run_trains_nothing(tmp_path: Path, trained: list[Job]) -> None:
    told = command("reproduce", "table2", "--dry-run", "-o", str(tmp_path))
    assert told.exit_code == 0
    assert "0 of 13 done, 13 to go" in told.stdout
    assert "57.75" in told.stdout
    assert trained == []


def test_all_trains_every_part_once(tmp_path: Path, trained: list[Job]) -> None:
    """Parts share one pool of jobs; a job of two parts is trained once and counts in both."""
    dry = command("reproduce", "all", "--dry-run", "-o", str(tmp_path))
    assert dry.exit_code == 0
    parts = all_reproductions(tmp_path)
    assert f"0 of {sum(len(part.pending) for part in parts)} done" in dry.stdout
    assert trained == []
    told = command("reproduce", "all", "-o", str(tmp_path))
    assert told.exit_code == 0
    assert len(trained) == len(set(trained)) == len({job for part in parts for job in part.pending})
    assert not any(part.pending for part in all_reproductions(tmp_path))
    for part in parts:
        assert f"{len(part.pending)} of {len(part.pending)}" in told.stdout


def test_estimates_count_the_share_of_the_device(tmp_path: Path) -> None:
    monet, spiral = row_named("table1", "MoNet M=9"), row_named("table1", "SpiralNet++ M=9")
    done = Job(monet, "mixed-faces", "in60", 0)
    record = replace(record_of(done, {"mean_mm": 1.0}, seconds=720.0), epochs=60.0, concurrency=4)
    others = replace(record, concurrency=0, seconds=9.0), replace(record, device="x86_64 CPU", seconds=9.0)
    rates = device_rates([record, *others])
    assert device_seconds(Job(monet, "mixed-faces", "full", 0), rates) == pytest.approx(720 / 4 / 60 * 300)
    assert device_seconds(Job(spiral, "mixed-faces", "in60", 0), rates) == pytest.approx(180)
    assert device_seconds(Job(monet, "faces", "in60", 0), rates) is None
    write_record(done.record_path(tmp_path), record)
    both = Reproduction.start("table1", ["MoNet M=9", "MoNet M=14"], [0], "in60", ["mixed-faces"], tmp_path)
    other = Reproduction.start("table1", ["MoNet M=9"], [0], "in60", ["faces"], tmp_path)
    assert [line[-3:] for line in overview([both, other]).lines] == [("1 of 2", "3.0", "3.0"), ("0 of 1", "–", "–")]


def test_the_published_runs_are_parts_of_all() -> None:
    """Every record of three seeds in the tables is one that ``geoskip reproduce all`` would make, or is superseded."""
    planned = {job for part in all_reproductions(RESULTS) for job in part.jobs}
    stored = {job for job in _stored_jobs() if job.schedule not in ("short", "smoke")}
    assert stored
    assert stored <= planned


def _stored_jobs() -> Iterator[Job]:
    rows = dict.fromkeys(row for experiment in EXPERIMENTS.values() for row in experiment.rows)
    for (data, schedule), runs in stored_runs(rows, RESULTS).items():
        yield from (Job(row, data, schedule, seed) for row, records in runs.items() for seed in records)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["table9"], "table9"),
        (["table1", "--rows", "GIN*"], "GIN*"),
        (["table1", "--seeds", "x"], "seeds"),
        (["table1", "--schedule", "long"], "schedule"),
        (["table1", "--data", "faust"], "faust"),
        (["table1", "--on", "mars"], "--on"),
        (["table1", "--jobs", "0"], "--jobs"),
        (["table1", "--gpus", "0.5"], "for --on ray"),
        (["table1", "--address", "auto"], "for --on ray"),
        (["all", "--seeds", "0..2"], "--seeds: not with all"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], named: str, tmp_path: Path) -> None:
    told = command("reproduce", *arguments, "-o", str(tmp_path))
    assert told.exit_code == 2
    assert named in told.stderr
