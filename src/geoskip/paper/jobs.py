"""One model to train: a recipe with its data, schedule and seed; where its record lies, and whether that is done.

.. code-block:: text

    results/runs/EXPERIMENT/ROW/DATA-SCHEDULE-SEED.json      the record: small, to be kept
    results/work/EXPERIMENT/ROW/DATA-SCHEDULE-SEED-KEY/      checkpoints, weights, samples: git ignores them

The key is a hash of the configuration without what cannot change the result, so that a run is never continued, nor a
record taken, that was made by another recipe under the same name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geoskip.paper.recipe import Experiment, Recipe
from geoskip.paper.registry import find_recipe
from geoskip.records import RecordError, RunRecord, read_record
from geoskip.training.config import Config

# Where a run happens, and how often it is looked at and saved on the way.
IMMATERIAL = ("device", "evaluate_every", "checkpoint_every", "keep")


@dataclass(frozen=True)
class Job:
    """A model to train."""

    recipe: Recipe
    data: str
    schedule: str
    seed: int

    @property
    def label(self) -> str:
        return f"{self.recipe.label}, seed {self.seed}"

    def config(self, device: str = "auto") -> Config:
        return self.recipe.config(self.data, self.schedule, self.seed, device)

    def record_path(self, out: Path) -> Path:
        return out / "runs" / self.recipe.home / self.recipe.slug / f"{self._stem}.json"

    def folder(self, out: Path) -> Path:
        return out / "work" / self.recipe.home / self.recipe.slug / f"{self._stem}-{config_key(self.config())[:8]}"

    @property
    def _stem(self) -> str:
        return f"{self.data}-{self.schedule}-{self.seed}"

    def to_json(self) -> dict[str, Any]:
        row = {"experiment": self.recipe.home, "row": self.recipe.label}
        return {**row, "data": self.data, "schedule": self.schedule, "seed": self.seed}

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> Job:
        recipe = find_recipe(entries["experiment"], entries["row"])
        return cls(recipe, entries["data"], entries["schedule"], entries["seed"])


def make_jobs(recipes: Iterable[Recipe], data: Mapping[str, str], schedule: str, seeds: Sequence[int]) -> list[Job]:
    """Seed by seed, so that a table is whole, if thin, as early as can be."""
    chosen = tuple(recipes)
    return [Job(recipe, data[recipe.task], schedule, seed) for seed in seeds for recipe in chosen]


def config_key(config: Config) -> str:
    """A hash of everything in a configuration that its result depends on."""
    entries = {key: value for key, value in config.to_json().items() if key not in IMMATERIAL}
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()


def made_by(record: RunRecord, job: Job) -> bool:
    """Whether the record is of this very recipe."""
    try:
        return config_key(Config.from_json(record.config)) == config_key(job.config())
    except ValueError:  # a configuration of another version
        return False


def finished(job: Job, out: Path) -> RunRecord | None:
    """The record of a job that is done; None if there is none, or if another recipe made it."""
    try:
        record = read_record(job.record_path(out))
    except RecordError:
        return None
    return record if made_by(record, job) else None


def finished_runs(
    experiment: Experiment, data: Mapping[str, str], schedule: str, out: Path
) -> dict[Recipe, dict[int, RunRecord]]:
    """The records of every recipe, by seed."""
    found: dict[Recipe, dict[int, RunRecord]] = {}
    for recipe in experiment.recipes:
        prefix = f"{data[recipe.task]}-{schedule}-"
        paths = sorted((out / "runs" / recipe.home / recipe.slug).glob(f"{prefix}*.json"))
        seeds = sorted(int(path.stem.removeprefix(prefix)) for path in paths if _is_seed(path, prefix))
        jobs = [Job(recipe, data[recipe.task], schedule, seed) for seed in seeds]
        records = {job.seed: finished(job, out) for job in jobs}
        found[recipe] = {seed: record for seed, record in records.items() if record is not None}
    return found


def _is_seed(path: Path, prefix: str) -> bool:
    return path.stem.removeprefix(prefix).isdigit()
