"""The three main tables in few lines: operators down, their skips across; and in one sentence which claims held."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from geoskip.paper.claims import Runs, Verdict
from geoskip.paper.recipe import Experiment, Recipe
from geoskip.paper.registry import EXPERIMENTS
from geoskip.paper.sheets import UNITS, Sheet, cell, notes

SKIPS = {"none": "plain", "residual": "residual", "affine": "affine"}
# What stands in the brief form, and the kernel size where there are several.
MAIN = {"table1": 9, "table2": None, "correspondence": None}


def brief_sheets(runs: Runs) -> list[Sheet]:
    """Tables 1 (one kernel size) and 2 and the correspondence, as far as they were run."""
    made = [_sheet(EXPERIMENTS[name], column, runs) for name, column in MAIN.items()]
    return [found for found in made if found.lines]


def _sheet(experiment: Experiment, column: int | None, runs: Runs) -> Sheet:
    chosen = [r for r in experiment.recipes if not r.row.more and column in (None, r.row.column)]
    lines = []
    for operator, group in _by_operator(chosen):
        if len(group) > 1 and any(runs.get(recipe) for recipe in group):
            found = {recipe.row.skip: recipe for recipe in group}
            cells = [_cell(found.get(skip), runs) for skip in SKIPS]
            lines.append((operator, *cells))
    title = f"{experiment.title.partition(' (')[0]}: {UNITS[chosen[0].metrics[0]]}"
    some = Experiment(experiment.name, experiment.title, tuple(chosen))
    return Sheet(title, (title, *SKIPS.values()), tuple(lines), notes(some, runs))


def _by_operator(recipes: Sequence[Recipe]) -> list[tuple[str, list[Recipe]]]:
    """Variations of one operator together: as its plain form is called."""
    names = dict.fromkeys(_bare(recipe) for recipe in recipes)
    return [(name, [recipe for recipe in recipes if _bare(recipe) == name]) for name in names]


def _bare(recipe: Recipe) -> str:
    return recipe.label.removeprefix("Res-").removeprefix("Aff-")


def _cell(recipe: Recipe | None, runs: Runs) -> str:
    return "" if recipe is None else cell(recipe, runs.get(recipe, {}), recipe.metrics[0])


def sentence(found: Sequence[Verdict]) -> str:
    """``Of 74 comparisons behind the paper's claims 40 were made here; 37 went its way (…). Not: …``"""
    run = [each for each in found if each.comparison is not None]
    held = [each for each in run if each.holds]
    sure = sum(each.significant for each in held)
    thin = sum(each.comparison is not None and each.comparison.t_p is None for each in held)
    aside = [f"{sure} with p < 0.05"] * bool(sure) + [f"{thin} on one seed only"] * bool(thin)
    which = f"{len(found)} comparisons behind the paper's claims"
    made = f"All {which}" if run and len(run) == len(found) else f"Of {which} {len(run)}"
    head = f"{made} were made here; {len(held)} went its way"
    head += f" ({', '.join(aside)})" if aside else ""
    failed = [each for each in run if not each.holds]
    if not failed:
        return f"{head}."
    parts = [
        f"{subject} ({'; '.join(map(_where, group))})" for subject, group in groupby(failed, lambda v: v.claim.subject)
    ]
    return f"{head}. Not: {'; '.join(parts)}."


def _where(each: Verdict) -> str:
    assert each.against is not None
    sure = ", p < 0.05" if each.significant else ""
    alike = ", nor in the paper's figures" if each.claim.paper_holds is False else ""
    return f"{each.claim.where} against {each.against.label}{sure}{alike}"
