"""The main tables in few lines, and the claims in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from geoskip.paper.brief import brief_sheets, sentence
from geoskip.paper.claims import Verdict
from geoskip.paper.paper_claims import all_claims
from geoskip.paper.recipe import STAND_IN
from geoskip.paper.tables import all_runs, block, judged
from tests.paper.runs import job_of, kept, papers_own, recipe_named


def test_operators_down_and_skips_across(tmp_path: Path) -> None:
    papers_own(tmp_path, seeds=1)
    faces, digits, bodies = brief_sheets(all_runs(tmp_path, "short", STAND_IN))
    assert faces.header == ("Shape reconstruction: mean error, mm", "plain", "residual", "affine")
    assert [line[0] for line in faces.lines] == ["ChebNet M=9", "SpiralNet++ M=9", "FeaStNet M=9", "MoNet M=9"]
    assert faces.lines[0] == ("ChebNet M=9", "0.438 (0.438)", "0.444 (0.444)", "")
    assert faces.lines[-1] == ("MoNet M=9", "0.528 (0.528)", "0.426 (0.426)", "0.406 (0.406)")
    assert [line[0] for line in digits.lines] == [
        "GCN",
        "FeaStNet M=25",
        "MoNet (degree) M=25",
        "MoNet (position) M=25",
    ]
    assert digits.lines[0] == ("GCN", "31.21 (31.21)", "42.32 (42.32)", "58.96 (58.96)")
    assert [line[0] for line in bodies.lines] == ["FeaStNet M=10", "FeaStNet† M=10", "MoNet M=10", "GCN"]


def test_tables_without_runs_are_left_out(tmp_path: Path) -> None:
    kept(job_of(recipe_named("table2", "Aff-GCN")), tmp_path, accuracy_pct=50.0)
    (digits,) = brief_sheets(all_runs(tmp_path, "short", STAND_IN))
    assert digits.lines == (("GCN", "– (31.21)", "– (42.32)", "50.00 (58.96)"),)
    assert "50.00" in block("main", tmp_path)
    assert "claims" not in block("main", tmp_path), "nothing was compared"


def test_claims_in_a_sentence(tmp_path: Path) -> None:
    plain, affine = (recipe_named("table2", name) for name in ("GCN", "Aff-GCN"))
    for seed in range(3):
        kept(job_of(plain, seed), tmp_path, accuracy_pct=40.0 + seed)
        kept(job_of(affine, seed), tmp_path, accuracy_pct=50.0 + 1.01 * seed)
    verdicts = judged(tmp_path, "short", STAND_IN)
    told = sentence([each for each in verdicts if each.comparison is not None])
    assert told == "All 1 comparisons behind the paper's claims were made here; 1 went its way (1 with p < 0.05)."
    told = sentence(verdicts)
    assert told == "Of 74 comparisons behind the paper's claims 1 were made here; 1 went its way (1 with p < 0.05)."
    for seed in range(3):
        kept(job_of(affine, seed), tmp_path, accuracy_pct=30.0 + 1.01 * seed)
    told = sentence(judged(tmp_path, "short", STAND_IN))
    assert told.endswith("0 went its way. Not: an affine skip helps (classification: Aff-GCN against GCN, p < 0.05).")


@pytest.mark.parametrize("count", [0, 3])
def test_claims_that_were_not_run_are_not_counted(count: int) -> None:
    found = [Verdict(claim) for claim in list(all_claims())[:count]]
    assert sentence(found) == f"Of {count} comparisons behind the paper's claims 0 were made here; 0 went its way."
