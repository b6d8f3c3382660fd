"""The first thing to read: what the affine skip changed, over every pair of methods that differ in nothing else."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from geoskip.report.metrics import Metric
from geoskip.report.summary import Experiment, Row


@dataclass(frozen=True)
class Glance:
    """Of one experiment: how many operators are better with the affine skip, and by how much on the whole.

    change: mean relative change of errors, in percent; of accuracies the mean difference, in points.
    example: the pair whose affine row is the best of all.
    """

    title: str
    metric: Metric
    better: int
    pairs: int
    change: float
    example: tuple[Row, Row]


def glances(experiments: Sequence[Experiment]) -> list[Glance]:
    """One for each task, data set and schedule; rows that stand in two tables count once."""
    parted: dict[tuple[str, str, str], list[Experiment]] = {}
    for experiment in experiments:
        if experiment.schedule != "smoke":
            parted.setdefault((experiment.task, experiment.data, experiment.schedule), []).append(experiment)
    return [found for members in parted.values() if (found := _glance(members)) is not None]


def _glance(experiments: Sequence[Experiment]) -> Glance | None:
    first = experiments[0]
    metric = next((m for m in first.subject.metrics if m.better), None)
    found = {} if metric is None else {pair[0].group: pair for e in experiments for pair in _pairs(e, metric)}
    if metric is None or not found:
        return None
    pairs = list(found.values())
    values = [(a.metrics[metric.key].mean, b.metrics[metric.key].mean) for a, b in pairs]
    lower = metric.better == "lower"
    changes = [100 * (b / a - 1) if lower and a else b - a for a, b in values]
    better = sum(change < 0 if lower else change > 0 for change in changes)
    pick = min if lower else max
    example = pairs[values.index(pick(values, key=lambda pair: pair[1]))]
    title = f"{first.subject.title}, {first.data}"
    return Glance(title, metric, better, len(pairs), statistics.fmean(changes), example)


def _pairs(experiment: Experiment, metric: Metric) -> Iterator[tuple[Row, Row]]:
    """Plain rows with their affine ones; not the ablations of a centre weight, which have none."""
    measured = [row for row in experiment.rows if metric.key in row.metrics]
    plain = {row.group: row for row in measured if row.skip == "none" and not (row.larger or _ablated(row))}
    for row in measured:
        if row.skip == "affine" and row.group in plain:
            yield plain[row.group], row


def _ablated(row: Row) -> bool:
    """Without a weight of the centre's own; FeaStNet†, which has a group of its own, is without self-loops."""
    return row.method.endswith("†") and not row.group[3]


def glance_cards(found: Sequence[Glance]) -> str:
    return "".join(_card(glance) for glance in found)


def _card(glance: Glance) -> str:
    unit = "%" if glance.metric.better == "lower" else "points"
    sign = "−" if glance.change < 0 else "+"
    plain, affine = glance.example
    key, shown = glance.metric.key, glance.metric.shown
    values = f"{shown(plain.metrics[key].mean)} → {shown(affine.metrics[key].mean)} {glance.metric.unit}"
    size = f", {affine.size}" if affine.size else ""
    return (
        f'<li><span class="what">{escape(glance.title)}</span>'
        f"<strong>{sign}{abs(glance.change):.0f}&#8239;<small>{unit}</small></strong>"
        f"<span>{escape(glance.metric.heading.lower())} with the affine skip, on average; better in "
        f"{glance.better} of {glance.pairs} pair{'s' if glance.pairs > 1 else ''}</span>"
        f'<span class="example">{escape(plain.method)}{escape(size)}: {escape(values)}</span></li>'
    )
