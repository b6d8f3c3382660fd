"""Tables of experiments beside the paper's figures, as HTML; best of each group in bold."""

from __future__ import annotations

from html import escape
from itertools import groupby

from geoskip.records.statistics import Summary
from geoskip.report.metrics import Metric
from geoskip.report.summary import Experiment, Row


def experiment_table(experiment: Experiment) -> str:
    """One line per method; groups stand between rules, as in the paper, until the reader sorts."""
    metrics = experiment.subject.metrics
    sized = any(row.size is not None for row in experiment.rows)
    beside = {m.key: any(m.key in row.paper for row in experiment.rows) for m in metrics}
    groups = [list(members) for _, members in groupby(experiment.rows, key=lambda row: row.group)]
    bodies = "".join(_group(members, experiment, beside, sized) for members in groups)
    name = escape(experiment.title)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}">'
        f'<table class="sortable results"><caption>{_caption(experiment)}</caption>'
        f"<thead>{_head(metrics, beside, sized)}</thead>{bodies}</table></div>"
    )


def best(rows: list[Row], metric: Metric) -> tuple[float | None, float | None]:
    """The best mean of a group that is a comparison at all, ours and the paper's."""
    if not metric.better or len(rows) < 2:
        return None, None
    pick = min if metric.better == "lower" else max
    ours = [round(row.metrics[metric.key].mean, metric.digits) for row in rows if metric.key in row.metrics]
    paper = [row.paper[metric.key] for row in rows if metric.key in row.paper]
    return (pick(ours) if len(ours) > 1 else None), (pick(paper) if len(paper) > 1 else None)


def _caption(experiment: Experiment) -> str:
    counts = sorted({len(row.runs) for row in experiment.rows})
    seeds = " to ".join(str(count) for count in dict.fromkeys([counts[0], counts[-1]]))
    spread = "; ± is half of the 95 % interval of the mean (Student’s t)" if counts[-1] > 1 else ""
    marks = "Bold: best of each group." if any(m.better for m in experiment.subject.metrics) else ""
    return escape(f"{seeds} seed{'s' if counts[-1] > 1 else ''} a row{spread}. {marks}")


def _head(metrics: tuple[Metric, ...], beside: dict[str, bool], sized: bool) -> str:
    top = ['<th scope="col" rowspan="2">Method</th>']
    if sized:
        top.append('<th scope="col" rowspan="2" class="number"><abbr title="number of weight matrices">M</abbr></th>')
    top.append('<th scope="col" rowspan="2" class="number lesser">Parameters</th>')
    below = []
    for metric in metrics:
        arrow = {"lower": " ↓", "higher": " ↑"}.get(metric.better, "")
        hint = f"{metric.better} is better" if metric.better else ""
        name = f'{escape(metric.heading)}<span aria-label="{hint}">{arrow}</span>'
        unit = f' <span class="unit">{escape(metric.unit)}</span>' if metric.unit else ""
        top.append(f'<th scope="colgroup" colspan="{1 + beside[metric.key]}" class="metric">{name}{unit}</th>')
        below.append('<th scope="col" class="number">here</th>')
        if beside[metric.key]:
            below.append('<th scope="col" class="number">paper</th>')
    return f'<tr class="upper">{"".join(top)}</tr><tr>{"".join(below)}</tr>'


def _group(rows: list[Row], experiment: Experiment, beside: dict[str, bool], sized: bool) -> str:
    tops = {metric.key: best(rows, metric) for metric in experiment.subject.metrics}
    return f"<tbody>{''.join(_line(row, experiment, beside, sized, tops) for row in rows)}</tbody>"


def _line(
    row: Row,
    experiment: Experiment,
    beside: dict[str, bool],
    sized: bool,
    tops: dict[str, tuple[float | None, float | None]],
) -> str:
    aside = f' <span class="unit">{escape(row.variant)}</span>' if row.variant else ""
    name = escape(experiment.named(row))
    cells = [f'<th scope="row"><i class="swatch {row.look}" aria-hidden="true"></i>{name}{aside}</th>']
    if sized:
        splines = f' <span class="unit">{row.size}</span>' if row.size is not None and row.size.letter == "m" else ""
        cells.append(_number("" if row.matrices is None else str(row.matrices), row.matrices, more=splines))
    cells.append(_number(f"{row.parameters:,}", row.parameters, kind="lesser"))
    for metric in experiment.subject.metrics:
        ours, paper = row.metrics.get(metric.key), row.paper.get(metric.key)
        top_ours, top_paper = tops[metric.key]
        cells.append(_measured(ours, metric, top_ours))
        if beside[metric.key]:
            bold = paper is not None and paper == top_paper
            cells.append(_number("–" if paper is None else metric.shown(paper), paper, bold, "paper"))
    return f"<tr>{''.join(cells)}</tr>"


def _measured(value: Summary | None, metric: Metric, top: float | None) -> str:
    if value is None:
        return _number("–", None)
    spread = "" if value.half is None else f' <span class="spread">±&#8239;{metric.shown(value.half)}</span>'
    return _number(metric.shown(value.mean), value.mean, round(value.mean, metric.digits) == top, more=spread)


def _number(text: str, value: float | int | None, bold: bool = False, kind: str = "", more: str = "") -> str:
    shown = f"<b>{text}</b>" if bold else text
    data = "" if value is None else f' data-value="{value!r}"'
    return f'<td class="{f"number {kind}".strip()}"{data}>{shown}{more}</td>'
