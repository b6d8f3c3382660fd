"""Records as training would leave them, with figures of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from geoskip.paper.experiments import EXPERIMENTS
from geoskip.paper.rows import PaperRow
from geoskip.paper.running import Job
from geoskip.records import RunRecord, write_record
from geoskip.training.config import resolve


def row_named(experiment: str, label: str) -> PaperRow:
    (found,) = EXPERIMENTS[experiment].select([label])
    return found


def job_of(row: PaperRow, seed: int = 0, schedule: str = "short", data: str = "") -> Job:
    return Job(row, data or resolve(row.task).data, schedule, seed)


def record_of(job: Job, metrics: Mapping[str, float], seconds: float = 60.0) -> RunRecord:
    return RunRecord(
        name=job.row.method,
        experiment=job.row.home,
        row=job.row.label,
        config=job.config().to_json(),
        seed=job.seed,
        parameters=int(job.row.figures.get("params", 1)),
        steps=10,
        epochs=1,
        schedule=job.schedule,
        seconds=seconds,
        device="test device",
        versions={"geoskip": "0"},
        metrics=metrics,
        paper=dict(job.row.paper),
    )


def kept(job: Job, out: Path, **metrics: float) -> RunRecord:
    """A record written where it belongs."""
    record = record_of(job, metrics)
    write_record(job.record_path(out), record)
    return record


def papers_own(out: Path, seeds: int = 1) -> None:
    """Every figure that the paper prints, as if it had come out of short runs here."""
    for experiment in EXPERIMENTS.values():
        for row in experiment.rows:
            if row.home == experiment.name and row.paper:
                for seed in range(seeds):
                    kept(job_of(row, seed), out, **row.paper)
