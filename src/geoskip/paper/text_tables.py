"""Tables of records as text cells: our figures next to the paper's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from geoskip.paper.experiments import Experiment
from geoskip.paper.rows import PaperRow
from geoskip.paper.running import Runs
from geoskip.records import RunRecord
from geoskip.records.statistics import summarize
from geoskip.report.runs import TASK_DESCRIPTIONS, VALIDATION, Metric

MISSING = "–"
UNKNOWN_COMMIT = "commit and data key not recorded"


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
    shown = [
        (row, _column(experiment, row), metric)
        for row in experiment.rows
        for metric in [metric for metric in row.metrics if metric != "std_mm"][:num_metrics]
    ]
    columns = {(column, metric): row for row, column, metric in reversed(shown)}
    cells = {
        (row.line, column, metric): cell(row, runs.get(row, {}), metric, comparable) for row, column, metric in shown
    }
    ordered = dict.fromkeys((column, metric) for _, column, metric in shown)
    lines = [
        (line, *(cells.get((line, *column), "") for column in ordered))
        for line in dict.fromkeys(row.line for row in experiment.rows)
    ]
    for name, figures in (baselines or {}).items():
        numbers = [
            f"{figures[metric]:.{_metric(row, metric).digits}f}" if metric in figures else MISSING
            for (_, metric), row in ((column, columns[column]) for column in ordered)
        ]
        lines.append((name, *numbers))
    headings = (_heading(experiment, columns[column], *column, num_metrics) for column in ordered)
    return TextTable(experiment.title, ("method", *headings), tuple(lines), notes(experiment, runs))


def cell(row: PaperRow, records: Mapping[int, RunRecord], metric: str, comparable: bool = True) -> str:
    """``0.412 ± 0.004 (0.406)``: mean over seeds, half of the 95 % interval, the paper's figure if comparable."""
    digits = _metric(row, metric).digits
    paper = f" ({row.paper[metric]:.{digits}f})" if comparable and metric in row.paper else ""
    values = [record.metrics[metric] for record in records.values() if metric in record.metrics]
    if not values:
        return MISSING + paper
    over_seeds = summarize(values)
    spread = "" if over_seeds.half is None else f" ± {over_seeds.half:.{digits}f}"
    return f"{over_seeds.mean:.{digits}f}{spread}{paper}"


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


def _metric(row: PaperRow, name: str) -> Metric:
    key = name.removeprefix(VALIDATION)
    return next(metric for metric in TASK_DESCRIPTIONS[row.task].metrics if metric.key == key)


def unit(row: PaperRow, name: str) -> str:
    """``mean error, mm``; ``validation accuracy, %``."""
    metric, prefix = _metric(row, name), "validation " if name.startswith(VALIDATION) else ""
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
