"""HTML of the results: headline figures, result tables next to the paper's figures, the paper's claims."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from geoskip.records.statistics import Summary
from geoskip.report.summary import Metric, ResultRow, ResultTable


@dataclass(frozen=True)
class Glance:
    """Of one table: how many operators are better with the affine skip, and by how much on the whole.

    change: mean relative change of errors, in percent; of accuracies the mean difference, in points.
    example: the pair whose affine row is the best of all.
    """

    title: str
    metric: Metric
    better: int
    pairs: int
    change: float
    example: tuple[ResultRow, ResultRow]


def glances(tables: Sequence[ResultTable]) -> list[Glance]:
    """One for each task, data set and schedule; rows that stand in two tables count once."""
    parted: dict[tuple[str, str, str], list[ResultTable]] = {}
    for table in tables:
        if table.schedule != "smoke":
            parted.setdefault((table.task, table.data, table.schedule), []).append(table)
    return [found for members in parted.values() if (found := _glance(members)) is not None]


def _glance(tables: Sequence[ResultTable]) -> Glance | None:
    first = tables[0]
    metric = next((m for m in first.subject.metrics if m.better), None)
    found = {} if metric is None else {pair[0].group: pair for e in tables for pair in _pairs(e, metric)}
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


def _pairs(table: ResultTable, metric: Metric) -> Iterator[tuple[ResultRow, ResultRow]]:
    """Plain rows with their affine ones; not the ablations of a center weight, which have none."""
    measured = [row for row in table.rows if metric.key in row.metrics]
    plain = {row.group: row for row in measured if row.skip == "none" and not (row.larger or _ablated(row))}
    for row in measured:
        if row.skip == "affine" and row.group in plain:
            yield plain[row.group], row


def _ablated(row: ResultRow) -> bool:
    """Without a weight of the center's own; FeaStNet†, which has a group of its own, is without self-loops."""
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


def result_table_html(table: ResultTable) -> str:
    """One line per method; groups stand between rules, as in the paper, until the reader sorts."""
    metrics = table.subject.metrics
    sized = any(row.size is not None for row in table.rows)
    beside = {m.key: any(m.key in row.paper for row in table.rows) for m in metrics}
    groups = [list(members) for _, members in groupby(table.rows, key=lambda row: row.group)]
    bodies = "".join(_result_group(members, table, beside, sized) for members in groups)
    name = escape(table.title)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}">'
        f'<table class="sortable results"><caption>{_result_caption(table)}</caption>'
        f"<thead>{_result_head(metrics, beside, sized)}</thead>{bodies}</table></div>"
    )


def best(rows: list[ResultRow], metric: Metric) -> tuple[float | None, float | None]:
    """The best mean of a group that is a comparison at all, ours and the paper's."""
    if not metric.better or len(rows) < 2:
        return None, None
    pick = min if metric.better == "lower" else max
    ours = [round(row.metrics[metric.key].mean, metric.digits) for row in rows if metric.key in row.metrics]
    paper = [row.paper[metric.key] for row in rows if metric.key in row.paper]
    return (pick(ours) if len(ours) > 1 else None), (pick(paper) if len(paper) > 1 else None)


def _result_caption(table: ResultTable) -> str:
    counts = sorted({len(row.runs) for row in table.rows})
    seeds = " to ".join(str(count) for count in dict.fromkeys([counts[0], counts[-1]]))
    spread = "; ± is half of the 95 % interval of the mean (Student’s t)" if counts[-1] > 1 else ""
    marks = "Bold: best of each group." if any(m.better for m in table.subject.metrics) else ""
    return escape(f"{seeds} seed{'s' if counts[-1] > 1 else ''} a row{spread}. {marks}")


def _result_head(metrics: tuple[Metric, ...], beside: dict[str, bool], sized: bool) -> str:
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


def _result_group(rows: list[ResultRow], table: ResultTable, beside: dict[str, bool], sized: bool) -> str:
    tops = {metric.key: best(rows, metric) for metric in table.subject.metrics}
    return f"<tbody>{''.join(_result_line(row, table, beside, sized, tops) for row in rows)}</tbody>"


def _result_line(
    row: ResultRow,
    table: ResultTable,
    beside: dict[str, bool],
    sized: bool,
    tops: dict[str, tuple[float | None, float | None]],
) -> str:
    aside = f' <span class="unit">{escape(row.variant)}</span>' if row.variant else ""
    name = escape(table.named(row))
    cells = [f'<th scope="row"><i class="swatch {row.look}" aria-hidden="true"></i>{name}{aside}</th>']
    if sized:
        splines = f' <span class="unit">{row.size}</span>' if row.size is not None and row.size.letter == "m" else ""
        cells.append(_number("" if row.matrices is None else str(row.matrices), row.matrices, more=splines))
    cells.append(_number(f"{row.parameters:,}", row.parameters, kind="lesser"))
    for metric in table.subject.metrics:
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


# How a verdict looks; any other words look open.
LOOKS = {"holds": "yes", "fails": "no"}
JUDGED = (
    '<p class="note">Here a comparison holds, or fails, where its difference over seeds is significant (p &lt; 0.05), '
    "and is open otherwise; README and docs/results.md count as held whatever the mean difference speaks for, "
    "significant or not.</p>"
)


@dataclass(frozen=True)
class ClaimRow:
    """A claim beside the runs that bear on it.

    claim: in words; a claim may be about several comparisons.
    compared: the methods, in words.
    data: what they were tried on.
    seeds: how many pairs of runs were compared.
    difference: the mean difference, with its unit; above 0 speaks for the claim.
    p: how likely a difference at least as large is by chance alone; None where that cannot be said.
    verdict: ``"holds"``, ``"fails"``, or other words where neither can be said.
    """

    claim: str
    compared: str
    data: str
    seeds: int
    difference: str
    p: float | None
    verdict: str


def claims_table(claims: Sequence[ClaimRow]) -> str:
    """One line a claim; where claims are about several comparisons, all of these below, folded away."""
    by_claim: dict[tuple[str, str], list[ClaimRow]] = {}
    for row in claims:
        by_claim.setdefault((row.claim, row.data), []).append(row)
    if len(by_claim) == len(claims):
        return JUDGED + _comparisons(claims)
    heads = _claim_heads(["Claim", "Data", "Comparisons", "Hold", "Fail", "Open"], numbers=range(2, 6), lesser=(2,))
    lines = "".join(_claim_overview(*key, rows) for key, rows in by_claim.items())
    return (
        JUDGED
        + _claims_html("The paper’s claims", "How many comparisons bear a claim out.", heads, lines)
        + f"<details><summary>All {len(claims)} comparisons</summary>{_comparisons(claims)}</details>"
    )


def _claim_overview(claim: str, data: str, rows: Sequence[ClaimRow]) -> str:
    counts = {look: sum(LOOKS.get(row.verdict, "open") == look for row in rows) for look in ("yes", "no", "open")}
    cells = "".join(
        f'<td class="number" data-value="{count}">'
        + (f'<span class="verdict {look}">{count}</span>' if count else "–")
        + "</td>"
        for look, count in counts.items()
    )
    named = f'<th scope="row">{escape(claim)}</th><td>{escape(data)}</td>'
    return f'<tr>{named}<td class="number lesser">{len(rows)}</td>{cells}</tr>'


def _comparisons(claims: Sequence[ClaimRow]) -> str:
    names = ["Claim", "Compared", "Data", "Seeds", "Difference", "<i>p</i>", "Verdict"]
    heads = _claim_heads(names, numbers=range(3, 6))
    caption = "Differences on equal seeds; above 0 speaks for the claim. p: paired t test."
    return _claims_html("Every comparison", caption, heads, "".join(map(_claim_line, claims)))


def _claim_line(row: ClaimRow) -> str:
    chance = "–" if row.p is None else "&lt; 0.001" if row.p < 0.001 else f"{row.p:.3f}"
    verdict = f'<span class="verdict {LOOKS.get(row.verdict, "open")}">{escape(row.verdict)}</span>'
    return (
        f'<tr><th scope="row">{escape(row.claim)}</th><td>{escape(row.compared)}</td><td>{escape(row.data)}</td>'
        f'<td class="number">{row.seeds}</td><td class="number">{escape(row.difference)}</td>'
        f'<td class="number" data-value="{2.0 if row.p is None else row.p}">{chance}</td><td>{verdict}</td></tr>'
    )


def _claim_heads(names: Sequence[str], numbers: range, lesser: Sequence[int] = ()) -> str:
    """Column heads; those of ``lesser`` columns are left out on a phone."""
    kinds = ["number" * (place in numbers) + " lesser" * (place in lesser) for place in range(len(names))]
    return "".join(f'<th scope="col" class="{kind}">{name}</th>' for name, kind in zip(names, kinds, strict=True))


def _claims_html(name: str, caption: str, heads: str, lines: str) -> str:
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table class="sortable claims">'
        f"<caption>{caption}</caption><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>"
    )
