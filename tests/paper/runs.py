"""Records as training would leave them, with figures of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from geoskip.paper.experiments import EXPERIMENTS
from geoskip.paper.recipes import STAND_IN, Recipe
from geoskip.paper.running import Job
from geoskip.records import RunRecord, write_record


def recipe_named(experiment: str, label: str) -> Recipe:
    (found,) = EXPERIMENTS[experiment].select([label])
    return found


def job_of(recipe: Recipe, seed: int = 0, schedule: str = "short", data: str = "") -> Job:
    return Job(recipe, data or STAND_IN[recipe.task], schedule, seed)


def record_of(job: Job, metrics: Mapping[str, float], seconds: float = 60.0) -> RunRecord:
    return RunRecord(
        name=job.recipe.name,
        experiment=job.recipe.home,
        row=job.recipe.label,
        config=job.config().to_json(),
        seed=job.seed,
        parameters=int(job.recipe.row.figures.get("params", 1)),
        steps=10,
        epochs=1,
        schedule=job.schedule,
        seconds=seconds,
        device="test device",
        versions={"geoskip": "0"},
        metrics=metrics,
        paper=dict(job.recipe.paper),
    )


def kept(job: Job, out: Path, **metrics: float) -> RunRecord:
    """A record written where it belongs."""
    record = record_of(job, metrics)
    write_record(job.record_path(out), record)
    return record


def papers_own(out: Path, seeds: int = 1) -> None:
    """Every figure that the paper prints, as if it had come out of short runs here."""
    for experiment in EXPERIMENTS.values():
        for recipe in experiment.recipes:
            if recipe.home == experiment.name and recipe.paper:
                for seed in range(seeds):
                    kept(job_of(recipe, seed), out, **recipe.paper)
