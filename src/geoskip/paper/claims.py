"""A claim of the paper as a comparison of rows, and whether runs bear it out: computed from records alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from geoskip.paper.recipe import Recipe
from geoskip.records import RunRecord
from geoskip.records.statistics import Comparison, compare

# The runs of a recipe, by seed.
Runs = Mapping[Recipe, Mapping[int, RunRecord]]
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Claim:
    """``better`` does better than each of ``rivals``.

    subject: what the paper says, in a few words; claims of one subject stand together.
    metric: as in records, or ``"parameters"``. Accuracies are to be large, everything else small.
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
        """Whether the paper's own figures say so; None where it prints none."""
        ours = _printed(self.better, self.metric)
        theirs = [_printed(rival, self.metric) for rival in self.rivals]
        known = [value for value in theirs if value is not None]
        if ours is None or len(known) < len(theirs):
            return None
        return all(ours > value if _large(self.metric) else ours < value for value in known)


@dataclass(frozen=True)
class Verdict:
    """A claim in the light of our runs; ``against`` is the strongest rival, ``comparison`` None without runs.

    The gain of the comparison is above 0 where the claim holds, in the metric's unit.
    """

    claim: Claim
    against: Recipe | None = None
    comparison: Comparison | None = None

    @property
    def holds(self) -> bool | None:
        return None if self.comparison is None else self.comparison.gain > 0

    @property
    def significant(self) -> bool:
        """Parameters are counted, not measured: of them there is nothing to doubt, and nothing to be sure of."""
        p = self.comparison.t_p if self.comparison else None
        return p is not None and p < SIGNIFICANT and self.claim.metric != "parameters"

    @property
    def words(self) -> str:
        """``yes, p = 0.003 (3 of 3 seeds)``."""
        found = self.comparison
        if found is None:
            return "not run"
        if self.claim.metric == "parameters":
            return "yes" if self.holds else "no"
        if found.t_p is None:
            return f"{'yes' if self.holds else 'no'}, with one seed"
        sure = "" if self.significant else ", not significant"
        p = "p < 0.001" if found.t_p < 0.001 else f"p = {found.t_p:.3g}"
        return f"{'yes' if self.holds else 'no'}, {p}{sure} (better with {found.wins} of {found.pairs} seeds)"


def verdict(claim: Claim, runs: Runs) -> Verdict:
    """The comparison with the rival that comes closest; not before all of them were run."""
    found = [(rival, _compared(claim, rival, runs)) for rival in claim.rivals]
    if any(comparison is None for _, comparison in found):
        return Verdict(claim)
    closest = min(((c.gain, i) for i, (_, c) in enumerate(found) if c is not None), default=None)
    return Verdict(claim) if closest is None else Verdict(claim, *found[closest[1]])


def _compared(claim: Claim, rival: Recipe, runs: Runs) -> Comparison | None:
    ours, theirs = (_values(runs.get(recipe, {}), claim.metric) for recipe in (claim.better, rival))
    return compare(theirs, ours) if _large(claim.metric) else compare(ours, theirs)


def _values(records: Mapping[int, RunRecord], metric: str) -> dict[int, float]:
    if metric == "parameters":
        return {seed: float(record.parameters) for seed, record in records.items()}
    return {seed: record.metrics[metric] for seed, record in records.items() if metric in record.metrics}


def _printed(recipe: Recipe, metric: str) -> float | None:
    if metric != "parameters":
        return recipe.paper.get(metric)
    return float(recipe.row.figures["params"]) if "params" in recipe.row.figures else None


def _large(metric: str) -> bool:
    return metric.startswith("accuracy")
