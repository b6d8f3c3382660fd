"""Runs of one method summarized over their seeds, and the tables that these rows make up."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from geoskip.records import RunRecord, Samples
from geoskip.records.statistics import Summary, summarise
from geoskip.report.palette import SERIES
from geoskip.report.runs import ReportRun


@dataclass(frozen=True)
class Metric:
    """A figure of a run.

    key: its name in run records.
    heading: its name in a table.
    unit: in words short enough for an axis.
    digits: after the point.
    better: ``"lower"``, ``"higher"``, or empty where neither is.
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
    """A task, for a reader who has not seen the paper; its metrics, the one that counts first."""

    title: str
    text: str
    metrics: tuple[Metric, ...]


SUBJECTS = {
    "reconstruction": Subject(
        "Shape reconstruction",
        "An autoencoder squeezes each mesh into a few numbers and rebuilds it. The error is the distance of a vertex "
        "from where it should be, in millimeters, over all vertices of all test meshes.",
        (
            Metric("mean_mm", "Mean error", "mm"),
            Metric("median_mm", "Median error", "mm"),
            Metric("std_mm", "Spread over vertices", "mm"),
        ),
    ),
    "correspondence": Subject(
        "Dense correspondence",
        "Every vertex of a body is matched with the same point of a reference body. Accuracy counts exact matches; "
        "the geodesic error is the way along the surface between the match and the truth, in % of the longest way.",
        (
            Metric("accuracy_pct", "Accuracy", "%", 2, "higher"),
            Metric("geodesic_mean_pct", "Mean geodesic error", "% of the diameter", 2),
        ),
    ),
    "classification": Subject(
        "Digit classification",
        "An image becomes a graph of 75 superpixels; the network names the digit.",
        (Metric("accuracy_pct", "Accuracy", "%", 2, "higher"),),
    ),
}
# What stands in for the paper's data, for a reader who sees its figures beside ours.
DATA = {
    "faces": "These faces are generated, the paper's are scans (CoMA): compare the order of methods, not errors.",
    "bodies": "These bodies are generated, the paper's are scans (FAUST): compare the order of methods.",
    "superpixels": "The digits are MNIST's as in the paper, cut into superpixels anew.",
}
SCHEDULES = {
    "full": "trained as long as in the paper",
    "short": "a shorter training than the paper's, the same for every row",
    "smoke": "a few steps only: these figures show that it runs, and nothing else",
}


def subject_of(task: str, keys: list[str]) -> Subject:
    """What is known of a task, and a plain entry for every further metric."""
    known = SUBJECTS.get(task, Subject(task.capitalize() or "Runs", "", ()))
    named = {metric.key for metric in known.metrics}
    further = tuple(Metric(key, key.replace("_", " "), "", 4, "") for key in keys if key not in named)
    return Subject(known.title, known.text, tuple(m for m in known.metrics if m.key in keys) + further)


@dataclass(frozen=True)
class KernelSize:
    """The size of a kernel as configured, and what it comes to.

    value: M, the number of weight matrices, of every operator but SplineCNN; of that m, its control values a dimension.
    dim: dimensions that the size is meant for: 1, but for SplineCNN those of its pseudo-coordinates.
    """

    value: int
    letter: str = "M"
    dim: int = 1

    @property
    def matrices(self) -> int:
        """M = m^d: SplineCNN has a matrix for each product of splines."""
        return self.value**self.dim

    def __str__(self) -> str:
        return f"{self.letter} = {self.value}"


def kernel_size(config: Mapping[str, Any]) -> KernelSize | None:
    """The size that a record's configuration tells; None where the operator has none."""
    value = config.get("kernel_size")
    if not isinstance(value, int):
        return None
    return KernelSize(value, "m", _dim(config)) if config.get("operator") == "spline" else KernelSize(value)


def _dim(config: Mapping[str, Any]) -> int:
    """Of pseudo-coordinates: degrees have one dimension, places in an image two, those on a mesh three."""
    if config.get("pseudo") == "degree":
        return 1
    return 2 if config.get("task") == "classification" else 3


# Of an table: its name, task, data and schedule.
Key = tuple[str, str, str, str]
Kind = TypeVar("Kind", bound=Samples)
SKIPS = ("none", "residual", "affine")
OPERATORS = ("gin", "gcn", "cheb", "spiral", "feast", "spline", "monet")
# Settings in which runs of one row may differ: they change where and how long it is worked, not what is trained.
FREE = ("seed", "device", "evaluate_every", "checkpoint_every", "keep", "test_items", "data")


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


# By the name of the table in the records.
Published = Mapping[str, PublishedTable]


@dataclass(frozen=True, eq=False)
class ResultRow:
    """One row of a table: all seeds of one method.

    label: what the row is called; method: the same without its kernel size.
    variant: settings in which it differs from runs that are called the same, such as ``"optim.lr=0.01"``.
    operator, skip, size: from the configuration, where it tells.
    parameters: as trained here; paper_parameters: of the paper's model, where the row is one of its tables'.
    group: rows of one group are compared with each other, as between the rules of the paper's tables.
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
        """How many weight matrices its kernel has."""
        return None if self.size is None else self.size.matrices

    @property
    def column(self) -> str:
        """The size that its group stands under: ``M = 9``, of MoNet+ too; ``m = 2`` of SplineCNN; empty without."""
        return "" if self.size is None else str(replace(self.size, value=self.size.value - self.larger))

    @property
    def family(self) -> str:
        """The operator as the paper writes it: the method's name without what was done to it."""
        return self.method.removeprefix("Res-").removeprefix("Aff-").removesuffix("†").removesuffix("+" * self.larger)

    @property
    def larger(self) -> bool:
        """Whether it has one more weight matrix than its group: MoNet+, but not SpiralNet++."""
        return self.method.endswith("+") and not self.method.endswith("++")

    @property
    def look(self) -> str:
        """The color that stands for the row's skip."""
        return self.skip if self.skip in SERIES else "other"


@dataclass(frozen=True, eq=False)
class ResultTable:
    """Rows that were trained on the same data for the same time, and so can be compared."""

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
        """Its rows without those that it repeats from another table: what is drawn is drawn there."""
        return tuple(row for row in self.rows if row.runs[0].record.experiment == self.name)

    def named(self, row: ResultRow) -> str:
        """The method, and what its pseudo-coordinates are made of where rows of one method differ in that."""
        made_of = {other.group[2] for other in self.rows if other.method == row.method}
        return f"{row.method} ({row.group[2]})" if len(made_of) > 1 else row.method

    @property
    def length(self) -> str:
        """How long its rows were trained: ``20 epochs``; empty where they differ, or do not tell."""
        found = {dict(_settings(run.record.config)).get("optim.epochs") for row in self.rows for run in row.runs}
        epochs = found.pop() if len(found) == 1 else None
        return "" if epochs is None else f"{epochs} epoch{'' if epochs == '1' else 's'}"

    @property
    def title(self) -> str:
        named = self.heading or " · ".join(filter(None, (self.subject.title, self.name)))
        return f"{named}, {self.data}" if self.data else named


def result_tables(runs: Sequence[ReportRun], published: Published | None = None) -> list[ResultTable]:
    """The runs by table, task, data and schedule, in the order in which each first occurs.

    ``published`` adds to an experiment of that name its title, the rows that it repeats from other tables, and the
    published parameter counts.
    """
    published = published or {}
    parted: dict[Key, list[ReportRun]] = {}
    for run in runs:
        r = run.record
        parted.setdefault((r.experiment, _text(r, "task"), _data(r), r.schedule), []).append(run)
    whole = parted | {key: [] for key in _borrowed(parted, published)}
    return [
        _result_table(f"e{number}", [*members, *_from_other_tables(key, parted, published)], key, published)
        for number, (key, members) in enumerate(whole.items())
    ]


def _borrowed(parted: Mapping[Key, Sequence[ReportRun]], published: Published) -> Iterator[Key]:
    """Parts of a table that has runs of its own, but none on these data: Table 3 borrows all of its bodies."""
    for name in dict.fromkeys(name for name, *_ in parted if name in published):
        for where in dict.fromkeys((task, data, schedule) for _, task, data, schedule in parted):
            key = (name, *where)
            owns = any((row.home, row.task) == (name, where[0]) for row in published[name].rows)
            if key not in parted and not owns and any(_from_other_tables(key, parted, published)):
                yield key


def _from_other_tables(
    key: Key, parted: Mapping[Key, Sequence[ReportRun]], published: Published
) -> Iterator[ReportRun]:
    """Runs of the rows that a table repeats from another: they are trained once, and recorded there."""
    name, *where = key
    rows = published[name].rows if name in published else ()
    wanted = {(row.home, row.label) for row in rows if row.home != name}
    for home in dict.fromkeys(home for home, _ in wanted):
        members = parted.get((home, where[0], where[1], where[2]), ())
        yield from (run for run in members if (home, run.record.row) in wanted)


def sampled(
    table: ResultTable, kind: type[Kind], same: Callable[[Kind], Hashable]
) -> list[list[tuple[ResultRow, Kind]]]:
    """Rows of one group with the samples of their first seed that has any, apart where ``same`` tells them apart."""
    groups: dict[tuple[Hashable, ...], list[tuple[ResultRow, Kind]]] = {}
    for row in table.own:
        samples = next((run.samples for run in row.runs if isinstance(run.samples, kind)), None)
        if samples is not None and samples.count:
            groups.setdefault((*row.group, same(samples)), []).append((row, samples))
    return list(groups.values())


def _result_table(key: str, runs: list[ReportRun], kind: Key, published: Published) -> ResultTable:
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
    """Settings that are not the same in all runs of one name: these are then no seeds of one row."""
    settings = [dict(_settings(run.record.config)) for run in runs]
    for name in {name for found in settings for name in found}:
        if len({found.get(name) for found in settings}) > 1:
            yield name


def _variant(record: RunRecord, names: Sequence[str]) -> str:
    settings = dict(_settings(record.config))
    return ", ".join(f"{name}={settings[name]}" for name in names if name in settings)


def _settings(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Names as ``geoskip train --set`` takes them, with their values."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _settings(value, f"{prefix}{name}.")
        elif prefix or name not in FREE:
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value)


def _result_row(label: str, variant: str, runs: list[ReportRun], published: Published) -> ResultRow:
    runs = sorted(runs, key=lambda run: run.record.seed)
    first = runs[0].record
    keys = dict.fromkeys(key for run in runs for key in run.record.metrics)
    metrics = {key: summarise([r.record.metrics[key] for r in runs if key in r.record.metrics]) for key in keys}
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
    """Other templates have other latent layers, so the same row has other counts on the paper's data."""
    rows = published[record.experiment].rows if record.experiment in published else ()
    found = (row.parameters for row in rows if (row.home, row.label) == (record.experiment, record.row))
    return next(found, None)


def _order(row: ResultRow) -> tuple[Any, ...]:
    """By number of weight matrices, operator and skip: plain, a larger kernel, residual, affine."""
    skip = SKIPS.index(row.skip) if row.skip in SKIPS else len(SKIPS)
    operator = OPERATORS.index(row.operator) if row.operator in OPERATORS else len(OPERATORS)
    return (int(row.group[1] or 0), operator, row.group, skip, row.matrices or 0, row.label)


def _text(record: RunRecord, key: str) -> str:
    value = record.config.get(key)
    return value if isinstance(value, str) else ""


def _data(record: RunRecord) -> str:
    """A data set by its name; of a path, the last part alone, since the page may travel."""
    return _text(record, "data").replace("\\", "/").rstrip("/").rpartition("/")[2]
