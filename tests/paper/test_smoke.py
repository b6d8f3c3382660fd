"""Rows of every experiment, trained for a step or two on tiny data, through the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from geoskip.cli import app
from geoskip.paper.demo_runs import one_thread
from geoskip.paper.experiments import EXPERIMENTS
from geoskip.paper.running import stored_runs

# Of rows that differ in their kernel size, or of variants of several methods, one of each.
CHOSEN = {
    "table1": ["*M=9"],
    "center_ablation": ["*M=9"],
    "spline_supplement": ["*m=2", "*M=8"],
    "superpixel_ablation": ["MoNet (position)*", "Aff-GCN*", "GIN-0*"],
    "correspondence_ablation": ["Aff-FeaStNet*", "GCN*"],
    "gcn_ablation": ["GCN*"],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all experiments, so that rows that they share are trained once."""
    return tmp_path_factory.mktemp("results")


def reproduce(*arguments: str) -> Any:
    with one_thread():
        return CliRunner().invoke(app, ["reproduce", *arguments, "--schedule", "smoke", "--device", "cpu"])


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_rows_run(name: str, results: Path) -> None:
    experiment, chosen = EXPERIMENTS[name], CHOSEN.get(name, [])
    told = reproduce(name, *(word for pattern in chosen for word in ("--rows", pattern)), "-o", str(results))
    assert told.exit_code == 0, told.output
    rows = experiment.select(chosen)
    assert f"{len(rows)} of {len(rows)} done" in told.output
    runs = stored_runs(rows, results)["tiny", "smoke"]
    for row in rows:
        record = runs[row][0]
        assert (record.experiment, record.row, record.name) == (row.home, row.label, row.method)
        assert record.schedule == "smoke"
        assert set(row.metrics) <= set(record.metrics)
        assert record.paper == row.paper
        assert record.steps > 0
    assert bool(experiment.figure) == (results / "figures" / f"{name}-tiny-smoke.png").is_file()


def test_parameters_are_those_of_the_rows(results: Path) -> None:
    """Classifiers do not depend on the size of their data, so they are the paper's down to the last number."""
    experiment = EXPERIMENTS["table2"]
    reproduce("table2", "-o", str(results))
    for row, records in stored_runs(experiment.rows, results)["tiny", "smoke"].items():
        assert records[0].parameters == row.figures["params"]


def test_correspondence_has_its_curve(results: Path) -> None:
    experiment = EXPERIMENTS["correspondence"]
    reproduce("correspondence", "-o", str(results))
    for records in stored_runs(experiment.rows, results)["tiny", "smoke"].values():
        shares = [share for _, share in records[0].curves["geodesic"]]
        assert shares == sorted(shares)
        assert 0 <= shares[0] <= shares[-1] <= 100
