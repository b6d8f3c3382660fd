"""The runs of a report: finding them in folders, and what their metrics mean."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from geoskip.records import RecordError, RunRecord, Samples, read_record, read_samples
from geoskip.records.reading import ReadError, read_json
from geoskip.records.statistics import Summary

RECORD, SAMPLES = "record.json", "samples.safetensors"
# Prefix of a metric on the validation split.
VALIDATION = "validation_"


@dataclass(frozen=True, eq=False)
class ReportRun:
    """The record of a run, and its samples if it has any."""

    record: RunRecord
    samples: Samples | None = None


@dataclass(frozen=True, eq=False)
class LoadedRuns:
    """Runs in the order of their paths, and messages about files that could not be read."""

    runs: tuple[ReportRun, ...]
    problems: tuple[str, ...]


def find_runs(paths: Iterable[str | Path]) -> LoadedRuns:
    """Find all runs in the given folders, at any depth; a file is read as a record.

    A record is any JSON file with the entries of one. Its samples are in the same folder: ``samples.safetensors`` next
    to ``record.json``, ``NAME.samples.safetensors`` next to ``NAME.json``. A run that occurs twice, with and without
    samples, counts once. A file that cannot be read is reported and does not affect other runs.
    """
    runs: dict[str, ReportRun] = {}
    problems = []
    for path in _records(paths):
        try:
            record = read_record(path)
        except RecordError as error:
            problems.append(str(error))
            continue
        samples_path = path.with_name(SAMPLES if path.name == RECORD else f"{path.stem}.{SAMPLES}")
        try:
            samples = read_samples(samples_path) if samples_path.exists() else None
        except RecordError as error:
            problems.append(str(error))
            samples = None
        known = runs.get(_identity(record))
        if known is None or known.samples is None:
            runs[_identity(record)] = ReportRun(record, samples)
    if not runs:
        raise RecordError("; ".join(problems) or "no runs given: name the folder of a run, or a folder of runs")
    return LoadedRuns(tuple(runs.values()), tuple(problems))


def _records(paths: Iterable[str | Path]) -> list[Path]:
    records: dict[Path, None] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise RecordError(f"{path}: there is no such file or folder; check the name")
        below = [file for file in sorted(path.rglob("*.json")) if _is_record(file)] if path.is_dir() else [path]
        if not below:
            raise RecordError(
                f"{path}: contains no finished run (no {RECORD}); name a folder that `geoskip train` wrote"
            )
        records |= dict.fromkeys(below)
    return list(records)


def _is_record(path: Path) -> bool:
    """Whether a file has the name of a record or the entries of one."""
    if path.name == RECORD:
        return True
    try:
        entries = read_json(path)
    except (OSError, ReadError):
        return False
    return isinstance(entries, dict) and {"format", "seed", "parameters", "metrics"} <= set(entries)


def _identity(record: RunRecord) -> str:
    """A key that is equal for copies of a record."""
    return json.dumps([asdict(record) | {"curves": 0}], sort_keys=True)


@dataclass(frozen=True)
class Metric:
    """A figure of a run.

    key: its name in run records.
    heading: its name in a table.
    unit: its unit, short enough for the label of an axis.
    digits: number of decimals.
    better: ``"lower"``, ``"higher"``, or empty if neither is better.
    """

    key: str
    heading: str
    unit: str = ""
    digits: int = 3
    better: str = "lower"

    @property
    def label(self) -> str:
        """The heading with the unit: ``Mean error, mm``."""
        return f"{self.heading}, {self.unit}" if self.unit else self.heading

    def shown(self, value: float) -> str:
        return f"{value:.{self.digits}f}"

    def shown_summary(self, summary: Summary) -> str:
        """The mean, and half of its confidence interval: ``0.749 ± 0.010``."""
        half = "" if summary.half is None else f" ± {self.shown(summary.half)}"
        return f"{self.shown(summary.mean)}{half}"

    def change(self, before: float, after: float) -> float:
        """Percent of the value before if lower is better (an error); otherwise the difference (an accuracy)."""
        return 100 * (after / before - 1) if self.better == "lower" and before else after - before

    def shown_change(self, change: float) -> str:
        """A change with its sign: ``−20 %``, ``+13 points``, ``−0.2 points``."""
        number = f"{change:+.0f}" if abs(change) >= 1 else f"{change:+.1g}" if abs(change) >= 0.005 else "0"
        return f"{number} {'%' if self.better == 'lower' else 'points'}".replace("-", "−")


@dataclass(frozen=True)
class TaskDescription:
    """A task, explained to readers who have not seen the paper, and its metrics, the main one first."""

    title: str
    text: str
    metrics: tuple[Metric, ...]


TASK_DESCRIPTIONS = {
    "reconstruction": TaskDescription(
        "Shape reconstruction",
        "An autoencoder compresses each mesh into a few numbers and reconstructs it. The error is the distance between "
        "a reconstructed vertex and the original one, in millimeters, over all vertices of all test meshes.",
        (
            Metric("mean_mm", "Mean error", "mm"),
            Metric("median_mm", "Median error", "mm"),
            Metric("std_mm", "Standard deviation", "mm"),
        ),
    ),
    "correspondence": TaskDescription(
        "Dense correspondence",
        "Each vertex of a mesh is matched to a vertex of a reference mesh. Accuracy is the share of exact matches; "
        "the geodesic error is the distance along the surface between the match and the true vertex, in % of the "
        "diameter, the longest such distance.",
        (
            Metric("accuracy_pct", "Accuracy", "%", 2, "higher"),
            Metric("geodesic_mean_pct", "Mean geodesic error", "% of the diameter", 2),
        ),
    ),
    "classification": TaskDescription(
        "Graph classification",
        "Each graph, such as an image as superpixels, belongs to a class, which the network predicts.",
        (Metric("accuracy_pct", "Accuracy", "%", 2, "higher"),),
    ),
}
# How a data set differs from the paper's.
DATA = {
    "faces": "These faces are generated, whereas the paper uses scans (CoMA): compare the ranking of the methods, not "
    "the errors.",
    "mixed-faces": "These faces are generated, with many people and mixed expressions, whereas the paper uses scans "
    "(CoMA): compare the ranking of the methods, not the errors.",
    "moving-bodies": "These are generated bodies in motion. The paper has no such data to compare with.",
    "bodies": "These bodies are generated, whereas the paper uses scans (FAUST): compare the ranking of the methods.",
    "remeshed-bodies": "These bodies are generated, and each has its own connectivity, whereas the scans of the paper "
    "(FAUST) share one.",
    "superpixels": "The digits are MNIST, as in the paper, with our own superpixels.",
}
GENERATED = tuple(name for name, text in DATA.items() if "generated" in text)
SCHEDULES = {
    "full": "as long as in the paper",
    "short": "fewer than in the paper, as many for every row",
    "smoke": "only a few steps, to show that the code runs; the figures mean nothing",
}


# How the coarser levels of graphs are made, which matters more than the length of training.
COARSENINGS = {
    "": "",
    "epoch": "a new coarsening of every graph in every epoch, as in the authors’ code",
    "once": "one coarsening per graph for all epochs",
}


def describe_schedule(name: str) -> str:
    """A schedule in a few words; empty if it has no name of the paper's rows."""
    if name in SCHEDULES:
        return SCHEDULES[name]
    if re.fullmatch(r"in\d+", name):
        return "passing through all learning rates of the paper's schedule"
    return "the first of the paper's schedule" if re.fullmatch(r"first\d+", name) else ""


def describe_epochs(records: Iterable[RunRecord]) -> str:
    """The length of training, such as ``20 epochs``; empty if the records differ or do not say."""
    lengths = {_setting(record, "optim", "epochs") for record in records}
    epochs = lengths.pop() if len(lengths) == 1 else None
    return "" if epochs is None else f"{epochs} epoch{'' if epochs == 1 else 's'}"


def describe_coarsening(records: Iterable[RunRecord]) -> str:
    """How the graphs of a classification are coarsened, in words; empty for other tasks, or if the records differ."""
    drawn = set()
    for record in records:
        kind = "epoch" if _setting(record, "coarsening", "drawn") == "epoch" else "once"
        drawn.add(kind if record.config.get("task") == "classification" else "")
    return COARSENINGS[drawn.pop()] if len(drawn) == 1 else ""


def describe_precision(records: Iterable[RunRecord]) -> str:
    """Whether all runs allowed TensorFloat-32; empty if not."""
    allowed = [bool(record.config.get("tf32")) for record in records]
    return "matrix products in TensorFloat-32" if allowed and all(allowed) else ""


def _setting(record: RunRecord, group: str, name: str) -> Any:
    """One of the nested settings of a run; None if it has no such setting."""
    settings = record.config.get(group)
    return settings.get(name) if isinstance(settings, Mapping) else None


def describe_task(task: str, keys: list[str]) -> TaskDescription:
    """The description of a task, with a plain entry for every metric that it does not list."""
    known = TASK_DESCRIPTIONS.get(task, TaskDescription(task.capitalize() or "Runs", "", ()))
    validation = tuple(
        replace(m, key=f"{VALIDATION}{m.key}", heading=f"Validation {m.heading.lower()}") for m in known.metrics
    )
    known = replace(known, metrics=known.metrics + validation)
    named = {metric.key for metric in known.metrics}
    further = tuple(Metric(key, key.replace("_", " "), "", 4, "") for key in keys if key not in named)
    return TaskDescription(known.title, known.text, tuple(m for m in known.metrics if m.key in keys) + further)
