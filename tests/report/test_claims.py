from dataclasses import replace

from geoskip.experiments.registry import EXPERIMENTS
from geoskip.report.claims import ClaimRow, claims_table
from geoskip.report.runs import ReportRun
from geoskip.report.verdicts import claim_rows
from tests.report.made_runs import made_run

ROW = ClaimRow("It helps", "A against B", "faces", 3, "+0.1 mm", 0.0004, "holds")


def runs(values: dict[str, list[float]]) -> list[ReportRun]:
    table = EXPERIMENTS["table1"]
    return [
        made_run(table.select([row])[0], "faces", seed, metrics={"mean_mm": value})
        for row, found in values.items()
        for seed, value in enumerate(found)
    ]


def test_every_claim_is_a_row_with_its_verdict() -> None:
    rows = [
        ROW,
        replace(ROW, claim="It fails", p=0.02, verdict="fails"),
        replace(ROW, claim="?", p=None, verdict="odd"),
    ]
    table = claims_table(rows)
    assert table.count("<tr>") == 1 + len(rows)
    assert 'class="verdict yes">holds' in table
    assert 'class="verdict no">fails' in table
    assert 'class="verdict open">odd' in table
    assert "&lt; 0.001" in table
    assert "0.020" in table
    assert table.count("count as held") == 1


def test_comparisons_of_one_claim_are_counted() -> None:
    rows = [ROW, replace(ROW, compared="C against D", verdict="open"), replace(ROW, data="coma", verdict="fails")]
    table = claims_table(rows)
    assert table.count("<table") == 2
    assert "All 3 comparisons" in table
    assert table.index("README and docs/results.md count as held") < table.index("<table")
    assert table.index("<details>") < table.index("C against D")


def test_words_are_text() -> None:
    table = claims_table([replace(ROW, claim="<b>", compared="<i>", data="<u>", difference="<s>", verdict="<a>")])
    for tag in ("<b>", "<u>", "<s>", "<a>"):
        assert tag not in table


def test_verdicts_follow_from_the_runs() -> None:
    plain, affine = [0.50, 0.52, 0.51], [0.40, 0.41, 0.405]
    (row,) = claim_rows(runs({"MoNet M=9": plain, "Aff-MoNet M=9": affine}))
    assert (row.claim, row.compared) == ("An affine skip helps", "Aff-MoNet M=9 against MoNet M=9")
    assert (row.data, row.seeds, row.difference, row.verdict) == ("faces, short schedule", 3, "+0.105 mm", "holds")
    (row,) = claim_rows(runs({"MoNet M=9": affine, "Aff-MoNet M=9": plain}))
    assert (row.difference, row.verdict) == ("−0.105 mm", "fails")
    (row,) = claim_rows(runs({"MoNet M=9": [0.5, 0.4], "Aff-MoNet M=9": [0.4, 0.45]}))
    assert row.verdict == "for it, not significant"
    (row,) = claim_rows(runs({"MoNet M=9": [0.5], "Aff-MoNet M=9": [0.6]}))
    assert (row.p, row.verdict) == (None, "against it, one seed")


def test_runs_that_settle_nothing() -> None:
    smoke = [replace(run.record, schedule="smoke") for run in runs({"MoNet M=9": [1.0], "Aff-MoNet M=9": [0.5]})]
    own = [replace(record, experiment="", row="mine", schedule="own") for record in smoke]
    assert claim_rows([ReportRun(record) for record in smoke + own]) == ()


def test_data_sets_are_judged_apart() -> None:
    one = runs({"MoNet M=9": [0.5], "Aff-MoNet M=9": [0.4]})
    other = [ReportRun(replace(r.record, config={**r.record.config, "data": "coma"})) for r in one]
    assert [row.data for row in claim_rows(one + other)] == ["faces, short schedule", "coma, short schedule"]
    assert claim_rows([one[0], other[1]]) == ()
