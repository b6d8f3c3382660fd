"""HTML of the results: headline figures, result tables next to the paper's figures, the paper's claims."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from geoskip.records.statistics import Summary
from geoskip.report.runs import VALIDATION, Metric
from geoskip.report.summary import ResultRow, ResultTable


@dataclass(frozen=True)
class Headline:
    """How many methods of a task are better with an affine skip, and by how much on average.

    change: mean relative change of an error, in percent; mean difference of an accuracy, in points.
    example: the pair with the best affine row.
    """

    title: str
    metric: Metric
    better: int
    pairs: int
    change: float
    example: tuple[ResultRow, ResultRow]


def headlines(tables: Sequence[ResultTable]) -> list[Headline]:
    """One headline per task, data set and schedule; a row that occurs in two tables counts once."""
    by_task: dict[tuple[str, str, str], list[ResultTable]] = {}
    for table in tables:
        if table.schedule != "smoke":
            by_task.setdefault((table.task, table.data, table.schedule), []).append(table)
    return [headline for members in by_task.values() if (headline := _headline(members)) is not None]


def _headline(tables: Sequence[ResultTable]) -> Headline | None:
    first = tables[0]
    metric = next((m for m in first.description.metrics if m.better and not m.key.startswith(VALIDATION)), None)
    by_group = {} if metric is None else {pair[0].group: pair for table in tables for pair in _pairs(table, metric)}
    if metric is None or not by_group:
        return None
    pairs = list(by_group.values())
    values = [(a.metrics[metric.key].mean, b.metrics[metric.key].mean) for a, b in pairs]
    lower = metric.better == "lower"
    changes = [100 * (b / a - 1) if lower and a else b - a for a, b in values]
    better = sum(change < 0 if lower else change > 0 for change in changes)
    pick = min if lower else max
    example = pairs[values.index(pick(values, key=lambda pair: pair[1]))]
    title = f"{first.description.title}, {first.data}"
    return Headline(title, metric, better, len(pairs), statistics.fmean(changes), example)


def _pairs(table: ResultTable, metric: Metric) -> Iterator[tuple[ResultRow, ResultRow]]:
    """Each plain row with its affine counterpart, without the ablations of the center weight."""
    measured = [row for row in table.rows if metric.key in row.metrics]
    plain = {row.group: row for row in measured if row.skip == "none" and not row.larger and not _ablated(row)}
    for row in measured:
        if row.skip == "affine" and row.group in plain:
            yield plain[row.group], row


def _ablated(row: ResultRow) -> bool:
    """Whether the row has no separate weight for the center vertex. FeaStNet† (no self-loops) is a group of its own."""
    return row.method.endswith("†") and not row.group.without_self_loops


def headline_html(headline: Headline) -> str:
    unit = "%" if headline.metric.better == "lower" else "points"
    sign = "−" if headline.change < 0 else "+"
    plain, affine = headline.example
    key, shown = headline.metric.key, headline.metric.shown
    values = f"{shown(plain.metrics[key].mean)} → {shown(affine.metrics[key].mean)} {headline.metric.unit}"
    size = f", {affine.size}" if affine.size else ""
    return (
        f'<li><span class="what">{escape(headline.title)}</span>'
        f"<strong>{sign}{abs(headline.change):.0f}&#8239;<small>{unit}</small></strong>"
        f"<span>{escape(headline.metric.heading.lower())} with affine skips, on average; better in "
        f"{headline.better} of {headline.pairs} pair{'s' if headline.pairs > 1 else ''}</span>"
        f'<span class="example">{escape(plain.method)}{escape(size)}: {escape(values)}</span></li>'
    )


def _table_html(name: str, kind: str, caption: str, head: str, bodies: str) -> str:
    """A sortable table that scrolls sideways on narrow screens."""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">'
        f'<table class="sortable {kind}"><caption>{caption}</caption><thead>{head}</thead>{bodies}</table></div>'
    )


def result_table_html(table: ResultTable) -> str:
    """One line per method; rules separate the groups, as in the paper, until the reader sorts."""
    metrics = table.description.metrics
    sized = any(row.matrices is not None for row in table.rows)
    in_paper = {m.key: any(m.key in row.paper for row in table.rows) for m in metrics}
    groups = [list(members) for _, members in groupby(table.rows, key=lambda row: row.group)]
    bodies = "".join(_result_group(members, table, in_paper, sized) for members in groups)
    head = _result_head(metrics, in_paper, sized)
    return _table_html(table.title, "results", _result_caption(table), head, bodies)


def best(rows: list[ResultRow], metric: Metric) -> tuple[float | None, float | None]:
    """The best mean of a group of at least two rows: ours and the paper's."""
    if not metric.better or len(rows) < 2:
        return None, None
    pick = min if metric.better == "lower" else max
    ours = [round(row.metrics[metric.key].mean, metric.digits) for row in rows if metric.key in row.metrics]
    paper = [row.paper[metric.key] for row in rows if metric.key in row.paper]
    return (pick(ours) if len(ours) > 1 else None), (pick(paper) if len(paper) > 1 else None)


def _result_caption(table: ResultTable) -> str:
    counts = sorted({len(row.runs) for row in table.rows})
    seeds = " to ".join(str(count) for count in dict.fromkeys([counts[0], counts[-1]]))
    spread = "; ± is half the width of the 95 % confidence interval of the mean (Student’s t)" if counts[-1] > 1 else ""
    marks = "Bold: best in its group." if any(m.better for m in table.description.metrics) else ""
    return escape(f"{seeds} seed{'s' if counts[-1] > 1 else ''} per row{spread}. {marks}")


def _result_head(metrics: tuple[Metric, ...], in_paper: dict[str, bool], sized: bool) -> str:
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
        top.append(f'<th scope="colgroup" colspan="{1 + in_paper[metric.key]}" class="metric">{name}{unit}</th>')
        below.append('<th scope="col" class="number">ours</th>')
        if in_paper[metric.key]:
            below.append('<th scope="col" class="number">paper</th>')
    return f'<tr class="upper">{"".join(top)}</tr><tr>{"".join(below)}</tr>'


def _result_group(rows: list[ResultRow], table: ResultTable, in_paper: dict[str, bool], sized: bool) -> str:
    tops = {metric.key: best(rows, metric) for metric in table.description.metrics}
    return f"<tbody>{''.join(_result_line(row, table, in_paper, sized, tops) for row in rows)}</tbody>"


def _result_line(
    row: ResultRow,
    table: ResultTable,
    in_paper: dict[str, bool],
    sized: bool,
    tops: dict[str, tuple[float | None, float | None]],
) -> str:
    variant = f' <span class="unit">{escape(row.group.variant)}</span>' if row.group.variant else ""
    name = escape(table.named(row))
    cells = [f'<th scope="row"><i class="swatch {row.look}" aria-hidden="true"></i>{name}{variant}</th>']
    if sized:
        splines = f' <span class="unit">m = {row.kernel_size}</span>' if table.counts_per_dimension(row) else ""
        cells.append(_number("" if row.matrices is None else str(row.matrices), row.matrices, more=splines))
    cells.append(_number(f"{row.parameters:,}", row.parameters, kind="lesser"))
    for metric in table.description.metrics:
        ours, paper = row.metrics.get(metric.key), row.paper.get(metric.key)
        top_ours, top_paper = tops[metric.key]
        cells.append(_measured(ours, metric, top_ours))
        if in_paper[metric.key]:
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


# The style of a verdict; any other text is shown as open.
VERDICT_STYLES = {"holds": "yes", "fails": "no"}
VERDICT_RULE = (
    "A comparison holds or fails if its difference is significant: p < 0.05 in a paired t-test over the seeds, "
    "corrected by Holm's method for the number of comparisons. Otherwise it is too small to tell with these seeds. "
    "A single seed settles nothing."
)


@dataclass(frozen=True)
class ClaimRow:
    """A claim and one comparison of runs that tests it.

    claim: the claim as a sentence; several comparisons may test it.
    compared: the two methods: ``"A against B"``.
    data: the data set, and the schedule if it is not the paper's.
    seeds: how many pairs of runs were compared.
    difference: the mean of A minus B, with its unit.
    p: two-sided p-value of the difference; None for a single pair of runs.
    verdict: ``"holds"``, ``"fails"``, or a text that says why it is open.
    """

    claim: str
    compared: str
    data: str
    seeds: int
    difference: str
    p: float | None
    verdict: str


def claims_table(claims: Sequence[ClaimRow]) -> str:
    """One line per claim. If a claim has several comparisons, a folded table below lists all of them."""
    by_claim: dict[tuple[str, str], list[ClaimRow]] = {}
    for row in claims:
        by_claim.setdefault((row.claim, row.data), []).append(row)
    comparisons = _claims_html(
        "All comparisons",
        "Difference: first method minus second, on the same seeds. p: paired t-test, corrected by Holm's method.",
        {
            "Claim": "",
            "Compared": "",
            "Data": "",
            "Seeds": "number",
            "Difference": "number",
            "<i>p</i>": "number",
            "Verdict": "",
        },
        map(_claim_line, claims),
    )
    note = f'<p class="note">{escape(VERDICT_RULE)}</p>'
    if len(by_claim) == len(claims):
        return note + comparisons
    overview = _claims_html(
        "The paper’s claims",
        "Number of comparisons for which each claim holds, fails, or stays open.",
        # On phones there is no room for the number of comparisons.
        {"Claim": "", "Data": "", "Comparisons": "number lesser"} | dict.fromkeys(("Hold", "Fail", "Open"), "number"),
        (_claim_overview(*key, rows) for key, rows in by_claim.items()),
    )
    return f"{note}{overview}<details><summary>All {len(claims)} comparisons</summary>{comparisons}</details>"


def _claim_overview(claim: str, data: str, rows: Sequence[ClaimRow]) -> str:
    counts = Counter(VERDICT_STYLES.get(row.verdict, "open") for row in rows)
    cells = "".join(
        _number(f'<span class="verdict {style}">{counts[style]}</span>' if counts[style] else "–", counts[style])
        for style in ("yes", "no", "open")
    )
    named = f'<th scope="row">{escape(claim)}</th><td>{escape(data)}</td>'
    return f'<tr>{named}<td class="number lesser">{len(rows)}</td>{cells}</tr>'


def _claim_line(row: ClaimRow) -> str:
    chance = "–" if row.p is None else "&lt; 0.001" if row.p < 0.001 else f"{row.p:.3f}"
    verdict = f'<span class="verdict {VERDICT_STYLES.get(row.verdict, "open")}">{escape(row.verdict)}</span>'
    return (
        f'<tr><th scope="row">{escape(row.claim)}</th><td>{escape(row.compared)}</td><td>{escape(row.data)}</td>'
        f'<td class="number">{row.seeds}</td><td class="number">{escape(row.difference)}</td>'
        f"{_number(chance, 2.0 if row.p is None else row.p)}<td>{verdict}</td></tr>"
    )


def _claims_html(name: str, caption: str, columns: Mapping[str, str], lines: Iterable[str]) -> str:
    """``columns``: the CSS class of each heading."""
    heads = "".join(f'<th scope="col" class="{kind}">{heading}</th>' for heading, kind in columns.items())
    return _table_html(name, "claims", caption, f"<tr>{heads}</tr>", f"<tbody>{''.join(lines)}</tbody>")
