from dataclasses import replace

from geoskip.paper.claims import claim_rows
from geoskip.paper.experiments import EXPERIMENTS
from geoskip.report.runs import ReportRun
from tests.report.made_runs import made_run


def runs(values: dict[str, list[float]]) -> list[ReportRun]:
    table = EXPERIMENTS["table1"]
    return [
        made_run(table.select([row])[0], "faces", seed, metrics={"mean_mm": value})
        for row, found in values.items()
        for seed, value in enumerate(found)
    ]


def test_verdicts_follow_from_the_runs() -> None:
    plain, affine = [0.50, 0.52, 0.51], [0.40, 0.41, 0.405]
    (row,) = claim_rows(runs({"MoNet M=9": plain, "Aff-MoNet M=9": affine}))
    assert (row.claim, row.compared) == ("An affine skip helps", "Aff-MoNet M=9 against MoNet M=9")
    assert (row.data, row.seeds, row.difference, row.verdict) == ("faces, short schedule", 3, "−0.105 mm", "holds")
    (row,) = claim_rows(runs({"MoNet M=9": affine, "Aff-MoNet M=9": plain}))
    assert (row.difference, row.verdict) == ("+0.105 mm", "fails")
    (row,) = claim_rows(runs({"MoNet M=9": [0.5, 0.4], "Aff-MoNet M=9": [0.4, 0.45]}))
    assert row.verdict == "in favor, not significant"
    (row,) = claim_rows(runs({"MoNet M=9": [0.5], "Aff-MoNet M=9": [0.6]}))
    assert (row.p, row.verdict) == (None, "against, one seed")


def test_runs_that_settle_nothing() -> None:
    smoke = [replace(run.record, schedule="smoke") for run in runs({"MoNet M=9": [1.0], "Aff-MoNet M=9": [0.5]})]
    own = [replace(record, experiment="", row="mine", schedule="own") for record in smoke]
    assert claim_rows([ReportRun(record) for record in smoke + own]) == ()


def test_data_sets_are_judged_apart() -> None:
    one = runs({"MoNet M=9": [0.5], "Aff-MoNet M=9": [0.4]})
    other = [ReportRun(replace(r.record, config={**r.record.config, "data": "coma"})) for r in one]
    assert [row.data for row in claim_rows(one + other)] == ["faces, short schedule", "coma, short schedule"]
    assert claim_rows([one[0], other[1]]) == ()
