"""The paper's claims, settled by records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from geoskip.paper.claims import Claim, all_claims, judge, judge_all
from geoskip.paper.recipes import STAND_IN, Recipe
from geoskip.paper.tables import all_runs
from geoskip.records import RunRecord
from tests.paper.runs import job_of, papers_own, recipe_named, record_of

RES, AFF = recipe_named("table1", "Res-MoNet M=9"), recipe_named("table1", "Aff-MoNet M=9")
CLAIM = Claim("affine better than residual", AFF, (RES,), "mean_mm")


def runs(values: Mapping[Recipe, list[float]], metric: str = "mean_mm") -> dict[Recipe, dict[int, RunRecord]]:
    return {
        recipe: {seed: record_of(job_of(recipe, seed), {metric: value}) for seed, value in enumerate(found)}
        for recipe, found in values.items()
    }


def test_the_papers_figures_bear_out_its_claims(tmp_path: Path) -> None:
    """All but one: Table 1 has SpiralNet++ with M=4 better without a weight for the centre, against the text."""
    papers_own(tmp_path)
    found = judge_all(all_runs(tmp_path, "short", STAND_IN))
    broken = [each.claim.where for each in found if each.holds is False]
    assert broken == ["reconstruction: SpiralNet++ M=4"]
    assert sum(each.holds is True for each in found) == len(found) - 1 - 4, "of SplineCNN the paper prints only m = 2"
    for each in found:
        assert each.claim.paper_holds == each.holds


def test_every_affine_row_is_claimed_to_be_better() -> None:
    helped = {claim.better for claim in all_claims() if claim.subject == "an affine skip helps"}
    assert len(helped) == 6 + 1 + 3 + 4 + 1 + 6 + 1
    assert all(recipe.row.skip == "affine" for recipe in helped)


def test_claims_differ() -> None:
    claims = [(claim.subject, claim.better, claim.rivals) for claim in all_claims()]
    assert len(set(claims)) == len(claims)
    assert all(claim.better not in claim.rivals for claim in all_claims())


def test_verdict_with_several_seeds() -> None:
    found = judge(CLAIM, runs({AFF: [0.40, 0.41, 0.40], RES: [0.43, 0.44, 0.44]}))
    assert found.holds
    assert found.significant
    assert found.summary.startswith("yes, p = 0.0")
    assert found.summary.endswith("(better with 3 of 3 seeds)")


def test_verdict_the_other_way_round() -> None:
    found = judge(CLAIM, runs({AFF: [0.43, 0.44, 0.44], RES: [0.40, 0.41, 0.40]}))
    assert found.holds is False
    assert found.significant
    assert found.summary.startswith("no, p = 0.0")


def test_verdict_that_seeds_do_not_settle() -> None:
    found = judge(CLAIM, runs({AFF: [0.40, 0.44, 0.41], RES: [0.41, 0.42, 0.43]}))
    assert found.holds
    assert not found.significant
    assert "not significant (better with 2 of 3 seeds)" in found.summary


def test_verdict_with_one_seed_or_none() -> None:
    assert judge(CLAIM, runs({AFF: [0.4], RES: [0.5]})).summary == "yes, with one seed"
    assert judge(CLAIM, runs({AFF: [0.4]})).summary == "not run"
    assert judge(CLAIM, runs({AFF: [0.4]})).holds is None


def test_accuracies_are_to_be_large() -> None:
    gcn, aff = recipe_named("table2", "GCN"), recipe_named("table2", "Aff-GCN")
    claim = Claim("", aff, (gcn,), "accuracy_pct")
    assert judge(claim, runs({aff: [59.0], gcn: [31.0]}, "accuracy_pct")).holds
    assert not judge(claim, runs({aff: [31.0], gcn: [59.0]}, "accuracy_pct")).holds


def test_best_of_all_is_held_against_the_closest() -> None:
    plain = recipe_named("table1", "MoNet M=9")
    claim = Claim("", AFF, (RES, plain), "mean_mm")
    found = judge(claim, runs({AFF: [0.40, 0.40], RES: [0.43, 0.42], plain: [0.39, 0.42]}))
    assert found.rival == plain
    assert found.comparison is not None
    assert found.comparison.gain == pytest.approx(0.005)
    assert judge(claim, runs({AFF: [0.4], RES: [0.43]})).comparison is None, "not before all were run"


def test_parameters_count_too() -> None:
    gin, aff = recipe_named("table2", "GIN-0"), recipe_named("table2", "Aff-GCN")
    claim = Claim("", aff, (gin,), "parameters")
    assert claim.paper_holds
    assert judge(claim, runs({aff: [1.0], gin: [1.0]}, "accuracy_pct")).holds
