"""The paper's claims as comparisons of its rows, and whether the records of runs support them.

One rule decides everywhere, in README, docs and report. A comparison *holds* if its difference has the sign that the
paper claims and is significant: p < 0.05 in Welch's t-test over the seeds of both rows, corrected by Holm's method for
the number of distinct comparisons that are judged together. It *fails* if the difference is significant
with the opposite sign. Otherwise it is too small to tell. Rows with a single seed never count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from geoskip.data.catalog import BUILT_IN
from geoskip.paper.experiments import (
    CENTER_ABLATION,
    CORRESPONDENCE,
    EXPERIMENTS,
    SPLINE_SUPPLEMENT,
    TABLE1,
    TABLE2,
    TABLE3,
    find_row,
    is_comparable,
)
from geoskip.paper.rows import TINY, PaperRow
from geoskip.paper.running import Runs
from geoskip.records import RunRecord
from geoskip.records.statistics import Comparison, compare
from geoskip.report.html_tables import FAILS, HOLDS, ONE_SEED, OPPOSITE, SAME, ClaimRow, against
from geoskip.report.runs import Metric, ReportRun, describe_epochs
from geoskip.report.summary import PublishedRow, PublishedTable

SIGNIFICANT = 0.05
# Runs by data set and schedule.
Groups = Mapping[tuple[str, str], Runs]


@dataclass(frozen=True)
class Claim:
    """``better`` beats every one of its ``rivals``, as it does in the paper's tables.

    subject: the statement of the paper, in a few words; several comparisons may share one subject.
    """

    subject: str
    better: PaperRow
    rivals: tuple[PaperRow, ...]
    metric: str

    @property
    def is_borne_out(self) -> bool:
        """Whether the paper prints all figures, and they agree with the claim."""
        printed = all(self.metric in row.paper for row in (self.better, *self.rivals))
        return printed and all(self.paper_gain(rival) > 0 for rival in self.rivals)

    def paper_gain(self, rival: PaperRow) -> float:
        """The gain over a rival in the paper."""
        return self.gain(self.better.paper[self.metric], rival.paper[self.metric])

    @property
    def unit(self) -> Metric:
        return self.better.metric(self.metric)

    def gain(self, ours: float, theirs: float) -> float:
        """Positive if ``ours`` is better."""
        return ours - theirs if self.unit.better == "higher" else theirs - ours

    def shown(self, gain: float, half: float | None = None, sign: str = "") -> str:
        """A gain with half of its interval and its unit: ``16.36 ± 4.21 points``; ``sign`` is that of a format."""
        digits, unit = self.unit.digits, "points" if self.unit.unit == "%" else self.unit.unit
        return f"{gain:{sign},.{digits}f}{'' if half is None else f' ± {half:.{digits}f}'} {unit}"


@dataclass(frozen=True)
class ClaimResult:
    """A claim compared with its strongest rival, in runs of one data set and schedule.

    The gain of the comparison is positive where the claim holds. ``p`` is corrected by Holm's method; None with one
    seed.
    """

    claim: Claim
    rival: PaperRow
    comparison: Comparison
    data: str
    schedule: str
    p: float | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What is compared. A claim of being the best may repeat the comparison of another claim."""
        return self.claim.better, self.rival, self.claim.metric, self.data, self.schedule

    @property
    def verdict(self) -> str:
        """One of ``geoskip.report.html_tables.VERDICTS``."""
        if self.p is None:
            return ONE_SEED
        if self.p < SIGNIFICANT:
            return HOLDS if self.comparison.gain > 0 else FAILS
        return SAME if self.comparison.gain > 0 else OPPOSITE


def judge_all(groups: Groups) -> list[ClaimResult]:
    """Every claim that the runs settle, for each schedule, and each data set that replaces one of the paper's.

    Smoke runs and tiny data prove nothing.
    """
    results = [
        result
        for claim in all_claims()
        for (data, schedule), runs in groups.items()
        if data != TINY
        and schedule != "smoke"
        and is_comparable(data)
        and (result := judge(claim, runs, data, schedule)) is not None
    ]
    chances = {result.key: result.comparison.p for result in results if result.comparison.p is not None}
    corrected = dict(zip(chances, holm(list(chances.values())), strict=True))
    return [replace(result, p=corrected.get(result.key)) for result in results]


def judge(claim: Claim, runs: Runs, data: str = "", schedule: str = "") -> ClaimResult | None:
    """Compare with the strongest rival, once all rivals have runs. ``p`` is not corrected."""
    comparisons = [(rival, _compare(claim, rival, runs)) for rival in claim.rivals]
    known = [(rival, comparison) for rival, comparison in comparisons if comparison is not None]
    if not known or len(known) < len(comparisons):
        return None
    rival, comparison = min(known, key=lambda pair: pair[1].gain)
    return ClaimResult(claim, rival, comparison, data, schedule, comparison.p)


def _compare(claim: Claim, rival: PaperRow, runs: Runs) -> Comparison | None:
    ours, theirs = (
        [record.metrics[claim.metric] for record in runs.get(row, {}).values() if claim.metric in record.metrics]
        for row in (claim.better, rival)
    )
    return compare(theirs, ours) if claim.unit.better == "higher" else compare(ours, theirs)


def holm(chances: Sequence[float]) -> list[float]:
    """p values corrected for their number (Holm, A simple sequentially rejective multiple test procedure, 1979)."""
    corrected, largest = [0.0] * len(chances), 0.0
    for rank, number in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        largest = max(largest, min(1.0, (len(chances) - rank) * chances[number]))
        corrected[number] = largest
    return corrected


@cache
def all_claims() -> tuple[Claim, ...]:
    """Every claim that a comparison of rows can settle and that the paper's own figures bear out."""
    return tuple(claim for claim in _claims() if claim.is_borne_out)


def _claims() -> Iterator[Claim]:
    """In the order of the paper's discussion."""
    tables = tuple(dict.fromkeys([*TABLE1.rows, *TABLE3.rows, *CORRESPONDENCE.rows, *TABLE2.rows]))
    yield from _variations("an affine skip helps", (*tables, *SPLINE_SUPPLEMENT.rows), "affine", skip="none")
    yield from _variations("an affine skip helps more than a residual one", tables, "affine", skip="residual")
    yield from _variations(
        "an affine skip helps more than one more weight matrix", TABLE1.rows, "affine", skip="none", more=1
    )
    attention = [row for row in tables if row.operator in ("monet", "feast", "gcn")]
    yield from _variations(
        "a residual skip helps attention-based operators and GCN", attention, "residual", skip="none"
    )
    plain, larger = TABLE1.select(["MoNet M=9", "MoNet+ M=9"])
    yield Claim("one more weight matrix does not help MoNet's median", plain, (larger,), "median_mm")
    for size in (4, 9, 14):
        yield _best("Aff-MoNet is the best of all", f"Aff-MoNet M={size}", TABLE1.select([f"*M={size}"]))
    yield _best("Aff-MoNet is the best of all", "Aff-MoNet M=10", CORRESPONDENCE.rows)
    without_positions = [row for row in TABLE2.rows if row.pseudo != "position"]
    yield _best("Aff-MoNet is the best of all without positions", "Aff-MoNet (degree) M=25", without_positions)
    yield _best("Aff-MoNet is the best of all", "Aff-MoNet (position) M=25", TABLE2.rows)
    gin, gcn, feast = (TABLE2.select([name])[0] for name in ("GIN-0", "Aff-GCN", "Aff-FeaStNet"))
    for row in (gcn, feast):
        yield Claim("GIN-0 is outperformed", row, (gin,), "accuracy_pct")
    for name in ("ChebNet", "SpiralNet++"):
        for without, whole in zip(CENTER_ABLATION.select([f"{name}†"]), CENTER_ABLATION.select([name]), strict=True):
            yield Claim("a weight for the center vertex helps", whole, (without,), whole.metrics[0])
    for row in TABLE3.rows:
        if row.method.endswith("†"):
            for looped in _same_model(row, TABLE3.rows, options={}):
                yield Claim("FeaStNet does better without self-loops", row, (looped,), row.metrics[0])
    for prefix in ("", "Aff-"):
        spline, monet = SPLINE_SUPPLEMENT.select([f"{prefix}SplineCNN m=2", f"{prefix}MoNet M=8"])
        yield Claim("MoNet does better than SplineCNN with as many matrices", monet, (spline,), "mean_mm")
    largest = SPLINE_SUPPLEMENT.select(["Aff-SplineCNN m=5"])
    yield _best("Aff-SplineCNN with m = 5 is the best of all", largest[0].label, (*largest, *TABLE1.rows))


def _variations(subject: str, rows: Sequence[PaperRow], skip: str, /, **other: Any) -> Iterator[Claim]:
    """Each row with the skip, compared with the one that differs in ``other``."""
    for row in rows:
        if row.skip == skip:
            for rival in _same_model(row, rows, **other):
                yield Claim(subject, row, (rival,), row.metrics[0])


def _best(subject: str, label: str, rows: Sequence[PaperRow]) -> Claim:
    best = next(row for row in rows if row.label == label)
    return Claim(subject, best, tuple(row for row in rows if row != best), best.metrics[0])


def _same_model(row: PaperRow, rows: Sequence[PaperRow], **changes: Any) -> list[PaperRow]:
    """The rows that train the same as ``row`` with some changes, whatever their names and figures."""

    def model(row: PaperRow) -> tuple[object, ...]:
        return row.task, row.operator, row.skip, row.column, row.more, row.pseudo, row.options

    return [other for other in rows if model(other) == model(replace(row, **changes))]


def claim_rows(runs: Iterable[ReportRun]) -> tuple[ClaimRow, ...]:
    """For the report: every claim that the runs settle, separately for each data set and schedule."""
    groups: dict[tuple[str, str], dict[PaperRow, dict[int, RunRecord]]] = {}
    for record in (run.record for run in runs):
        try:
            row = find_row(record.experiment, record.row)
        except ValueError:  # not a row of the paper
            continue
        key = (str(record.config.get("data", "")), record.schedule)
        groups.setdefault(key, {}).setdefault(row, {})[record.seed] = record
    lengths = {
        key: describe_epochs(record for records in members.values() for record in records.values())
        for key, members in groups.items()
    }
    return tuple(_claim_row(result, lengths[result.data, result.schedule]) for result in judge_all(groups))


def _claim_row(result: ClaimResult, epochs: str) -> ClaimRow:
    claim, comparison = result.claim, result.comparison
    # The gain is positive if the claim holds; the table shows the first method minus the second.
    sign = 1 if claim.unit.better == "higher" else -1
    return ClaimRow(
        claim=claim.subject[:1].upper() + claim.subject[1:],
        compared=against(claim.better.label, result.rival.label),
        setting=(result.data, result.schedule),
        data=result.data if result.schedule == "full" else f"{result.data}, {epochs or f'{result.schedule} schedule'}",
        seeds=comparison.seeds,
        difference=claim.shown(sign * comparison.gain, comparison.half, "+").replace("-", "−"),
        paper=claim.shown(sign * claim.paper_gain(result.rival), sign="+").replace("-", "−"),
        p=result.p,
        verdict=result.verdict,
    )


def published_tables() -> Mapping[str, PublishedTable]:
    """For the report: the titles of the paper's tables, their rows, and the published parameter counts."""
    other_data = tuple(name for name in BUILT_IN if not is_comparable(name))
    return {
        name: PublishedTable(
            experiment.title,
            tuple(
                PublishedRow(row.home, row.label, row.task, row.figures.get("params"), row.matrices)
                for row in experiment.rows
            ),
            other_data,
        )
        for name, experiment in EXPERIMENTS.items()
    }
