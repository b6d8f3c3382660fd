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

    change: mean of :func:`change` over the pairs; ``least`` and ``most``: the smallest and the largest of them.
    significant: how many of them hold as claims of the paper; None if no claim compares any.
    several: whether the rows of the pairs have several seeds. One settles nothing.
    uncounted: pairs left out because a row has a single seed. If all have one, they all count.
    example: the pair with the best affine row, and its name.
    """

    title: str
    metric: Metric
    better: int
    pairs: int
    significant: int | None
    several: bool
    uncounted: int
    change: float
    least: float
    most: float
    example: tuple[str, ResultRow, ResultRow]


def headlines(tables: Sequence[ResultTable], claims: Sequence[ClaimRow] = ()) -> dict[tuple[str, str, str], Headline]:
    """One headline per task, data set and schedule; a row that occurs in two tables counts once."""
    by_task: dict[tuple[str, str, str], list[ResultTable]] = {}
    for table in tables:
        if table.schedule != "smoke":
            by_task.setdefault((table.task, table.data, table.schedule), []).append(table)
    by_key = {key: _headline(members, claims) for key, members in by_task.items()}
    return {key: headline for key, headline in by_key.items() if headline is not None}


def _headline(tables: Sequence[ResultTable], claims: Sequence[ClaimRow]) -> Headline | None:
    first = tables[0]
    metric = next((m for m in first.description.metrics if m.better and not m.key.startswith(VALIDATION)), None)
    by_group = {} if metric is None else {pair[1].group: pair for table in tables for pair in _pairs(table, metric)}
    if metric is None or not by_group:
        return None
    several = [pair for pair in by_group.values() if all(row.metrics[metric.key].count > 1 for row in pair[1:])]
    pairs = several or list(by_group.values())
    values = [(a.metrics[metric.key].mean, b.metrics[metric.key].mean) for _, a, b in pairs]
    changes = [metric.change(*pair) for pair in values]
    better = sum(change < 0 if metric.better == "lower" else change > 0 for change in changes)
    pick = min if metric.better == "lower" else max
    example = pairs[values.index(pick(values, key=lambda pair: pair[1]))]
    title = ", ".join(filter(None, (first.description.title, first.data, first.training)))
    verdicts = {row.compared: row.verdict for row in claims if row.setting == (first.data, first.schedule)}
    judged = [verdicts.get(against(affine.label, plain.label), ONE_SEED) for _, plain, affine in pairs]
    judged = [verdict for verdict in judged if verdict != ONE_SEED]
    least, most = sorted((min(changes), max(changes)), key=abs)
    return Headline(
        title=title,
        metric=metric,
        better=better,
        pairs=len(pairs),
        significant=judged.count(HOLDS) if judged else None,
        several=bool(several),
        uncounted=len(by_group) - len(pairs),
        change=statistics.fmean(changes),
        least=least,
        most=most,
        example=example,
    )


def _pairs(table: ResultTable, metric: Metric) -> Iterator[tuple[str, ResultRow, ResultRow]]:
    """Each plain row with its name and its affine counterpart, without the ablations of the center weight."""
    measured = [row for row in table.rows if metric.key in row.metrics]
    plain = {row.group: row for row in measured if row.is_plain}
    for row in measured:
        if row.skip == "affine" and row.group in plain:
            before = plain[row.group]
            yield ", ".join(filter(None, (table.named(before), row.size))), before, row


def headlines_html(tables: Sequence[ResultTable], claims: Sequence[ClaimRow]) -> str:
    """The page's headlines: those with several seeds or, if there are none, all."""
    found = headlines(tables, claims).values()
    return "".join(map(headline_html, [headline for headline in found if headline.several] or found))


def headline_html(headline: Headline) -> str:
    name, plain, affine = headline.example
    key, metric = headline.metric.key, headline.metric
    values = f"{metric.shown(plain.metrics[key].mean)} → {metric.shown(affine.metrics[key].mean)} {metric.unit}"
    number, unit = metric.shown_change(headline.change).split()
    significant = "" if headline.significant is None else f", {headline.significant or 'none'} significantly"
    over, best_pair = "one pair" + (f", {'' if headline.significant else 'not '}significant" if significant else ""), ""
    if headline.pairs > 1:
        least, most = metric.shown_change(headline.least).split()[0], metric.shown_change(headline.most)
        better = "all" if headline.better == headline.pairs else f"{headline.better} of {headline.pairs}"
        over = f"average of {headline.pairs} pairs, from {least} to {most}; {better} better{significant}"
        best_pair = "Best of them: "
    over = over.replace(" %", "\u00a0%")
    # Lines break only between the name, its size and the values.
    name, values = name.replace(" = ", "\u00a0=\u00a0"), values.replace(" ", "\u00a0")
    left_out = f" ({headline.uncounted} more with a single seed)" if headline.uncounted else ""
    return (
        f'<li><span class="what">{escape(headline.title)}</span>'
        f"<strong>{number}&#8239;<small>{unit}</small></strong>"
        f"<span>{escape(metric.heading.lower())} with affine skips: {over}{left_out}</span>"
        f'<span class="example">{best_pair}{escape(name)}: {escape(values)}</span></li>'
    )


def _table_html(name: str, kind: str, caption: str, head: str, bodies: str) -> str:
    """A sortable table that scrolls sideways on narrow screens."""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">'
        f'<table class="sortable {kind}"><caption><span>{caption}</span></caption>'
        f"<thead>{head}</thead>{bodies}</table></div>"
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
    alone = "; rows without ± have a single seed" if counts[0] == 1 < counts[-1] else ""
    spread = "; ± is half the width of the 95 % confidence interval of the mean (Student’s t)" if counts[-1] > 1 else ""
    sizes = Counter(row.group for row in table.rows)
    compared = max(sizes.values()) > 1 and any(m.better for m in table.description.metrics)
    marks = "Bold: best in its group." if compared else ""
    return escape(f"{seeds} seed{'s' if counts[-1] > 1 else ''} per row{spread}{alone}. {marks}")


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
        below.append(f'<th scope="col" class="number">{"ours" if in_paper[metric.key] else "result"}</th>')
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


HOLDS, FAILS, ONE_SEED = "holds", "fails", "one seed"
SAME, OPPOSITE = "same direction, too small to tell", "opposite direction, too small to tell"
VERDICTS = (HOLDS, SAME, OPPOSITE, FAILS, ONE_SEED)
VERDICT_COLUMNS = (*VERDICTS[:-1], f"{ONE_SEED}, not counted")
# The style of a verdict; the others are open.
VERDICT_STYLES = {HOLDS: "yes", FAILS: "no"}
VERDICT_RULE = (
    "A comparison holds or fails if its difference is significant: p < 0.05 in Welch's t-test over the seeds, "
    "corrected by Holm's method for the number of comparisons. Otherwise it is too small to tell with these seeds. "
    "A single seed settles nothing."
)
COUNTED_ONCE = "A comparison that serves two claims counts once in the last line. Comparisons of one seed do not count."


@dataclass(frozen=True)
class ClaimRow:
    """A claim and one comparison of runs that tests it.

    claim: the claim as a sentence; several comparisons may test it.
    compared: the two methods: ``"A against B"``.
    setting: the data set and the schedule of the runs.
    data: the same in words: the data set, and the length of training if it is not the paper's.
    seeds: the number of seeds of the method that has fewer.
    difference: the mean of A minus B, with half of its 95 % interval and its unit.
    paper: the same difference in the paper.
    p: two-sided p-value of the difference; None if one method has a single seed.
    verdict: one of ``VERDICTS``.
    """

    claim: str
    compared: str
    setting: tuple[str, str]
    data: str
    seeds: int
    difference: str
    paper: str
    p: float | None
    verdict: str


def against(first: str, second: str) -> str:
    """Two methods, as :class:`ClaimRow` names them."""
    return f"{first} against {second}"


def claims_table(claims: Sequence[ClaimRow]) -> str:
    """One line per claim: how many of its comparisons have which verdict. A folded table below lists all of them."""
    by_claim: dict[str, list[ClaimRow]] = {}
    for row in claims:
        by_claim.setdefault(row.claim, []).append(row)
    comparisons = _claims_html(
        "All comparisons",
        "Difference: first method minus second; ± is half the width of its 95 % interval. "
        "p: Welch's t-test, corrected by Holm's method. “The best of all” is compared with its closest rival here.",
        {
            "Claim": "",
            "Compared": "words",
            "Data": "words",
            "Seeds": "number",
            "Difference": "number",
            "In the paper": "number",
            "<i>p</i>": "number",
            "Verdict": "words",
        },
        map(_claim_line, claims),
        "claims comparisons",
    )
    overview = _claims_html(
        "The paper’s claims",
        f"Number of comparisons with each verdict. {COUNTED_ONCE}",
        # On phones there is no room for the number of comparisons, and for those that do not count.
        {"Claim": "", "Comparisons": "number lesser"}
        | {heading.capitalize(): "number lesser" if ONE_SEED in heading else "number" for heading in VERDICT_COLUMNS},
        (_claim_overview(claim, rows) for claim, rows in (by_claim | {"All": _distinct(claims)}).items()),
    )
    note = f'<p class="note">{escape(VERDICT_RULE)}</p>'
    return f"{note}{overview}<details><summary>All {len(claims)} comparisons</summary>{comparisons}</details>"


def first_claim_sentence(claims: Sequence[ClaimRow]) -> str:
    """In how many comparisons with several seeds the first claim of the paper has its direction; empty if in none."""
    verdicts = Counter(row.verdict for row in claims if row.claim == claims[0].claim)
    agreeing, judged = verdicts[HOLDS] + verdicts[SAME], verdicts.total() - verdicts[ONE_SEED]
    if not agreeing:
        return ""
    return (
        f"<b>{escape(claims[0].claim)} in {agreeing} of {judged} comparisons</b>, significantly in {verdicts[HOLDS]}."
    )


def claims_sentence(claims: Sequence[ClaimRow]) -> str:
    """How many distinct comparisons with several seeds hold, fail or are too close to tell, and which of them fail.

    Empty if there are none.
    """
    distinct = _distinct(claims)
    counts = Counter(row.verdict for row in distinct)
    judged = counts.total() - counts[ONE_SEED]
    if not judged:
        return ""
    said = [f"<b>{count or 'none'} {verb[:-1] if count > 1 else verb}</b>"
            for count, verb in ((counts[HOLDS], HOLDS), (counts[FAILS], FAILS))]  # fmt: skip
    open_ = counts[SAME] + counts[OPPOSITE]
    failed = ", ".join(f"“{escape(row.claim)}” ({escape(row.data)})" for row in distinct if row.verdict == FAILS)
    return (
        f"Of {judged} comparisons of the paper that have several seeds here, {said[0]} significantly, "
        f"{open_ or 'none'} {'is' if open_ == 1 else 'are'} too close to tell and {said[1]}{failed and f': {failed}'}."
    )


def _distinct(claims: Sequence[ClaimRow]) -> list[ClaimRow]:
    """Each comparison once, also if it serves two claims."""
    return list({(row.compared, row.data, row.difference): row for row in claims}.values())


def _claim_overview(claim: str, rows: Sequence[ClaimRow]) -> str:
    counts = Counter(row.verdict for row in rows)
    cells = "".join(
        _number(
            _verdict_html(verdict, str(counts[verdict])) if counts[verdict] else "–",
            counts[verdict],
            kind="lesser" if verdict == ONE_SEED else "",
        )
        for verdict in VERDICTS
    )
    judged = f'<td class="number lesser">{len(rows) - counts[ONE_SEED] or "–"}</td>'
    return f'<tr><th scope="row">{escape(claim)}</th>{judged}{cells}</tr>'


def _verdict_html(verdict: str, text: str) -> str:
    return f'<span class="verdict {VERDICT_STYLES.get(verdict, "open")}">{escape(text)}</span>'


def _claim_line(row: ClaimRow) -> str:
    chance = "–" if row.p is None else "&lt; 0.001" if row.p < 0.001 else f"{row.p:.3f}"
    return (
        f'<tr><th scope="row">{escape(row.claim)}</th><td>{escape(row.compared)}</td><td>{escape(row.data)}</td>'
        f'<td class="number">{row.seeds}</td><td class="number">{escape(row.difference)}</td>'
        f'<td class="number">{escape(row.paper)}</td>'
        f"{_number(chance, 2.0 if row.p is None else row.p)}<td>{_verdict_html(row.verdict, row.verdict)}</td></tr>"
    )


def _claims_html(
    name: str, caption: str, columns: Mapping[str, str], lines: Iterable[str], kind: str = "claims"
) -> str:
    """``columns``: the CSS class of each heading."""
    heads = "".join(f'<th scope="col" class="{kind}">{heading}</th>' for heading, kind in columns.items())
    return _table_html(name, kind, caption, f"<tr>{heads}</tr>", f"<tbody>{''.join(lines)}</tbody>")
