"""Runs of one method summarized over their seeds, and the tables that these rows make up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from geoskip.records import RunRecord
from geoskip.records.statistics import Summary, summarize
from geoskip.report.palette import SERIES
from geoskip.report.runs import ReportRun, TaskDescription, describe_epochs, describe_schedule, describe_task

# Settings that may differ between the runs of one row, since they do not change what is trained.
UNCOMPARED = ("seed", "device", "evaluate_every", "checkpoint_every", "keep", "test_items", "data")


@dataclass(frozen=True)
class PublishedRow:
    """A row of a published table.

    home: the experiment whose records hold the row.
    label: the row of these records.
    parameters: the published parameter count.
    matrices: the number of weight matrices of a convolution.
    """

    home: str
    label: str
    task: str
    parameters: int | None = None
    matrices: int | None = None


@dataclass(frozen=True)
class PublishedTable:
    """A published table that runs may belong to. It may repeat rows whose records belong to another table.

    other_data: data sets without a counterpart in the publication; runs on them do not have its title.
    """

    title: str
    rows: tuple[PublishedRow, ...]
    other_data: tuple[str, ...] = ()


# By the name of the experiment in the records.
Published = Mapping[str, PublishedTable]


class RowGroup(NamedTuple):
    """What rows must share to be compared with each other, like those between two rules of the paper's tables."""

    operator: str
    matrices: int
    pseudo: str
    without_self_loops: bool
    variant: str

    @property
    def details(self) -> tuple[str, ...]:
        """The unusual facts, for titles."""
        return tuple(filter(None, ("without self-loops" * self.without_self_loops, self.variant)))


@dataclass(frozen=True, eq=False)
class ResultRow:
    """One row of a table: all seeds of one method.

    label: name of the row; ``method`` is the same without the kernel size.
    variant: settings that tell it apart from rows of the same name, such as ``"optim.lr=0.01"``.
    kernel_size, matrices: the configured kernel size and the number of weight matrices, None if it has no kernel size.
        They differ for SplineCNN, which has one matrix for each product of splines.
    parameters: parameter count of our model; ``paper_parameters``: of the paper's, if the row is in one of its tables.
    position: its place in the published table; infinite if it is not in one.
    """

    label: str
    method: str
    skip: str
    kernel_size: int | None
    matrices: int | None
    group: RowGroup
    parameters: int
    metrics: dict[str, Summary]
    paper: dict[str, float]
    paper_parameters: int | None
    position: float
    runs: tuple[ReportRun, ...]

    @property
    def size(self) -> str:
        """The kernel size of its group, such as ``M = 9`` (also for MoNet+); empty if it has none."""
        return f"M = {self.group.matrices}" if self.matrices else ""

    @property
    def family(self) -> str:
        """The name of the operator in the paper: the method without prefixes and suffixes."""
        return self.method.removeprefix("Res-").removeprefix("Aff-").removesuffix("†").removesuffix("+" * self.larger)

    @property
    def larger(self) -> bool:
        """Whether it has one more weight matrix than its group: MoNet+, but not SpiralNet++."""
        return _is_larger(self.method)

    @property
    def is_plain(self) -> bool:
        """Whether it is what the affine row of its group is compared with: no skip, no ablation, no larger kernel.

        FeaStNet† (no self-loops) is in a group of its own, and plain there.
        """
        ablated = self.method.endswith("†") and not self.group.without_self_loops
        return self.skip == "none" and not self.larger and not ablated

    @property
    def look(self) -> str:
        """The name of the row's color, which shows its skip."""
        return self.skip if self.skip in SERIES else "other"


@dataclass(frozen=True, eq=False)
class ResultTable:
    """Rows that can be compared, since they were trained on the same data with the same schedule.

    ``training`` is part of the title where another table has the same rows and data.
    """

    key: str
    name: str
    task: str
    data: str
    schedule: str
    description: TaskDescription
    rows: tuple[ResultRow, ...]
    heading: str = ""
    training: str = ""

    @property
    def own(self) -> tuple[ResultRow, ...]:
        """Its rows without those repeated from another table, which has their charts and samples."""
        return tuple(row for row in self.rows if row.runs[0].record.experiment == self.name)

    def pseudo(self, row: ResultRow) -> str:
        """The pseudo-coordinates of a row, if its label names them or the rows of its operator differ in them."""
        kinds = {other.group.pseudo for other in self.rows if other.family == row.family}
        return row.group.pseudo if len(kinds) > 1 or f"({row.group.pseudo})" in row.label else ""

    def named(self, row: ResultRow) -> str:
        """The name of the method, with its pseudo-coordinates if they differ, and what its label says about it.

        Rows that differ in none of these, nor in their size and settings, go by their label.
        """
        pseudo = self.pseudo(row)
        name = f"{row.method} ({pseudo})" if pseudo else row.method
        if about := row.label.removesuffix(f", {row.group.variant}").partition(", ")[2]:
            return f"{name}, {about}"
        same = [o for o in self.rows if (o.method, o.group, o.matrices) == (row.method, row.group, row.matrices)]
        return row.label if len(same) > 1 else name

    def counts_per_dimension(self, row: ResultRow) -> bool:
        """Whether the kernel size of the row's operator is not its number of weight matrices: SplineCNN."""
        return any(o.family == row.family and o.matrices != o.kernel_size for o in self.rows)

    @property
    def epochs(self) -> str:
        """The length of training, such as ``20 epochs``; empty if the rows differ or do not say."""
        return describe_epochs(run.record for row in self.rows for run in row.runs)

    @property
    def is_short(self) -> bool:
        """Whether its training is known to be shorter than the paper's."""
        return self.schedule != "full" and bool(describe_schedule(self.schedule))

    @property
    def title(self) -> str:
        named = self.heading or " · ".join(filter(None, (self.description.title, self.name)))
        return ", ".join(filter(None, (named, self.data, self.training)))


def result_tables(runs: Sequence[ReportRun], published: Published | None = None) -> list[ResultTable]:
    """The runs by experiment, task, data and schedule, in the order of the published tables and of their rows.

    What is not published comes last, in the order in which it first occurs.

    ``published`` adds the titles of tables, the order of their rows, the rows that they repeat from other tables, and
    published parameter counts. A table may consist of repeated rows alone: the bodies of Table 3.
    """
    published = published or {}
    groups: dict[tuple[str, str, str], list[ReportRun]] = {}
    for run in runs:
        groups.setdefault((_text(run.record, "task"), _data(run.record), run.record.schedule), []).append(run)
    tables: list[ResultTable] = []
    names = dict.fromkeys(run.record.experiment for run in runs)
    for name in (*(name for name in published if name in names), *(name for name in names if name not in published)):
        rows = published[name].rows if name in published else ()
        places = {(row.home, row.label): n for n, row in enumerate(rows)}
        parts: list[tuple[int, tuple[str, str, str], list[ReportRun]]] = []
        repeated = {(row.home, row.label) for row in rows if row.home != name}
        for key, members in groups.items():
            own = [run for run in members if run.record.experiment == name]
            others = [run for run in members if (run.record.experiment, run.record.row) in repeated]
            has_own_rows = any((row.home, row.task) == (name, key[0]) for row in rows)
            if own or (others and not has_own_rows):
                first = min(places.get((r.record.experiment, r.record.row), len(rows)) for r in (*own, *others))
                parts.append((first, key, [*own, *others]))
        for _, key, members in sorted(parts, key=lambda part: part[0]):
            tables.append(_result_table(f"e{len(tables)}", members, name, key, published))
    return _with_distinct_titles(tables)


def _with_distinct_titles(tables: Sequence[ResultTable]) -> list[ResultTable]:
    """Tables of one title that differ in their schedule, with the length of training, or else the schedule's name."""
    titles = Counter(table.title for table in tables)
    lengths = Counter((table.title, table.epochs) for table in tables)

    def training(table: ResultTable) -> str:
        says_it = table.epochs and lengths[table.title, table.epochs] == 1
        return table.epochs if says_it else f"{table.schedule} schedule"

    return [table if titles[table.title] == 1 else replace(table, training=training(table)) for table in tables]


def _result_table(
    key: str, runs: list[ReportRun], name: str, group: tuple[str, str, str], published: Published
) -> ResultTable:
    by_label: dict[str, list[ReportRun]] = {}
    for run in runs:
        by_label.setdefault(run.record.row or run.record.name, []).append(run)
    differing = sorted({setting for members in by_label.values() for setting in _differing(members)})
    by_row: dict[tuple[str, str], list[ReportRun]] = {}
    for label, members in by_label.items():
        for run in members:
            by_row.setdefault((label, _variant(run.record, differing)), []).append(run)
    rows = [_result_row(*names, members, published) for names, members in by_row.items()]
    # By size, then by operator as published; in each group: plain, larger kernel, residual, affine.
    first = {row.group.operator: row.position for row in sorted(rows, key=lambda row: -row.position)}
    looks = list(SERIES)
    rows.sort(
        key=lambda row: (
            row.group.matrices,
            first[row.group.operator],
            row.group,
            looks.index(row.look),
            row.matrices or 0,
            row.label,
        )
    )
    metrics = list(dict.fromkeys(key for row in rows for key in row.metrics))
    description = describe_task(group[0], metrics)
    title = published[name].title if name in published else ""
    heading = description.title if name in published and group[1] in published[name].other_data else title
    return ResultTable(key, name, *group, description, tuple(rows), heading)


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
    table = published[first.experiment].rows if first.experiment in published else ()
    position, row = next(
        ((n, row) for n, row in enumerate(table) if (row.home, row.label) == (first.experiment, first.row)),
        (float("inf"), None),
    )
    kernel_size = first.config.get("kernel_size")
    kernel_size = kernel_size if isinstance(kernel_size, int) else None
    matrices = kernel_size and (first.weight_matrices or (row and row.matrices) or kernel_size)
    options = first.config.get("options")
    return ResultRow(
        label=f"{label}, {variant}" if variant else label,
        method=first.name,
        skip=_text(first, "skip") or "none",
        kernel_size=kernel_size,
        matrices=matrices,
        group=RowGroup(
            operator=_text(first, "operator") or first.name,
            matrices=(matrices or 0) - _is_larger(first.name),
            pseudo=_text(first, "pseudo"),
            without_self_loops=isinstance(options, Mapping) and options.get("self_loops") is False,
            variant=variant,
        ),
        parameters=first.parameters,
        metrics=metrics,
        paper=dict(first.paper),
        paper_parameters=None if row is None else row.parameters,
        position=position,
        runs=tuple(runs),
    )


def _is_larger(method: str) -> bool:
    return method.endswith("+") and not method.endswith("++")


def _text(record: RunRecord, key: str) -> str:
    value = record.config.get(key)
    return value if isinstance(value, str) else ""


def _data(record: RunRecord) -> str:
    """The name of the data set; the last part of a path, so that the page shows no local folders."""
    return _text(record, "data").replace("\\", "/").rstrip("/").rpartition("/")[2]
