"""Where an experiment stands, and the commands that tell it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from geoskip.cli import app
from geoskip.paper import running
from geoskip.paper.reproduction import Reproduction
from geoskip.paper.running import Job, Outcome
from geoskip.records import RunRecord
from tests.docs.pages import DOCS
from tests.paper.runs import job_of, kept, record_of, row_named

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


def recipes() -> list[tuple[list[str], int]]:
    """The commands of the page, and how many runs it says that they have."""
    page = (DOCS / "reproduce.md").read_text(encoding="utf-8")
    section = page.split("## The runs behind the results")[1].split("\n## ")[0]
    found = re.findall(r"^# .*?(\d+) runs\n(geoskip reproduce .*)$", section, re.MULTILINE)
    assert len(found) == section.count("\ngeoskip reproduce ") == 12
    return [(shlex.split(line), int(count)) for count, line in found]


@pytest.mark.parametrize(("words", "count"), recipes(), ids=lambda value: str(value)[:60])
def test_recipes_of_the_page(words: list[str], count: int, tmp_path: Path) -> None:
    assert "--jobs" in words
    told = command(*words[1:], "--dry-run", "-o", str(tmp_path))
    assert told.exit_code == 0
    assert f"0 of {count} done, {count} to go" in told.stdout


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
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], named: str, tmp_path: Path) -> None:
    told = command("reproduce", *arguments, "-o", str(tmp_path))
    assert told.exit_code == 2
    assert named in told.stderr
