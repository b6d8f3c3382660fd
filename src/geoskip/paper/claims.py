"""The paper's claims as comparisons of its rows, and whether the records of runs support them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from geoskip.paper.experiments import (
    CENTER_ABLATION,
    CORRESPONDENCE,
    EXPERIMENTS,
    SPLINE_SUPPLEMENT,
    TABLE1,
    TABLE2,
    TABLE3,
    find_recipe,
)
from geoskip.paper.recipes import Recipe
from geoskip.paper.rows import PaperRow
from geoskip.records import RunRecord
from geoskip.records.statistics import Comparison, compare
from geoskip.report.runs import ReportRun
from geoskip.report.summary import PublishedRow, PublishedTable
from geoskip.report.tables import ClaimRow

# The runs of each recipe, by seed.
Runs = Mapping[Recipe, Mapping[int, RunRecord]]
SIGNIFICANT = 0.05
PARAMETERS = "parameters"
UNITS = {"mean_mm": "mm", "median_mm": "mm", "accuracy_pct": "points", PARAMETERS: "parameters"}


@dataclass(frozen=True)
class Claim:
    """``better`` beats every one of its ``rivals``.

    subject: the statement of the paper, in a few words; several comparisons may share one subject.
    metric: a metric of the records, or ``"parameters"``. Accuracies should be large, everything else small.
    """

    subject: str
    better: Recipe
    rivals: tuple[Recipe, ...]
    metric: str

    @property
    def where(self) -> str:
        return f"{self.better.task}: {self.better.label}"

    @property
    def paper_holds(self) -> bool | None:
        """Whether the claim holds for the published figures; None if the paper does not print them."""
        ours = _published(self.better, self.metric)
        theirs = [_published(rival, self.metric) for rival in self.rivals]
        known = [value for value in theirs if value is not None]
        if ours is None or len(known) < len(theirs):
            return None
        return all(ours > value if _larger_is_better(self.metric) else ours < value for value in known)


@dataclass(frozen=True)
class ClaimResult:
    """A claim and its comparison with the strongest rival. Both are None if not all rows were run.

    The gain of the comparison is in the metric's unit, and positive where the claim holds.
    """

    claim: Claim
    rival: Recipe | None = None
    comparison: Comparison | None = None

    @property
    def holds(self) -> bool | None:
        return None if self.comparison is None else self.comparison.gain > 0

    @property
    def exact(self) -> bool:
        """Parameters are counted, not measured: there is nothing to test."""
        return self.claim.metric == PARAMETERS

    @property
    def one_seed(self) -> bool:
        return not self.exact and self.comparison is not None and self.comparison.t_p is None

    @property
    def significant(self) -> bool:
        p = self.comparison.t_p if self.comparison else None
        return p is not None and p < SIGNIFICANT and not self.exact

    @property
    def summary(self) -> str:
        """``yes, p = 0.003 (better with 3 of 3 seeds)``."""
        if self.comparison is None:
            return "not run"
        answer = "yes" if self.holds else "no"
        if self.exact:
            return answer
        if self.comparison.t_p is None:
            return f"{answer}, with one seed"
        doubt = "" if self.significant else ", not significant"
        p = "p < 0.001" if self.comparison.t_p < 0.001 else f"p = {self.comparison.t_p:.3g}"
        return f"{answer}, {p}{doubt} (better with {self.comparison.wins} of {self.comparison.pairs} seeds)"


def judge(claim: Claim, runs: Runs) -> ClaimResult:
    """Compare with the strongest rival, once all rivals have runs."""
    comparisons = [(rival, _compare(claim, rival, runs)) for rival in claim.rivals]
    known = [(rival, comparison) for rival, comparison in comparisons if comparison is not None]
    if not known or len(known) < len(comparisons):
        return ClaimResult(claim)
    return ClaimResult(claim, *min(known, key=lambda pair: pair[1].gain))


def judge_all(runs: Runs) -> list[ClaimResult]:
    """Every claim of the paper; empty if the runs settle none."""
    results = [judge(claim, runs) for claim in all_claims()]
    return results if any(result.comparison for result in results) else []


def _compare(claim: Claim, rival: Recipe, runs: Runs) -> Comparison | None:
    ours, theirs = (_values(runs.get(recipe, {}), claim.metric) for recipe in (claim.better, rival))
    return compare(theirs, ours) if _larger_is_better(claim.metric) else compare(ours, theirs)


def _values(records: Mapping[int, RunRecord], metric: str) -> dict[int, float]:
    if metric == PARAMETERS:
        return {seed: float(record.parameters) for seed, record in records.items()}
    return {seed: record.metrics[metric] for seed, record in records.items() if metric in record.metrics}


def _published(recipe: Recipe, metric: str) -> float | None:
    if metric != PARAMETERS:
        return recipe.paper.get(metric)
    return float(recipe.row.figures["params"]) if "params" in recipe.row.figures else None


def _larger_is_better(metric: str) -> bool:
    return metric.startswith("accuracy")


def all_claims() -> tuple[Claim, ...]:
    """Every claim that a comparison of rows can settle, in the order of the paper's discussion."""
    return tuple(_claims())


def _claims() -> Iterator[Claim]:
    tables = tuple(dict.fromkeys([*TABLE1.recipes, *TABLE3.recipes, *CORRESPONDENCE.recipes, *TABLE2.recipes]))
    tables_and_supplement = (*tables, *SPLINE_SUPPLEMENT.recipes)
    yield from _variations("an affine skip helps", tables_and_supplement, "Aff-", {"skip": "none"})
    yield from _variations("an affine skip helps more than a residual one", tables, "Aff-", {"skip": "residual"})
    yield from _variations(
        "an affine skip helps more than one more weight matrix", TABLE1.recipes, "Aff-", {"skip": "none", "more": 1}
    )
    attention = [recipe for recipe in tables if recipe.row.operator in ("monet", "feast", "gcn")]
    yield from _variations(
        "a residual skip helps attention-based operators and GCN", attention, "Res-", {"skip": "none"}
    )
    plain, larger = TABLE1.select(["MoNet M=9", "MoNet+ M=9"])
    yield Claim("one more weight matrix does not help MoNet's median", plain, (larger,), "median_mm")
    for size in (4, 9, 14):
        (best,) = TABLE1.select([f"Aff-MoNet M={size}"])
        yield _best("Aff-MoNet is the best of all", best, TABLE1.select([f"*M={size}"]))
    (best,) = CORRESPONDENCE.select(["Aff-MoNet"])
    yield _best("Aff-MoNet is the best of all", best, CORRESPONDENCE.recipes)
    for pseudo in ("degree", "position"):
        (best,) = TABLE2.select([f"Aff-MoNet ({pseudo})"])
        rivals = [recipe for recipe in TABLE2.recipes if pseudo == "position" or recipe.row.pseudo != "position"]
        yield _best("Aff-MoNet is the best of all" + " without positions" * (pseudo == "degree"), best, rivals)
    gin, gcn, feast = (TABLE2.select([name])[0] for name in ("GIN-0", "Aff-GCN", "Aff-FeaStNet"))
    yield Claim("GIN-0 is outperformed", gcn, (gin,), "accuracy_pct")
    yield Claim("GIN-0 is outperformed", feast, (gin,), "accuracy_pct")
    yield Claim("Aff-GCN has fewer parameters than GIN-0", gcn, (gin,), PARAMETERS)
    for name in ("ChebNet", "SpiralNet++"):
        for without, whole in zip(CENTER_ABLATION.select([f"{name}†"]), CENTER_ABLATION.select([name]), strict=True):
            yield Claim("a weight for the center vertex helps", whole, (without,), whole.metrics[0])
    # In the paper plain FeaStNet stays at 11.35 % on superpixels with and without self-loops: no claim there.
    yield from (claim for claim in _self_loop_claims() if claim.paper_holds)
    yield from _spline_claims()


def _self_loop_claims() -> Iterator[Claim]:
    subject = "FeaStNet does better without self-loops"
    for recipe in TABLE3.recipes:
        if recipe.name.endswith("†"):
            for looped in _same_row(recipe.row, TABLE3.recipes, options={}):
                yield Claim(subject, recipe, (looped,), looped.metrics[0])


def _spline_claims() -> Iterator[Claim]:
    for name in ("", "Aff-"):
        monet, spline = SPLINE_SUPPLEMENT.select([f"{name}MoNet M=8", f"{name}SplineCNN m=2"])[::-1]
        yield Claim("MoNet does better than SplineCNN with as many matrices", monet, (spline,), "mean_mm")
    (best,) = SPLINE_SUPPLEMENT.select(["Aff-SplineCNN m=5"])
    yield _best("Aff-SplineCNN with m = 5 is the best of all", best, TABLE1.recipes)


def _variations(subject: str, recipes: Sequence[Recipe], prefix: str, other: Mapping[str, Any]) -> Iterator[Claim]:
    """Each recipe whose method has the prefix, compared with the one that differs in ``other``."""
    for recipe in recipes:
        if recipe.name.startswith(prefix):
            for rival in _same_row(recipe.row, recipes, **other):
                yield Claim(subject, recipe, (rival,), recipe.metrics[0])


def _best(subject: str, best: Recipe, rivals: Sequence[Recipe]) -> Claim:
    return Claim(subject, best, tuple(rival for rival in rivals if rival != best), best.metrics[0])


def _same_row(row: PaperRow, recipes: Sequence[Recipe], **changes: Any) -> list[Recipe]:
    wanted = _identity(replace(row, **changes))
    return [recipe for recipe in recipes if _identity(recipe.row) == wanted]


def _identity(row: PaperRow) -> tuple[object, ...]:
    """Everything that is trained, without its name and figures."""
    return row.experiment, row.operator, row.skip, row.column, row.more, row.pseudo, tuple(sorted(row.options.items()))


def claim_rows(runs: Sequence[ReportRun]) -> tuple[ClaimRow, ...]:
    """For the report: every claim that the runs settle, separately for each data set and schedule."""
    groups: dict[tuple[str, str], dict[Recipe, dict[int, RunRecord]]] = {}
    for record in (run.record for run in runs):
        recipe = _recipe(record)
        if recipe is not None and record.schedule != "smoke":
            key = (str(record.config.get("data", "")), record.schedule)
            groups.setdefault(key, {}).setdefault(recipe, {})[record.seed] = record
    results = [(key, judge(claim, members)) for claim in all_claims() for key, members in groups.items()]
    return tuple(_claim_row(result, *key) for key, result in results if result.comparison is not None)


def published_tables() -> Mapping[str, PublishedTable]:
    """For the report: the titles of the paper's tables, their rows, and the published parameter counts."""
    return {
        name: PublishedTable(
            experiment.title,
            tuple(
                PublishedRow(
                    recipe.home, recipe.label, recipe.task, recipe.row.figures.get("params"), recipe.row.matrices
                )
                for recipe in experiment.recipes
            ),
        )
        for name, experiment in EXPERIMENTS.items()
    }


def _recipe(record: RunRecord) -> Recipe | None:
    try:
        return find_recipe(record.experiment, record.row)
    except ValueError:  # not a row of the paper
        return None


def _claim_row(result: ClaimResult, data: str, schedule: str) -> ClaimRow:
    claim, comparison, rival = result.claim, cast(Comparison, result.comparison), cast(Recipe, result.rival)
    # The gain is positive if the claim holds; the table shows the first method minus the second.
    difference = comparison.gain if _larger_is_better(claim.metric) else -comparison.gain
    digits = {PARAMETERS: 0, "accuracy_pct": 2}.get(claim.metric, 3)
    return ClaimRow(
        claim=claim.subject[:1].upper() + claim.subject[1:],
        compared=f"{claim.better.label} against {rival.label}",
        data=data if schedule == "full" else f"{data}, {schedule} schedule",
        seeds=comparison.pairs,
        difference=f"{difference:+,.{digits}f} {UNITS.get(claim.metric, '')}".replace("-", "−").strip(),
        p=comparison.t_p,
        verdict=_verdict(result),
    )


def _verdict(result: ClaimResult) -> str:
    if result.exact or result.significant:
        return "holds" if result.holds else "fails"
    return f"{'in favor' if result.holds else 'against'}, {'one seed' if result.one_seed else 'not significant'}"
