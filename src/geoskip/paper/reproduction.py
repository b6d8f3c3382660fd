"""Reproducing an experiment: what is done, what is left, what failed, how long the rest takes, and its pictures."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import numpy as np

from geoskip.meshes import Mesh
from geoskip.paper.experiments import find_experiment
from geoskip.paper.recipes import Experiment, Recipe, chosen_data
from geoskip.paper.running import Job, Outcome, finished, make_jobs
from geoskip.paper.tables import TextTable, cell, experiment_table
from geoskip.records import CorrespondenceSamples, MeshSamples, RunRecord, read_samples
from geoskip.records.files import atomic_write
from geoskip.records.samples import Samples
from geoskip.report.palette import colored
from geoskip.report.pictures import picture, png_bytes, sheet


@dataclass
class Reproduction:
    """The jobs of one ``geoskip reproduce`` call, and how they ended."""

    experiment: Experiment
    pending: list[Job]
    done: dict[Job, RunRecord]
    processes: int = 1
    faults: list[Outcome] = field(default_factory=list)

    @classmethod
    def start(
        cls,
        name: str,
        patterns: Sequence[str],
        seeds: Sequence[int],
        schedule: str,
        data: Sequence[str],
        out: Path,
        processes: int = 1,
    ) -> Reproduction:
        """The jobs that have no record in ``out`` are pending."""
        whole = find_experiment(name)
        chosen = Experiment(whole.name, whole.title, whole.select(patterns), whole.figure)
        jobs = make_jobs(chosen.recipes, chosen_data(chosen.tasks, data, schedule), schedule, seeds)
        records = {job: finished(job, out) for job in jobs}
        done = {job: record for job, record in records.items() if record is not None}
        return cls(chosen, [job for job in jobs if job not in done], done, processes)

    def add(self, outcome: Outcome) -> str:
        """Count an outcome, and describe it in a line."""
        if outcome.record is None:
            self.faults.append(outcome)
            return f"{outcome.job.label}: failed: {outcome.fault}"
        self.done[outcome.job] = outcome.record
        recipe, seed = outcome.job.recipe, outcome.job.seed
        figure = cell(recipe, {seed: outcome.record}, recipe.metrics[0])
        return f"{outcome.job.label}: {figure} in {duration(outcome.record.seconds)}; {self.summary()}"

    @property
    def runs(self) -> Mapping[Recipe, Mapping[int, RunRecord]]:
        runs: dict[Recipe, dict[int, RunRecord]] = {recipe: {} for recipe in self.experiment.recipes}
        for job, record in self.done.items():
            runs[job.recipe][job.seed] = record
        return runs

    def table(self) -> TextTable:
        """With a second metric if all rows are of one task."""
        return experiment_table(self.experiment, self.runs, num_metrics=2 if len(self.experiment.tasks) == 1 else 1)

    def summary(self) -> str:
        """``12 of 42 done, about 40 min left``; without an estimate before the first job has ended."""
        failed = {outcome.job for outcome in self.faults}
        waiting = [job for job in self.pending if job not in self.done and job not in failed]
        text = f"{len(self.done)} of {len(self.done) + len(waiting) + len(failed)} done"
        text += f", {len(failed)} failed" if failed else ""
        if not waiting:
            return text
        left = remaining_seconds(waiting, list(self.done.items()), self.processes)
        return f"{text}, {len(waiting)} to go" if left is None else f"{text}, about {duration(left)} left"


def remaining_seconds(
    pending: Sequence[Job], done: Sequence[tuple[Job, RunRecord]], processes: int = 1
) -> float | None:
    """Each pending job takes as long as its row with other seeds, or else as the average row of its task.

    None if no job has ended yet. Parallel jobs share the time.
    """
    if not done:
        return None
    costs = [_cost(job, done) for job in pending]
    return sum(costs) / max(1, min(processes, len(costs)))


def _cost(job: Job, done: Sequence[tuple[Job, RunRecord]]) -> float:
    known = [(other, record.seconds) for other, record in done]
    for alike in (
        [seconds for other, seconds in known if other.recipe == job.recipe],
        [seconds for other, seconds in known if other.recipe.task == job.recipe.task],
        [seconds for _, seconds in known],
    ):
        if alike:
            return fmean(alike)
    return 0.0


def duration(seconds: float) -> str:
    """``2 h 5 min``, ``40 s``."""
    if seconds < 60:
        return f"{round(seconds)} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def parse_seeds(text: str) -> tuple[int, ...]:
    """``0..4`` means 0, 1, 2, 3, 4; ``0,2,7`` lists seeds; both can be combined. Sorted, without duplicates."""
    seeds: set[int] = set()
    for part in text.split(","):
        single = re.fullmatch(r"\s*(\d+)(?:\s*\.\.\s*(\d+))?\s*", part)
        if single is None or (single[2] is not None and int(single[2]) < int(single[1])):
            raise ValueError(f"seeds: write 0..4 or 0,2,7, not {text!r}")
        seeds |= set(range(int(single[1]), int(single[2] or single[1]) + 1))
    return tuple(sorted(seeds))


# Where colors saturate, as in the paper.
LARGEST_MM, LARGEST_PCT = 5.0, 10.0
SIZE = 240
Picture = np.ndarray


def draw(experiment: Experiment, done: Mapping[Job, RunRecord], out: Path, size: int = SIZE) -> list[Path]:
    """Draw a figure from the samples of its runs with the smallest seed: one row per method, one column per sample.

    Returns the paths: ``figures/NAME-DATA-SCHEDULE.png``, and a JSON file that names its rows.
    """
    first = min(job.seed for job in done)
    jobs = [job for job in done if job.seed == first]
    paths = [(job, job.folder(out) / "samples.safetensors") for job in jobs]
    sampled = [(job, read_samples(path)) for job, path in paths if path.is_file()]
    if not sampled:
        raise ValueError(f"figure: no samples of {experiment.name} in {out / 'work'}; records alone cannot be drawn")
    rows = [
        row
        for number, (job, samples) in enumerate(sampled)
        for row in _rows(experiment.figure, job, samples, size, inputs=number == 0)
    ]
    pictures = [one for _, row in rows for one in row]
    path = out / "figures" / f"{experiment.name}-{jobs[0].data}-{jobs[0].schedule}.png"
    atomic_write(path, png_bytes(sheet(pictures, len(rows[0][1]))))
    legend = {"title": experiment.title, "seed": first, "rows": [name for name, _ in rows]}
    if isinstance(sampled[0][1], CorrespondenceSamples):
        legend["blue-grey"] = "no label"
    atomic_write(path.with_suffix(".json"), json.dumps(legend, indent=1, ensure_ascii=False).encode())
    return [path, path.with_suffix(".json")]


def _rows(figure: str, job: Job, samples: Samples, size: int, inputs: bool) -> list[tuple[str, list[Picture]]]:
    """The rows of pictures of one run, with their names. ``inputs`` adds the row of inputs, which methods share."""
    if isinstance(samples, CorrespondenceSamples):
        return [(job.recipe.label, _matched(samples, size))]
    assert isinstance(samples, MeshSamples)
    if figure == "errors":
        return [(job.recipe.label, _errors(samples, size))]
    if figure == "reconstructions":
        given = [("input", _part(samples, "input", size))] if inputs else []
        return [*given, (job.recipe.label, _part(samples, "full", size))]
    return [(f"{job.recipe.label}: {part}", _part(samples, part, size)) for part in ("input", "full", "affine")]


def _part(samples: MeshSamples, part: str, size: int) -> list[Picture]:
    return [picture(Mesh(verts.astype(float), samples.faces), size=size) for verts in samples.parts[part]]


def _errors(samples: MeshSamples, size: int) -> list[Picture]:
    """Reconstructions, colored by the distance of each vertex from its true position."""
    full, true = (samples.parts[part].astype(float) for part in ("full", "input"))
    distances = np.linalg.norm(full - true, axis=2) * samples.unit_mm
    return [
        picture(Mesh(verts, samples.faces), colors=colored(errors, LARGEST_MM, "viridis"), size=size)
        for verts, errors in zip(full, distances, strict=True)
    ]


def _matched(samples: CorrespondenceSamples, size: int) -> list[Picture]:
    """Bodies, colored by the geodesic error of each vertex; blue-grey where a vertex has no label."""
    return [
        picture(
            Mesh(body.verts.astype(float), body.faces),
            colors=colored(body.error_pct.astype(float), LARGEST_PCT, "viridis"),
            size=size,
        )
        for body in samples.meshes
    ]
