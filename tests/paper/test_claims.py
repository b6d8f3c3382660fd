"""The paper's claims, settled by records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from geoskip.paper.claims import Claim, ClaimResult, all_claims, claim_rows, holm, judge, judge_all
from geoskip.paper.experiments import EXPERIMENTS
from geoskip.paper.findings import read_analysis
from geoskip.paper.rows import PaperRow
from geoskip.paper.running import stored_runs
from geoskip.records import RunRecord
from geoskip.records.reading import read_arrays
from geoskip.records.statistics import summarize
from geoskip.report.runs import ReportRun
from tests.paper.runs import job_of, papers_own, record_of, row_named
from tests.report.made_runs import made_run

ROOT = Path(__file__).parents[2]
RES, AFF = row_named("table1", "Res-MoNet M=9"), row_named("table1", "Aff-MoNet M=9")
CLAIM = Claim("affine better than residual", AFF, (RES,), "mean_mm")


def runs(values: Mapping[PaperRow, list[float]], metric: str = "mean_mm") -> dict[PaperRow, dict[int, RunRecord]]:
    return {
        row: {seed: record_of(job_of(row, seed), {metric: value}) for seed, value in enumerate(of_row)}
        for row, of_row in values.items()
    }


def verdict(aff: list[float], res: list[float]) -> str | None:
    result = judge(CLAIM, runs({AFF: aff, RES: res}))
    return None if result is None else result.verdict


def test_the_papers_own_figures_bear_out_every_claim(tmp_path: Path) -> None:
    papers_own(tmp_path, seeds=2)
    rows = [row for experiment in EXPERIMENTS.values() for row in experiment.rows]
    results = judge_all(stored_runs(rows, tmp_path))
    assert len(results) == len(all_claims())
    for result in results:
        assert result.verdict == "holds"
        assert result.comparison.gain == pytest.approx(result.claim.paper_gain(result.rival))


def test_what_the_paper_does_not_print_or_bear_out_is_no_claim() -> None:
    """Table 1 has SpiralNet++ with M=4 better without a weight for the center, against the text; of SplineCNN the
    paper prints m = 2 and the best one; plain FeaStNet has the same accuracy with and without self-loops."""
    for subject, label in (
        ("a weight for the center vertex helps", "SpiralNet++ M=4"),
        ("an affine skip helps", "Aff-SplineCNN m=3"),
        ("FeaStNet does better without self-loops", "FeaStNet† M=25"),
    ):
        assert label not in {claim.better.label for claim in all_claims() if claim.subject == subject}
    helped = [claim.better for claim in all_claims() if claim.subject == "an affine skip helps"]
    assert len(helped) == len(set(helped)) == 6 + 1 + 3 + 4 + 1 + 2 + 1
    assert all(row.skip == "affine" for row in helped)


def test_claims_differ() -> None:
    claims = [(claim.subject, claim.better, claim.rivals) for claim in all_claims()]
    assert len(set(claims)) == len(claims)
    assert all(claim.better not in claim.rivals for claim in all_claims())


def test_a_verdict_needs_the_sign_and_significance() -> None:
    better, worse = [0.40, 0.41, 0.40], [0.43, 0.44, 0.44]
    assert verdict(better, worse) == "holds"
    assert verdict(worse, better) == "fails"
    assert verdict([0.40, 0.44, 0.41], [0.41, 0.42, 0.43]) == "same direction, too small to tell"
    assert verdict([0.41, 0.42, 0.43], [0.40, 0.44, 0.41]) == "opposite direction, too small to tell"
    assert verdict([0.4], [0.5]) == "one seed"
    assert verdict([0.4], []) is None


def test_accuracies_are_to_be_large() -> None:
    gcn, aff = row_named("table2", "GCN"), row_named("table2", "Aff-GCN")
    claim = Claim("", aff, (gcn,), "accuracy_pct")
    result = judge(claim, runs({aff: [59.0], gcn: [31.0]}, "accuracy_pct"))
    assert result is not None
    assert result.comparison.gain == 28
    assert claim.paper_gain(gcn) == pytest.approx(58.96 - 31.21)


def test_the_best_is_compared_with_the_closest() -> None:
    plain = row_named("table1", "MoNet M=9")
    claim = Claim("", AFF, (RES, plain), "mean_mm")
    result = judge(claim, runs({AFF: [0.40, 0.40], RES: [0.43, 0.42], plain: [0.39, 0.42]}))
    assert result is not None
    assert result.rival == plain
    assert result.comparison.gain == pytest.approx(0.005)
    assert judge(claim, runs({AFF: [0.4], RES: [0.43]})) is None, "not before all were run"


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_corrects_in_order(chances: list[float]) -> None:
    """Never below the p value, never above Bonferroni's; the order stays."""
    corrected = holm(chances)
    for p, q in zip(chances, corrected, strict=True):
        assert p <= q <= min(1, len(chances) * p)
    order = sorted(range(len(chances)), key=lambda k: chances[k])
    assert all(corrected[a] <= corrected[b] for a, b in pairwise(order))


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def page_runs(values: dict[str, list[float]], data: str = "faces") -> list[ReportRun]:
    return [
        made_run(row_named("table1", label), data, seed, metrics={"mean_mm": value})
        for label, of_row in values.items()
        for seed, value in enumerate(of_row)
    ]


def test_more_comparisons_need_smaller_p() -> None:
    """p = 0.01 holds alone, but not among ten."""
    one = {"MoNet M=9": [0.50, 0.54, 0.52], "Aff-MoNet M=9": [0.40, 0.43, 0.46]}
    p = float(stats.ttest_ind(*one.values(), equal_var=False).pvalue)
    assert 0.005 < p < 0.05
    (row,) = claim_rows(page_runs(one))
    assert row.verdict == "holds"
    assert row.p == pytest.approx(p)
    rows = claim_rows([run for number in range(10) for run in page_runs(one, f"data{number}")])
    assert {row.verdict for row in rows} == {"same direction, too small to tell"}
    assert rows[0].p == pytest.approx(10 * p)


def test_a_comparison_that_serves_two_claims_counts_once() -> None:
    """Of two methods, the better one is the best of all: the same comparison again."""
    first, second = EXPERIMENTS["table2"].select(["Res-MoNet (degree)", "Aff-MoNet (degree)"])
    claims = [Claim(subject, second, (first,), "accuracy_pct") for subject in ("a", "b")]
    members = runs({first: [50.0, 51.0, 50.5], second: [60.0, 62.0, 61.0]}, "accuracy_pct")
    results = [judge(claim, members, "superpixels", "short") for claim in claims]
    assert len({result.key for result in results if result is not None}) == 1


def test_rows_of_the_report() -> None:
    plain, affine = [0.50, 0.52, 0.51], [0.40, 0.41, 0.405]
    (row,) = claim_rows(page_runs({"MoNet M=9": plain, "Aff-MoNet M=9": affine}))
    assert (row.claim, row.compared) == ("An affine skip helps", "Aff-MoNet M=9 against MoNet M=9")
    assert (row.data, row.seeds, row.verdict) == ("faces, short schedule", 3, "holds")
    assert (row.difference, row.paper) == ("−0.105 ± 0.021 mm", "−0.122 mm")
    (row,) = claim_rows(page_runs({"MoNet M=9": affine, "Aff-MoNet M=9": plain}))
    assert (row.difference, row.verdict) == ("+0.105 ± 0.021 mm", "fails")
    (row,) = claim_rows(page_runs({"MoNet M=9": [0.5], "Aff-MoNet M=9": [0.6]}))
    assert (row.p, row.verdict) == (None, "one seed")


def test_rows_of_the_report_say_how_long_training_took() -> None:
    """In epochs rather than by the name of a schedule, where the records have their number."""
    runs = page_runs({"MoNet M=9": [0.5, 0.52], "Aff-MoNet M=9": [0.4, 0.41]})
    config = {"optim": {"epochs": 60}}
    trained = [replace(run, record=replace(run.record, config={**run.record.config, **config})) for run in runs]
    assert [row.data for row in claim_rows(trained)] == ["faces, 60 epochs"]


def test_runs_that_settle_nothing() -> None:
    smoke = [replace(run.record, schedule="smoke") for run in page_runs({"MoNet M=9": [1.0], "Aff-MoNet M=9": [0.5]})]
    own = [replace(record, experiment="", row="mine", schedule="own") for record in smoke]
    assert claim_rows([ReportRun(record) for record in smoke + own]) == ()


def test_data_sets_are_judged_separately() -> None:
    values = {"MoNet M=9": [0.5], "Aff-MoNet M=9": [0.4]}
    one, other = page_runs(values), page_runs(values, "coma")
    assert [row.data for row in claim_rows(one + other)] == ["faces, short schedule", "coma, short schedule"]
    assert claim_rows([one[0], other[1]]) == ()


def stored_groups() -> dict[tuple[str, str], dict[PaperRow, dict[int, RunRecord]]]:
    rows = dict.fromkeys(row for experiment in EXPERIMENTS.values() for row in experiment.rows)
    return stored_runs(rows, ROOT / "results")


def protocol() -> str:
    return " ".join((ROOT / "docs" / "protocol.md").read_text(encoding="utf-8").split())


def test_seeds_of_two_rows_are_unrelated() -> None:
    """Why seeds are not paired: over all pairs of rows of a table, their results by seed have no correlation. The
    protocol has the figures."""
    correlations = []
    for of_rows in stored_groups().values():
        values = [
            np.array([record.metrics[row.metrics[0]] for _, record in sorted(records.items())])
            for row, records in of_rows.items()
            # Variants of a row start with the same values.
            if len(records) == 3 and not row.variant
        ]
        varying = [of_row for of_row in values if of_row.std() > 0]
        correlations += [float(np.corrcoef(*pair)[0, 1]) for pair in combinations(varying, 2)]
    assert abs(fmean(correlations)) < 0.1
    assert f"two rows is {fmean(correlations):.3f} ({len(correlations)} pairs of rows;" in protocol()


def test_other_tests_give_the_counts_of_the_protocol() -> None:
    """Welch's test with Holm's correction is one choice; the protocol has the counts of two others."""
    groups = stored_groups()
    distinct = {result.key: result for result in judge_all(groups) if result.p is not None}.values()
    gains = np.array([result.comparison.gain for result in distinct])

    def by_seed(row: PaperRow, result: ClaimResult) -> list[float]:
        records = groups[result.data, result.schedule][row]
        return [records[seed].metrics[result.claim.metric] for seed in sorted(records)]

    pairs = [(by_seed(result.claim.better, result), by_seed(result.rival, result)) for result in distinct]
    paired = np.array(holm([float(stats.ttest_rel(*pair).pvalue) for pair in pairs]))
    rates = stats.false_discovery_control([result.comparison.p for result in distinct])
    counts = [
        (int((p < 0.05)[gains > 0].sum()), int((p < 0.05)[gains < 0].sum()))
        for p in (np.array([result.p for result in distinct]), paired, rates)
    ]
    (holds, fails), (paired_holds, none), (rate_holds, rate_fails) = counts
    assert none == 0
    assert f"Of today's {len(distinct)} comparisons, {holds} hold and {fails} fails." in protocol()
    assert f"the paired test {paired_holds} would hold and none fail" in protocol()
    assert f"of Holm's, {rate_holds} would hold and {rate_fails} fail" in protocol()


def test_intervals_over_people_are_narrower_than_those_over_seeds() -> None:
    """By the errors of the items, 50 of each of the 40 people. The protocol has the figures."""

    def by_person(label: str) -> np.ndarray:
        paths = sorted((ROOT / "results" / "runs" / "table1" / label).glob("mixed-faces-in60-?.safetensors"))
        assert len(paths) == 3
        return np.stack([read_arrays(path)["per_item_mm"] for path in paths]).reshape(3, 40, 50).mean(axis=2)

    gains = (by_person("monet-m-9") - by_person("aff-monet-m-9")).mean(axis=0)
    over_people = summarize(gains.tolist())
    (over_seeds,) = (
        result.comparison
        for result in judge_all(stored_groups())
        if (result.claim.better.label, result.rival.label, result.data) == ("Aff-MoNet M=9", "MoNet M=9", "mixed-faces")
    )
    assert over_people.mean == pytest.approx(over_seeds.gain, abs=1e-6)
    assert gains.min() > 0
    assert f"gains {over_seeds.gain:.3f} ± {over_seeds.half:.3f} mm over MoNet by its seeds" in protocol()
    assert f"± {over_people.half:.3f} by the 40 people" in protocol()


def test_compared_rows_have_the_same_data() -> None:
    """Each data set has one key, in all records that have one, but for those of rows with other options."""
    keys: dict[str, set[str]] = {}
    for (data, _), of_rows in stored_groups().items():
        records = [record for of_row in of_rows.values() for record in of_row.values()]
        usual = (record for record in records if record.data_key and not record.config["data_options"])
        keys.setdefault(data, set()).update(record.data_key for record in usual)
    for path in (ROOT / "results" / "analysis").glob("baselines-*.json"):
        record = read_analysis(path)
        keys.setdefault(record.settings["data"], set()).add(record.data_key)
    assert {"mixed-faces", "moving-bodies", "superpixels"} <= {data for data, of_data in keys.items() if of_data}
    assert {data: of_data for data, of_data in keys.items() if len(of_data) > 1} == {}


def test_counting_every_rival_changes_no_verdict() -> None:
    """The closest rival is chosen after the runs, so the number of comparisons might be called too small."""
    groups = stored_groups()
    judged = [result for result in judge_all(groups) if result.p is not None]
    one_by_one = [
        judge(
            replace(result.claim, rivals=(rival,)), groups[result.data, result.schedule], result.data, result.schedule
        )
        for result in judged
        for rival in result.claim.rivals
    ]
    chances = {each.key: each.comparison.p for each in one_by_one if each and each.comparison.p is not None}
    corrected = dict(zip(chances, holm(list(chances.values())), strict=True))
    assert all(replace(result, p=corrected[result.key]).verdict == result.verdict for result in judged)
    assert f"Counting every rival makes {len(corrected)} comparisons and changes no verdict." in protocol()
