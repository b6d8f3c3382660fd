"""The study of GIN-0 with recalibrated batch normalization, on tiny data."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from docs.analyze_recalibration import main, recalibration_curve
from docs.make_tables import recalibration_table

from geoskip.paper.experiments import TABLE2
from geoskip.paper.findings import AnalysisRecord, read_analysis
from geoskip.paper.rows import TINY
from geoskip.paper.running import loaded
from geoskip.training.config import Config, override
from geoskip.training.loop import train
from geoskip.training.tasks import make_task


@pytest.fixture
def config() -> Config:
    (row,) = TABLE2.select(["GIN-0"])
    return override(row.config(TINY, "first3", 0, "cpu"), ["validation=0.5", "test=false", "optim.batch_size=2"])


def test_measuring_leaves_training_as_it_is(config: Config, tmp_path: Path) -> None:
    """Loss by loss, and with both statistics at the end."""
    points = list(recalibration_curve(config))
    assert [point.epoch for point in points] == [1, 2, 3]
    for recalibrate, accuracies in ((False, points[-1].running_pct), (True, points[-1].recalibrated_pct)):
        chosen = override(config, [f"recalibrate={recalibrate}"])
        run = train(chosen, tmp_path / str(recalibrate), task=make_task(chosen, data=loaded(config)))
        assert [point.loss for point in points] == [loss for _, loss in run.record.curves["loss"]]
        assert accuracies == run.record.metrics["validation_accuracy_pct"]


def test_the_statistics_differ(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    means = []

    def accuracy(task: object, model: torch.nn.Module) -> float:
        means.append(model.get_buffer("norms.1.running_mean").clone())
        return 0.0

    monkeypatch.setattr("docs.analyze_recalibration._accuracy", accuracy)
    for _ in recalibration_curve(config):
        running, recalibrated = means[-2:]
        assert not torch.equal(running, recalibrated)


def test_record(tmp_path: Path) -> None:
    words = ["--data", TINY, "--schedule", "first2", "--seeds", "2", "--device", "cpu"]
    main([*words, "-o", str(tmp_path / "recalibration.json")])
    record = read_analysis(tmp_path / "recalibration.json")
    assert [(row["seed"], row["epoch"]) for row in record.rows] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert record.settings["schedule"] == "first2"
    assert record.commit


def test_table() -> None:
    rows = [
        {"seed": seed, "epoch": epoch, "loss": 2.0, "rate": 1e-3, "running_pct": 20.0 + seed, "recalibrated_pct": 40.0}
        for seed in (0, 1)
        for epoch in range(1, 9)
    ]
    settings = {"schedule": "short", "epochs": 8, "items": 12800, "seeds": 2, "coarsening": {}}
    lines = recalibration_table(AnalysisRecord("recalibration", settings, rows, 1.0)).splitlines()
    assert "12,800 training graphs" in lines[0]
    assert "stored coarsenings, 2 seeds" in lines[0]
    assert [line.split(" | ")[0] for line in lines[4:]] == ["| 2", "| 4", "| 6", "| 8"]
    assert lines[4] == "| 2 | 0.001 | 2.000 | 20.5 (20.0 to 21.0) | 40.0 (40.0 to 40.0) |"
