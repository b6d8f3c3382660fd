"""Runs of one method summarized over their seeds, and the tables that these rows make up."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from geoskip.records import RunRecord, Samples
from geoskip.records.statistics import Summary, summarize
from geoskip.report.palette import SERIES
from geoskip.report.runs import ReportRun

# Experiment, task, data and schedule of a table.
TableKey = tuple[str, str, str, str]
Kind = TypeVar("Kind", bound=Samples)
SKIPS = ("none", "residual", "affine")
OPERATORS = ("gin", "gcn", "cheb", "spiral", "feast", "spline", "monet")
# Prefix of a metric on the validation split.
VALIDATION = "validation_"
# Settings that may differ between the runs of one row, since they do not change what is trained.
UNCOMPARED = ("seed", "device", "evaluate_every", "checkpoint_every", "keep", "test_items", "data")


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

    def shown(self, value: float) -> str:
        return f"{value:.{self.digits}f}"


@dataclass(frozen=True)
class Subject:
    """A task, explained to readers who have not seen the paper, and its metrics, the main one first."""

    title: str
    text: str
    metrics: tuple[Metric, ...]


SUBJECTS = {
    "reconstruction": Subject(
        "Shape reconstruction",
        "An autoencoder compresses each mesh into a few numbers and reconstructs it. The error is the distance between "
        "a reconstructed vertex and the original one, in millimeters, over all vertices of all test meshes.",
        (
            Metric("mean_mm", "Mean error", "mm"),
            Metric("median_mm", "Median error", "mm"),
            Metric("std_mm", "Standard deviation", "mm"),
        ),
    ),
    "correspondence": Subject(
        "Dense correspondence",
        "Each vertex of a body is matched to a vertex of a reference body. Accuracy is the share of exact matches; "
        "the geodesic error is the distance along the surface between the match and the true vertex, in % of the "
        "diameter, the longest such distance.",
        (
            Metric("accuracy_pct", "Accuracy", "%", 2, "higher"),
            Metric("geodesic_mean_pct", "Mean geodesic error", "% of the diameter", 2),
        ),
    ),
    "classification": Subject(
        "Digit classification",
        "Each image is a graph of 75 superpixels, and the network predicts the digit.",
        (Metric("accuracy_pct", "Accuracy", "%", 2, "higher"),),
    ),
}
# How a data set differs from the paper's.
DATA = {
    "faces": "These faces are generated, whereas the paper uses scans (CoMA): compare the ranking of the methods, not "
    "the errors.",
    "bodies": "These bodies are generated, whereas the paper uses scans (FAUST): compare the ranking of the methods.",
    "superpixels": "The digits are MNIST, as in the paper, with our own superpixels.",
}
SCHEDULES = {
    "full": "as long as in the paper",
    "short": "shorter than in the paper, the same for every row",
    "smoke": "only a few steps, to show that the code runs; the figures mean nothing",
}


def subject_of(task: str, keys: list[str]) -> Subject:
    """The description of a task, with a plain entry for every metric that it does not list."""
    known = SUBJECTS.get(task, Subject(task.capitalize() or "Runs", "", ()))
    validation = tuple(
        replace(m, key=f"{VALIDATION}{m.key}", heading=f"Validation {m.heading.lower()}") for m in known.metrics
    )
    known = replace(known, metrics=known.metrics + validation)
    named = {metric.key for metric in known.metrics}
    further = tuple(Metric(key, key.replace("_", " "), "", 4, "") for key in keys if key not in named)
    return Subject(known.title, known.text, tuple(m for m in known.metrics if m.key in keys) + further)


@dataclass(frozen=True)
class KernelSize:
    """A configured kernel size.

    value: the number of weight matrices M; for SplineCNN, the number of control values per dimension m.
    dim: 1; for SplineCNN, the dimension of its pseudo-coordinates.
    """

    value: int
    letter: str = "M"
    dim: int = 1

    @property
    def matrices(self) -> int:
        """The number of weight matrices: M = m^d for SplineCNN, which has one for each product of splines."""
        return self.value**self.dim

    def __str__(self) -> str:
        return f"{self.letter} = {self.value}"


def kernel_size(config: Mapping[str, Any]) -> KernelSize | None:
    """The kernel size of a configuration; None if the operator has none."""
    value = config.get("kernel_size")
    if not isinstance(value, int):
        return None
    return KernelSize(value, "m", _dim(config)) if config.get("operator") == "spline" else KernelSize(value)


def _dim(config: Mapping[str, Any]) -> int:
    """Dimension of the pseudo-coordinates: 1 for degrees, 2 for positions in an image, 3 on a mesh."""
    if config.get("pseudo") == "degree":
        return 1
    return 2 if config.get("task") == "classification" else 3


@dataclass(frozen=True)
class PublishedRow:
    """A row of a published table: the experiment whose records hold it, its label there, task and parameter count."""

    home: str
    label: str
    task: str
    parameters: int | None = None


@dataclass(frozen=True)
class PublishedTable:
    """A published table that runs may belong to. It may repeat rows whose records belong to another table."""

    title: str
    rows: tuple[PublishedRow, ...]


# By the name of the experiment in the records.
Published = Mapping[str, PublishedTable]


@dataclass(frozen=True, eq=False)
class ResultRow:
    """One row of a table: all seeds of one method.

    label: name of the row; ``method`` is the same without the kernel size.
    variant: settings that tell it apart from rows of the same name, such as ``"optim.lr=0.01"``.
    operator, skip, size: from the configuration.
    parameters: parameter count of our model; ``paper_parameters``: of the paper's, if the row is in one of its tables.
    group: rows of one group are compared with each other, like those between two rules of the paper's tables.
    """

    label: str
    method: str
    operator: str
    skip: str
    size: KernelSize | None
    group: tuple[str, ...]
    variant: str
    parameters: int
    metrics: dict[str, Summary]
    paper: dict[str, float]
    paper_parameters: int | None
    runs: tuple[ReportRun, ...]

    @property
    def matrices(self) -> int | None:
        """The number of weight matrices of its kernel."""
        return None if self.size is None else self.size.matrices

    @property
    def column(self) -> str:
        """The kernel size of its group: ``M = 9`` (also for MoNet+), ``m = 2`` for SplineCNN, or empty."""
        return "" if self.size is None else str(replace(self.size, value=self.size.value - self.larger))

    @property
    def family(self) -> str:
        """The name of the operator in the paper: the method without prefixes and suffixes."""
        return self.method.removeprefix("Res-").removeprefix("Aff-").removesuffix("†").removesuffix("+" * self.larger)

    @property
    def larger(self) -> bool:
        """Whether it has one more weight matrix than its group: MoNet+, but not SpiralNet++."""
        return self.method.endswith("+") and not self.method.endswith("++")

    @property
    def look(self) -> str:
        """The name of the row's color, which shows its skip."""
        return self.skip if self.skip in SERIES else "other"


@dataclass(frozen=True, eq=False)
class ResultTable:
    """Rows that can be compared, since they were trained on the same data with the same schedule."""

    key: str
    name: str
    task: str
    data: str
    schedule: str
    subject: Subject
    rows: tuple[ResultRow, ...]
    heading: str = ""

    @property
    def own(self) -> tuple[ResultRow, ...]:
        """Its rows without those repeated from another table, which has their charts and samples."""
        return tuple(row for row in self.rows if row.runs[0].record.experiment == self.name)

    def named(self, row: ResultRow) -> str:
        """The name of the method, with its pseudo-coordinates if the rows of that method differ in them.

        Rows that differ in neither, nor in their size and settings, go by their label.
        """
        if sum((other.method, other.group, other.size) == (row.method, row.group, row.size) for other in self.rows) > 1:
            return row.label
        kinds = {other.group[2] for other in self.rows if other.method == row.method}
        return f"{row.method} ({row.group[2]})" if len(kinds) > 1 else row.method

    @property
    def length(self) -> str:
        """The length of training, such as ``20 epochs``; empty if the rows differ or do not say."""
        lengths = {dict(_settings(run.record.config)).get("optim.epochs") for row in self.rows for run in row.runs}
        epochs = lengths.pop() if len(lengths) == 1 else None
        return "" if epochs is None else f"{epochs} epoch{'' if epochs == '1' else 's'}"

    @property
    def title(self) -> str:
        named = self.heading or " · ".join(filter(None, (self.subject.title, self.name)))
        return f"{named}, {self.data}" if self.data else named


def result_tables(runs: Sequence[ReportRun], published: Published | None = None) -> list[ResultTable]:
    """The runs by experiment, task, data and schedule, in the order in which each first occurs.

    ``published`` adds the title of a table, the rows that it repeats from other tables, and published parameter counts.
    """
    published = published or {}
    by_key: dict[TableKey, list[ReportRun]] = {}
    for run in runs:
        r = run.record
        by_key.setdefault((r.experiment, _text(r, "task"), _data(r), r.schedule), []).append(run)
    whole = by_key | {key: [] for key in _borrowed(by_key, published)}
    return [
        _result_table(f"e{number}", [*members, *_from_other_tables(key, by_key, published)], key, published)
        for number, (key, members) in enumerate(whole.items())
    ]


def _borrowed(by_key: Mapping[TableKey, Sequence[ReportRun]], published: Published) -> Iterator[TableKey]:
    """Tables whose rows are all repeated from another experiment: the bodies of Table 3."""
    for name in dict.fromkeys(name for name, *_ in by_key if name in published):
        for where in dict.fromkeys((task, data, schedule) for _, task, data, schedule in by_key):
            key = (name, *where)
            owns = any((row.home, row.task) == (name, where[0]) for row in published[name].rows)
            if key not in by_key and not owns and any(_from_other_tables(key, by_key, published)):
                yield key


def _from_other_tables(
    key: TableKey, by_key: Mapping[TableKey, Sequence[ReportRun]], published: Published
) -> Iterator[ReportRun]:
    """Runs of the rows that a table repeats from another experiment, where they are recorded."""
    name, *where = key
    rows = published[name].rows if name in published else ()
    wanted = {(row.home, row.label) for row in rows if row.home != name}
    for home in dict.fromkeys(home for home, _ in wanted):
        members = by_key.get((home, where[0], where[1], where[2]), ())
        yield from (run for run in members if (home, run.record.row) in wanted)


def sampled(
    table: ResultTable, kind: type[Kind], same: Callable[[Kind], Hashable]
) -> list[list[tuple[ResultRow, Kind]]]:
    """Groups of rows with the samples of their first seed that has any. Rows of one group share the key ``same``."""
    groups: dict[tuple[Hashable, ...], list[tuple[ResultRow, Kind]]] = {}
    for row in table.own:
        samples = next((run.samples for run in row.runs if isinstance(run.samples, kind)), None)
        if samples is not None and samples.count:
            groups.setdefault((*row.group, same(samples)), []).append((row, samples))
    return list(groups.values())


def _result_table(key: str, runs: list[ReportRun], kind: TableKey, published: Published) -> ResultTable:
    name, task, data, schedule = kind
    by_label: dict[str, list[ReportRun]] = {}
    for run in runs:
        by_label.setdefault(run.record.row or run.record.name, []).append(run)
    differing = sorted({name for members in by_label.values() for name in _differing(members)})
    by_row: dict[tuple[str, str], list[ReportRun]] = {}
    for label, members in by_label.items():
        for run in members:
            by_row.setdefault((label, _variant(run.record, differing)), []).append(run)
    rows = sorted((_result_row(*names, members, published) for names, members in by_row.items()), key=_order)
    keys = list(dict.fromkeys(key for row in rows for key in row.metrics))
    title = published[name].title if name in published else ""
    return ResultTable(key, name, task, data, schedule, subject_of(task, keys), tuple(rows), title)


def _differing(runs: Sequence[ReportRun]) -> Iterator[str]:
    """Settings that differ between runs of the same name, so that the runs are not seeds of one row."""
    settings = [dict(_settings(run.record.config)) for run in runs]
    for name in {name for one in settings for name in one}:
        if len({one.get(name) for one in settings}) > 1:
            yield name


def _variant(record: RunRecord, names: Sequence[str]) -> str:
    settings = dict(_settings(record.config))
    return ", ".join(f"{name}={settings[name]}" for name in names if name in settings)


def _settings(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Settings and values, named as for ``geoskip train --set``."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _settings(value, f"{prefix}{name}.")
        elif prefix or name not in UNCOMPARED:
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value)


def _result_row(label: str, variant: str, runs: list[ReportRun], published: Published) -> ResultRow:
    runs = sorted(runs, key=lambda run: run.record.seed)
    first = runs[0].record
    keys = dict.fromkeys(key for run in runs for key in run.record.metrics)
    metrics = {key: summarize([r.record.metrics[key] for r in runs if key in r.record.metrics]) for key in keys}
    operator, size = _text(first, "operator"), kernel_size(first.config)
    larger = first.name.endswith("+") and not first.name.endswith("++")
    column = size.matrices - larger if size is not None else None
    loops = "without self-loops" if operator == "feast" and first.name.endswith("†") else ""
    return ResultRow(
        label=f"{label}, {variant}" if variant else label,
        method=first.name,
        operator=operator,
        skip=_text(first, "skip") or "none",
        size=size,
        group=(operator or first.name, str(column or ""), _text(first, "pseudo"), loops, variant),
        variant=variant,
        parameters=first.parameters,
        metrics=metrics,
        paper=dict(first.paper),
        paper_parameters=_paper_parameters(first, published),
        runs=tuple(runs),
    )


def _paper_parameters(record: RunRecord, published: Published) -> int | None:
    """The published parameter count of the row. Ours may differ, since it depends on the size of the mesh."""
    rows = published[record.experiment].rows if record.experiment in published else ()
    counts = (row.parameters for row in rows if (row.home, row.label) == (record.experiment, record.row))
    return next(counts, None)


def _order(row: ResultRow) -> tuple[Any, ...]:
    """Sort key: number of weight matrices, operator, then plain, larger kernel, residual, affine."""
    skip = SKIPS.index(row.skip) if row.skip in SKIPS else len(SKIPS)
    operator = OPERATORS.index(row.operator) if row.operator in OPERATORS else len(OPERATORS)
    return (int(row.group[1] or 0), operator, row.group, skip, row.matrices or 0, row.label)


def _text(record: RunRecord, key: str) -> str:
    value = record.config.get(key)
    return value if isinstance(value, str) else ""


def _data(record: RunRecord) -> str:
    """The name of the data set; the last part of a path, so that the page shows no local folders."""
    return _text(record, "data").replace("\\", "/").rstrip("/").rpartition("/")[2]
