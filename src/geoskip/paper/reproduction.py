"""Reproducing an experiment: its jobs and how long they take, its table next to the paper's, and its pictures."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from geoskip.paper.baselines import stored_baselines
from geoskip.paper.experiments import EVIDENCE, Experiment, chosen_data, find_experiment, is_comparable
from geoskip.paper.rows import PaperRow
from geoskip.paper.running import Job, Outcome, Runs, finished
from geoskip.records import CorrespondenceSamples, MeshSamples, RunRecord, read_samples
from geoskip.records.files import atomic_write
from geoskip.records.samples import Samples
from geoskip.records.statistics import summarize
from geoskip.report.palette import colored
from geoskip.report.picture_grids import PAPER_MM, PAPER_PCT, errors_mm, part_shapes, shape_pictures
from geoskip.report.pictures import image_grid, png_bytes
from geoskip.report.runs import VALIDATION

MISSING = "–"
UNKNOWN_COMMIT = "commit and data key not recorded"


@dataclass
class Reproduction:
    """The jobs of an experiment, or of some of its rows, and how they ended."""

    experiment: Experiment
    pending: list[Job]
    done: dict[Job, RunRecord]
    processes: int = 1
    baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
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
        """The jobs that have no record in ``out`` are pending.

        Jobs are ordered by seed, so that a table is complete with one seed as early as possible.
        """
        whole = find_experiment(name)
        chosen = replace(whole, rows=whole.select(patterns))
        data_of = chosen_data(chosen.tasks, data, schedule)
        jobs = [Job(row, data_of[row.task], schedule, seed) for seed in seeds for row in chosen.rows]
        done = {job: record for job in jobs if (record := finished(job, out)) is not None}
        baselines = stored_baselines(chosen, out, data_of[chosen.tasks[0]])
        return cls(chosen, [job for job in jobs if job not in done], done, processes, baselines)

    @property
    def jobs(self) -> list[Job]:
        """Done or not, by row and seed."""
        return [*self.done, *(job for job in self.pending if job not in self.done)]

    @property
    def waiting(self) -> list[Job]:
        failed = {outcome.job for outcome in self.faults}
        return [job for job in self.pending if job not in self.done and job not in failed]

    def add(self, outcome: Outcome) -> str:
        """Count an outcome, and describe it in a line."""
        job, record = outcome.job, outcome.record
        if record is None:
            self.faults.append(outcome)
            return f"{job.label}: failed: {outcome.fault}"
        self.done[job] = record
        figure = cell(job.row, {job.seed: record}, job.row.metrics[0], is_comparable(job.data))
        return f"{job.label}: {figure} in {duration(record.seconds)}; {self.summary()}"

    @property
    def runs(self) -> Runs:
        runs: dict[PaperRow, dict[int, RunRecord]] = {row: {} for row in self.experiment.rows}
        for job, record in self.done.items():
            runs[job.row][job.seed] = record
        return runs

    def table(self) -> TextTable:
        """With a second metric if all rows are of one task."""
        num_metrics = 2 if len(self.experiment.tasks) == 1 else 1
        comparable = all(is_comparable(job.data) for job in self.jobs)
        return experiment_table(
            self.experiment, self.runs, num_metrics=num_metrics, baselines=self.baselines, comparable=comparable
        )

    def summary(self) -> str:
        return summary([self])


def summary(reproductions: Sequence[Reproduction]) -> str:
    """``12 of 42 done, about 40 min left``; without an estimate before the first job of each experiment has ended."""
    num_jobs = sum(len(each.jobs) for each in reproductions)
    text = f"{sum(len(each.done) for each in reproductions)} of {num_jobs} done"
    num_failed = sum(len(each.faults) for each in reproductions)
    text += f", {num_failed} failed" if num_failed else ""
    waiting = [each for each in reproductions if each.waiting]
    if not waiting:
        return text
    seconds = [remaining_seconds(each.waiting, each.done, each.processes) for each in waiting]
    if None in seconds:
        return f"{text}, {sum(len(each.waiting) for each in waiting)} to go"
    return f"{text}, about {duration(sum(filter(None, seconds)))} left"


def all_reproductions(out: Path, processes: int = 1) -> list[Reproduction]:
    """Everything behind ``docs/results.md``, in the order in which to run it."""
    return [
        Reproduction.start(part.experiment, part.rows, part.seeds, part.schedule, [part.data], out, processes)
        for part in EVIDENCE
    ]


def overview(reproductions: Sequence[Reproduction]) -> TextTable:
    """One line per experiment, data set and schedule: how many rows and seeds, how many of their runs are done, and
    the time of the device: that of a run is divided by the number of runs that shared it."""
    header = ("experiment", "data", "schedule", "rows", "seeds", "runs done", "minutes", "minutes left")
    rates = device_rates(record for each in reproductions for record in each.done.values())
    return TextTable("Runs", header, tuple(_counts(each, rates) for each in reproductions))


def _counts(reproduction: Reproduction, rates: Mapping[tuple[str, str], float]) -> tuple[str, ...]:
    jobs, records = reproduction.jobs, reproduction.done.values()
    names = (", ".join(dict.fromkeys(getattr(job, key) for job in jobs)) for key in ("data", "schedule"))
    counts = (str(len({getattr(job, key) for job in jobs})) for key in ("row", "seed"))
    known = bool(records) and all(record.concurrency for record in records)
    spent = sum(record.seconds / record.concurrency for record in records) if known else None
    left = [device_seconds(job, rates) for job in reproduction.waiting]
    minutes = (_minutes(spent), _minutes(None if None in left else sum(filter(None, left))))
    return (reproduction.experiment.name, *names, *counts, f"{len(records)} of {len(jobs)}", *minutes)


def _minutes(seconds: float | None) -> str:
    return MISSING if seconds is None else f"{seconds / 60:.1f}"


def device_rates(records: Iterable[RunRecord]) -> dict[tuple[str, str], float]:
    """Seconds of the device per epoch, by data set and operator; the operator "" is the mean over all of them. Records
    of a CPU, or that do not say how many runs shared the device, do not count."""
    rates: dict[tuple[str, str], list[float]] = {}
    for record in records:
        if record.concurrency and "CPU" not in record.device:
            for operator in (str(record.config["operator"]), ""):
                per_epoch = record.seconds / record.concurrency / record.epochs
                rates.setdefault((str(record.config["data"]), operator), []).append(per_epoch)
    return {key: fmean(values) for key, values in rates.items()}


def device_seconds(job: Job, rates: Mapping[tuple[str, str], float]) -> float | None:
    """An estimate from the :func:`device_rates` of the operator on the same data, or of all operators; None if there
    are none."""
    rate = rates.get((job.data, job.row.operator), rates.get((job.data, "")))
    return None if rate is None else rate * job.config().optim.epochs


def remaining_seconds(pending: Sequence[Job], done: Mapping[Job, RunRecord], processes: int = 1) -> float | None:
    """Each pending job takes as long as its row with other seeds, or else as the average row of its task.

    None if no job has ended yet. Parallel jobs share the time.
    """
    if not done:
        return None

    def estimate(job: Job) -> float:
        same_row = [record.seconds for other, record in done.items() if other.row == job.row]
        same_task = [record.seconds for other, record in done.items() if other.row.task == job.row.task]
        return fmean(same_row or same_task or [record.seconds for record in done.values()])

    return sum(map(estimate, pending)) / max(1, min(processes, len(pending)))


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
        bounds = re.fullmatch(r"\s*(\d+)(?:\s*\.\.\s*(\d+))?\s*", part)
        if bounds is None or (bounds[2] is not None and int(bounds[2]) < int(bounds[1])):
            raise ValueError(f"seeds: expected seeds such as 0..4 or 0,2,7, got {text!r}")
        seeds |= set(range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1))
    return tuple(sorted(seeds))


@dataclass(frozen=True)
class TextTable:
    """A table of text; the first column names the method."""

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def experiment_table(
    experiment: Experiment,
    runs: Runs,
    *,
    num_metrics: int = 1,
    baselines: Mapping[str, Mapping[str, float]] | None = None,
    comparable: bool = True,
) -> TextTable:
    """One line per method, one column per kernel size or task; cells read ``ours ± half (paper)``.

    With two metrics, the second follows the first: the median of reconstructions, the mean geodesic error. The figures
    of ``baselines``, which have no kernel size, are the same in all columns. If the data are not ``comparable``, the
    paper's figures are left out.
    """
    # The first row of each column, and the cells of each line.
    columns: dict[tuple[str, str], PaperRow] = {}
    cells: dict[str, dict[tuple[str, str], str]] = {}
    for row in experiment.rows:
        for metric in [metric for metric in row.metrics if metric != "std_mm"][:num_metrics]:
            column = _column(experiment, row), metric
            columns.setdefault(column, row)
            cells.setdefault(row.line, {})[column] = cell(row, runs.get(row, {}), metric, comparable)
    lines = [(line, *(of_line.get(column, "") for column in columns)) for line, of_line in cells.items()]
    for name, figures in (baselines or {}).items():
        numbers = (
            row.metric(metric).shown(figures[metric]) if metric in figures else MISSING
            for (_, metric), row in columns.items()
        )
        lines.append((name, *numbers))
    headings = (_heading(experiment, row, *column, num_metrics) for column, row in columns.items())
    return TextTable(experiment.title, ("method", *headings), tuple(lines), notes(experiment, runs))


def cell(row: PaperRow, records: Mapping[int, RunRecord], metric: str, comparable: bool = True) -> str:
    """``0.412 ± 0.004 (0.406)``: mean over seeds, half of the 95 % interval, the paper's figure if comparable."""
    about = row.metric(metric)
    paper = f" ({about.shown(row.paper[metric])})" if comparable and metric in row.paper else ""
    values = [record.metrics[metric] for record in records.values() if metric in record.metrics]
    return (about.shown_summary(summarize(values)) if values else MISSING) + paper


def notes(experiment: Experiment, runs: Runs) -> tuple[str, ...]:
    """One line per task that has runs: data, recipe, schedule, number of seeds, device, commit."""
    lines = []
    for task in experiment.tasks:
        records = [record for row in experiment.rows if row.task == task for record in runs.get(row, {}).values()]
        if records:
            lines.append(f"{task}: {_provenance(records)}")
    return tuple(lines)


def _provenance(records: Sequence[RunRecord]) -> str:
    data = ", ".join(sorted({str(record.config["data"]) for record in records}))
    coarsened = any(record.config.get("coarsening", {}).get("drawn") == "epoch" for record in records)
    rates: dict[str, set[str]] = {}
    for record in records:
        rates.setdefault(record.schedule, set()).add(_rate(record.config["optim"]))
    schedules = "; ".join(f"schedule {name} ({' or '.join(sorted(rates[name]))})" for name in sorted(rates))
    counts = Counter((record.experiment, record.row) for record in records).values()
    seeds = " to ".join(map(str, dict.fromkeys([min(counts), max(counts)])))
    devices = ", ".join(sorted({record.device for record in records}))
    commits = ", ".join(sorted({f"commit {r.commit[:8]}" if r.commit else UNKNOWN_COMMIT for r in records}))
    recipe = ", a new coarsening in every epoch" if coarsened else ""
    return f"data {data}{recipe}; {schedules}; seeds {seeds}; {devices}; {commits}"


def _rate(optim: Mapping[str, Any]) -> str:
    every = "each" if optim["decay_every"] == 1 else f"every {optim['decay_every']}"
    epochs = f"{optim['epochs']} epoch{'' if optim['epochs'] == 1 else 's'}"
    return f"{epochs}, rate {optim['lr']:g} × {optim['lr_decay']:.3g} {every}"


def unit(row: PaperRow, name: str) -> str:
    """``mean error, mm``; ``validation accuracy, %``."""
    metric, prefix = row.metric(name), "validation " if name.startswith(VALIDATION) else ""
    return f"{prefix}{metric.heading.lower()}, {metric.unit}"


def _column(experiment: Experiment, row: PaperRow) -> str:
    if len(experiment.tasks) > 1:
        return row.task
    if row.variant:
        return row.title
    sizes = {other.column for other in experiment.rows if other.column is not None}
    return row.label.removeprefix(row.line).strip() if len(sizes) > 1 else ""


def _heading(experiment: Experiment, row: PaperRow, column: str, metric: str, num_metrics: int) -> str:
    if not column:
        return unit(row, metric)
    return f"{column}: {unit(row, metric)}" if num_metrics > 1 or len(experiment.tasks) > 1 else column


def draw(experiment: Experiment, done: Mapping[Job, RunRecord], out: Path, size: int = 240) -> list[Path]:
    """Draw a figure from the samples of its runs with the smallest seed: one row per method, one column per sample.

    Returns the paths: ``figures/NAME-DATA-SCHEDULE.png``, and a JSON file that names its rows.
    """
    seed = min(job.seed for job in done)
    jobs = [job for job in done if job.seed == seed]
    paths = [(job, job.folder(out) / "samples.safetensors") for job in jobs]
    samples = {job: read_samples(path) for job, path in paths if path.is_file()}
    if not samples:
        raise ValueError(f"figure: no samples of {experiment.name} in {out / 'work'}; records alone cannot be drawn")
    pictures: dict[str, list[np.ndarray]] = {}
    for job, of_job in samples.items():
        # The row of inputs, which methods share, is drawn once.
        pictures |= {name: row for name, row in _pictures(experiment.figure, job, of_job, size) if name not in pictures}
    path = out / "figures" / f"{experiment.name}-{jobs[0].data}-{jobs[0].schedule}.png"
    columns = len(next(iter(pictures.values())))
    atomic_write(path, png_bytes(image_grid([one for row in pictures.values() for one in row], columns)))
    legend = {"title": experiment.title, "seed": seed, "rows": list(pictures)}
    if any(isinstance(of_job, CorrespondenceSamples) for of_job in samples.values()):
        legend["blue-gray"] = "no label"
    atomic_write(path.with_suffix(".json"), json.dumps(legend, indent=1, ensure_ascii=False).encode())
    return [path, path.with_suffix(".json")]


def _pictures(figure: str, job: Job, samples: Samples, size: int) -> list[tuple[str, list[np.ndarray]]]:
    """The rows of pictures of one run, with their names."""
    label = job.row.label
    if isinstance(samples, CorrespondenceSamples):
        # Blue-gray where a vertex has no label.
        shapes = [(b.verts, b.faces, colored(b.error_pct, PAPER_PCT, "viridis")) for b in samples.meshes]
        return [(label, shape_pictures(shapes, size))]
    assert isinstance(samples, MeshSamples)
    if figure == "errors":
        colors = [colored(errors, PAPER_MM, "viridis") for errors in errors_mm(samples)]
        return [(label, shape_pictures(part_shapes(samples, "full", colors), size))]
    parts = {"input": "input", label: "full"}
    if figure == "affine":
        parts = {f"{label}: {part}": part for part in ("input", "full", "affine")}
    return [(name, shape_pictures(part_shapes(samples, part), size)) for name, part in parts.items()]
