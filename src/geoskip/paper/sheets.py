"""A table of an experiment: our figures, with their spread, beside the paper's. Text in cells, whoever prints it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from geoskip.paper.claims import Runs
from geoskip.paper.recipe import Experiment, Recipe
from geoskip.records import RunRecord
from geoskip.records.statistics import summarise

UNITS = {
    "mean_mm": "mean error, mm",
    "std_mm": "standard deviation, mm",
    "median_mm": "median error, mm",
    "accuracy_pct": "accuracy, %",
    "validation_accuracy_pct": "validation accuracy, %",
    "geodesic_mean_pct": "mean geodesic error, % of the diameter",
}
DIGITS = {"accuracy_pct": 2, "validation_accuracy_pct": 2, "geodesic_mean_pct": 2}
MISSING = "–"


@dataclass(frozen=True)
class Sheet:
    """A table of text: the first column names the method."""

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def sheet(experiment: Experiment, runs: Runs, *, ranks: int = 1) -> Sheet:
    """A line for each method, a column for each kernel size or task; cells read ``ours ± half (paper)``.

    With ``ranks`` 2 the second figure follows the first: the median of reconstructions, the mean geodesic error.
    """
    places = [(column, rank) for column in _columns(experiment) for rank in range(ranks)]
    cells = {
        (recipe.line, _column(experiment, recipe), rank): cell(recipe, runs.get(recipe, {}), metric)
        for recipe in experiment.recipes
        for rank, metric in enumerate(_shown(recipe))
    }
    places = [place for place in places if any(key[1:] == place for key in cells)]
    lines = dict.fromkeys(recipe.line for recipe in experiment.recipes)
    return Sheet(
        experiment.title,
        ("method", *(_heading(experiment, column, rank, ranks) for column, rank in places)),
        tuple((line, *(cells.get((line, *place), "") for place in places)) for line in lines),
        notes(experiment, runs),
    )


def cell(recipe: Recipe, records: Mapping[int, RunRecord], metric: str) -> str:
    """``0.412 ± 0.004 (0.406)``: mean over seeds, half of the 95 % interval, the paper's figure."""
    digits = DIGITS.get(metric, 3)
    paper = f" ({recipe.paper[metric]:.{digits}f})" if metric in recipe.paper else ""
    values = [record.metrics[metric] for record in records.values() if metric in record.metrics]
    if not values:
        return MISSING + paper
    over = summarise(values)
    spread = "" if over.half is None else f" ± {over.half:.{digits}f}"
    return f"{over.mean:.{digits}f}{spread}{paper}"


def notes(experiment: Experiment, runs: Runs) -> tuple[str, ...]:
    """What the figures rest on: data, schedule, seeds, device; nothing where there are none."""
    told: list[str] = []
    for task in experiment.tasks:
        records = [r for recipe in experiment.recipes if recipe.task == task for r in runs.get(recipe, {}).values()]
        if records:
            told.append(f"{task}: {_provenance(records)}")
    return tuple(told)


def _provenance(records: Sequence[RunRecord]) -> str:
    data = ", ".join(sorted({str(record.config["data"]) for record in records}))
    kinds = sorted({record.schedule for record in records})
    schedules = "; ".join(f"schedule {kind} ({_rates(records, kind)})" for kind in kinds)
    devices = ", ".join(sorted({record.device for record in records}))
    return f"data {data}; {schedules}; seeds {_seeds(records)}; {devices}"


def _rates(records: Sequence[RunRecord], schedule: str) -> str:
    return " or ".join(sorted({_rate(record.config["optim"]) for record in records if record.schedule == schedule}))


def _rate(optim: Mapping[str, Any]) -> str:
    every = "each" if optim["decay_every"] == 1 else f"every {optim['decay_every']}"
    epochs = f"{optim['epochs']} epoch{'' if optim['epochs'] == 1 else 's'}"
    return f"{epochs}, rate {optim['lr']:g} × {optim['lr_decay']:.3g} {every}"


def _seeds(records: Sequence[RunRecord]) -> str:
    """How many seeds rows have: ``3``, or ``1 to 3``."""
    counts: dict[tuple[str, str], int] = {}
    for record in records:
        key = record.experiment, record.row
        counts[key] = counts.get(key, 0) + 1
    low, high = min(counts.values()), max(counts.values())
    return str(low) if low == high else f"{low} to {high}"


def _shown(recipe: Recipe) -> list[str]:
    return [metric for metric in recipe.metrics if metric != "std_mm"]


def _columns(experiment: Experiment) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_column(experiment, recipe) for recipe in experiment.recipes))


def _column(experiment: Experiment, recipe: Recipe) -> str:
    if len(experiment.tasks) > 1:
        return recipe.task
    if recipe.variant:
        return recipe.method
    sizes = {other.row.column for other in experiment.recipes if other.row.column is not None}
    return recipe.label.removeprefix(recipe.line).strip() if len(sizes) > 1 else ""


def _heading(experiment: Experiment, column: str, rank: int, ranks: int) -> str:
    recipe = next(recipe for recipe in experiment.recipes if _column(experiment, recipe) == column)
    unit = UNITS[_shown(recipe)[rank]]
    if not column:
        return unit
    return f"{column}: {unit}" if ranks > 1 or len(experiment.tasks) > 1 else column
