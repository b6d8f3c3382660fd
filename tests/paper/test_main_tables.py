"""The main tables in short form, and the claims, one line each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from geoskip.paper.claims import ClaimResult, all_claims, judge_all
from geoskip.paper.recipes import STAND_IN
from geoskip.paper.tables import all_runs, block, claims_table, main_table
from tests.paper.runs import job_of, kept, papers_own, recipe_named


def test_operators_down_and_skips_across(tmp_path: Path) -> None:
    papers_own(tmp_path, seeds=1)
    table = main_table(all_runs(tmp_path, "short", STAND_IN))
    assert table.header == ("task", "operator", "plain", "residual", "affine")
    tasks = {task: [line[1:] for line in table.lines if line[0] == task] for task, *_ in table.lines}
    faces, digits, bodies = tasks.values()
    assert list(tasks) == [
        "Shape reconstruction: mean error, mm",
        "Superpixel MNIST: accuracy, %",
        "Shape correspondence: accuracy, %",
    ]
    assert [line[0] for line in faces] == ["ChebNet M=9", "SpiralNet++ M=9", "FeaStNet M=9", "MoNet M=9"]
    assert faces[0] == ("ChebNet M=9", "0.438 (0.438)", "0.444 (0.444)", "")
    assert faces[-1] == ("MoNet M=9", "0.528 (0.528)", "0.426 (0.426)", "0.406 (0.406)")
    assert [line[0] for line in digits] == ["GCN", "FeaStNet M=25", "MoNet (degree) M=25", "MoNet (position) M=25"]
    assert digits[0] == ("GCN", "31.21 (31.21)", "42.32 (42.32)", "58.96 (58.96)")
    assert [line[0] for line in bodies] == ["FeaStNet M=10", "FeaStNet† M=10", "MoNet M=10", "GCN"]


def test_operators_without_runs_are_left_out(tmp_path: Path) -> None:
    kept(job_of(recipe_named("table2", "Aff-GCN")), tmp_path, accuracy_pct=50.0)
    (line,) = main_table(all_runs(tmp_path, "short", STAND_IN)).lines
    assert line[1:] == ("GCN", "– (31.21)", "– (42.32)", "50.00 (58.96)")
    assert "50.00" in block("main", tmp_path)
    assert "claim" not in block("main", tmp_path), "nothing was compared"


def line(tmp_path: Path, subject: str = "an affine skip helps") -> tuple[str, ...]:
    """The counts of one claim: comparisons, held, same direction, opposite, one seed only."""
    table = claims_table(judge_all(all_runs(tmp_path, "short", STAND_IN)))
    (counts,) = (line[1:] for line in table.lines if line[0] == subject)
    return counts


def test_one_line_per_claim(tmp_path: Path) -> None:
    plain, affine = (recipe_named("table2", name) for name in ("GCN", "Aff-GCN"))
    kept(job_of(plain, 0), tmp_path, accuracy_pct=40.0)
    kept(job_of(affine, 0), tmp_path, accuracy_pct=50.0)
    assert line(tmp_path) == ("1 of 22", "–", "–", "–", "1 for")
    for seed in range(3):
        kept(job_of(plain, seed), tmp_path, accuracy_pct=40.0 + seed)
        kept(job_of(affine, seed), tmp_path, accuracy_pct=50.0 + 1.01 * seed)
    assert line(tmp_path) == ("1 of 22", "1", "–", "–", "–")
    assert line(tmp_path, "**all**") == ("1 of 74", "1", "–", "–", "–")
    assert "| an affine skip helps | 1 of 22 | 1 | – | – | – |" in block("main", tmp_path)
    for seed, accuracy in enumerate((60.0, 45.0, 41.0)):
        kept(job_of(affine, seed), tmp_path, accuracy_pct=accuracy)
    assert line(tmp_path) == ("1 of 22", "–", "1", "–", "–")
    for seed in range(3):
        kept(job_of(affine, seed), tmp_path, accuracy_pct=30.0 + 1.01 * seed)
    assert line(tmp_path) == ("1 of 22", "–", "–", "1 (1 with p < 0.05)", "–")


def test_every_comparison_is_counted_once(tmp_path: Path) -> None:
    papers_own(tmp_path, seeds=2)
    table = claims_table(judge_all(all_runs(tmp_path, "short", STAND_IN)))
    subjects = [subject for subject, *_ in table.lines]
    assert len(subjects) == len(set(subjects)) == 1 + len({claim.subject for claim in all_claims()})
    for _, comparisons, *counts in table.lines:
        assert sum(int(n) for cell in counts for n in re.findall(r"^\d+|(?<=, )\d+", cell)) == int(
            comparisons.split()[0]
        )


@pytest.mark.parametrize("count", [0, 3])
def test_claims_that_were_not_run_are_not_counted(count: int) -> None:
    table = claims_table([ClaimResult(claim) for claim in all_claims()[:count]])
    assert table.lines[-1] == ("**all**", f"0 of {count}" if count else "0", "–", "–", "–", "–")
