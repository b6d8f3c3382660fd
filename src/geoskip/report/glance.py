"""The first thing to read: what the affine skip changed, over every pair of methods that differ in nothing else."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from geoskip.report.metrics import Metric
from geoskip.report.summary import Experiment, Row


@dataclass(frozen=True)
class Glance:
    """Of one experiment: how many operators are better with the affine skip, and by how much on the whole.

    change: mean relative change of errors, in percent; of accuracies the mean difference, in points.
    """

    title: str
    metric: Metric
    better: int
    pairs: int
    change: float
    example: tuple[Row, Row]


def glances(experiments: Sequence[Experiment]) -> list[Glance]:
    return [found for experiment in experiments if (found := _glance(experiment)) is not None]


def _glance(experiment: Experiment) -> Glance | None:
    metric = next((m for m in experiment.subject.metrics if m.better), None)
    if metric is None or experiment.schedule == "smoke":
        return None
    plain = {
        row.group: row for row in experiment.rows if row.skip == "none" and not (row.larger or row.method.endswith("†"))
    }
    pairs = [
        (plain[row.group], row)
        for row in experiment.rows
        if row.skip == "affine" and row.group in plain and {metric.key} <= {*row.metrics} & {*plain[row.group].metrics}
    ]
    if not pairs:
        return None
    values = [(a.metrics[metric.key].mean, b.metrics[metric.key].mean) for a, b in pairs]
    lower = metric.better == "lower"
    changes = [100 * (b / a - 1) if lower and a else b - a for a, b in values]
    better = sum(change < 0 if lower else change > 0 for change in changes)
    example = pairs[changes.index(statistics.median_low(changes))]
    return Glance(
        f"{experiment.subject.title}, {experiment.data}", metric, better, len(pairs), statistics.fmean(changes), example
    )


def glance_cards(found: Sequence[Glance]) -> str:
    return "".join(_card(glance) for glance in found)


def _card(glance: Glance) -> str:
    unit = "%" if glance.metric.better == "lower" else "points"
    sign = "−" if glance.change < 0 else "+"
    plain, affine = glance.example
    key, shown = glance.metric.key, glance.metric.shown
    values = f"{shown(plain.metrics[key].mean)} → {shown(affine.metrics[key].mean)} {glance.metric.unit}"
    size = f", M = {affine.kernel_size}" if affine.kernel_size else ""
    return (
        f'<li><span class="what">{escape(glance.title)}</span>'
        f"<strong>{sign}{abs(glance.change):.0f}&#8239;<small>{unit}</small></strong>"
        f"<span>{escape(glance.metric.heading.lower())} with the affine skip, on average; better in "
        f"{glance.better} of {glance.pairs} pair{'s' if glance.pairs > 1 else ''}</span>"
        f'<span class="example">{escape(plain.method)}{escape(size)}: {escape(values)}</span></li>'
    )
