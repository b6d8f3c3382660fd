"""The paper's claims put to the runs of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from geoskip.paper.claims import Claim, Verdict, verdict
from geoskip.paper.paper_claims import all_claims
from geoskip.paper.recipe import Recipe
from geoskip.paper.registry import EXPERIMENTS, find_recipe
from geoskip.records import RunRecord
from geoskip.records.statistics import Comparison
from geoskip.report.runs import ReportRun
from geoskip.report.summary import PublishedRow, PublishedTable
from geoskip.report.tables import ClaimRow

UNITS = {"mean_mm": "mm", "median_mm": "mm", "accuracy_pct": "points", "parameters": "parameters"}


def claim_rows(runs: Sequence[ReportRun]) -> tuple[ClaimRow, ...]:
    """Every claim that the runs allow to judge, for each data set and schedule by itself."""
    parted: dict[tuple[str, str], dict[Recipe, dict[int, RunRecord]]] = {}
    for record in (run.record for run in runs):
        recipe = _recipe(record)
        if recipe is not None and record.schedule != "smoke":
            place = (str(record.config.get("data", "")), record.schedule)
            parted.setdefault(place, {}).setdefault(recipe, {})[record.seed] = record
    found = [(place, verdict(claim, members)) for claim in all_claims() for place, members in parted.items()]
    return tuple(_row(result, *place) for place, result in found if result.comparison is not None)


def published_tables() -> Mapping[str, PublishedTable]:
    """The paper's tables as the report needs them: titles, which rows a table has, published parameter counts."""
    return {
        name: PublishedTable(
            experiment.title,
            tuple(
                PublishedRow(recipe.home, recipe.label, recipe.task, recipe.row.figures.get("params"))
                for recipe in experiment.recipes
            ),
        )
        for name, experiment in EXPERIMENTS.items()
    }


def _recipe(record: RunRecord) -> Recipe | None:
    try:
        return find_recipe(record.experiment, record.row)
    except ValueError:  # a run of the user's own
        return None


def _row(result: Verdict, data: str, schedule: str) -> ClaimRow:
    claim, found, against = result.claim, cast(Comparison, result.comparison), cast(Recipe, result.against)
    digits = {"parameters": 0, "accuracy_pct": 2}.get(claim.metric, 3)
    return ClaimRow(
        claim=claim.subject[:1].upper() + claim.subject[1:],
        compared=f"{claim.better.label} against {against.label}",
        data=data if schedule == "full" else f"{data}, {schedule} schedule",
        seeds=found.pairs,
        difference=f"{found.gain:+,.{digits}f} {UNITS.get(claim.metric, '')}".replace("-", "−").strip(),
        p=found.t_p,
        verdict=_words(claim, result),
    )


def _words(claim: Claim, result: Verdict) -> str:
    if claim.metric == "parameters" or result.significant:
        return "holds" if result.holds else "fails"
    one = result.comparison is not None and result.comparison.t_p is None
    return f"{'for it' if result.holds else 'against it'}, {'one seed' if one else 'not significant'}"
