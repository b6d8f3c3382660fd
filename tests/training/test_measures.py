"""Looks at the test items on the way: they are told and kept, and training does not notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from geoskip.training.config import Config
from geoskip.training.loop import train
from geoskip.training.progress import Lines, read_metrics
from geoskip.training.run import METRICS, Run
from geoskip.training.tasks import make_task
from tests.training import sets


def run(config: Config, folder: Path, **options: Any) -> Run:
    return train(config, folder, task=make_task(config, sets.data(config.task)), **options)


def weights(run: Run) -> dict[str, torch.Tensor]:
    return run.trained().model.state_dict()


@pytest.mark.parametrize("task", sets.TASKS)
def test_training_does_not_notice(tmp_path: Path, task: str) -> None:
    """Dropout and batch normalisation included."""
    chosen = {"operator": "gin"} if task == "classification" else {}
    plain = run(sets.config(task, **chosen), tmp_path / "plain")
    looked = run(sets.config(task, **chosen, evaluate_every=1), tmp_path / "looked")
    expected, found = weights(plain), weights(looked)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert looked.record.metrics == plain.record.metrics
    assert looked.record.curves["loss"] == plain.record.curves["loss"]


def test_figures_are_kept_for_every_look(tmp_path: Path) -> None:
    record = run(sets.config(evaluate_every=2, optim={"epochs": 5}), tmp_path).record
    assert [epoch for epoch, _ in record.curves["mean_mm"]] == [2.0, 4.0]
    assert record.curves.keys() == {"loss", *record.metrics}
    lines = [line for line in read_metrics(tmp_path / METRICS) if "mean_mm" in line]
    assert [line["step"] for line in lines] == [6, 12, 15]
    assert lines[0]["mean_mm"] == record.curves["mean_mm"][0][1]
    assert lines[2]["mean_mm"] == record.metrics["mean_mm"]


def test_the_figure_is_that_of_a_run_that_ended_there(tmp_path: Path) -> None:
    short = run(sets.config(optim={"epochs": 2}), tmp_path / "short").record
    long = run(sets.config(evaluate_every=2, optim={"epochs": 4}), tmp_path / "long").record
    assert long.curves["mean_mm"] == [(2.0, short.metrics["mean_mm"])]


def test_a_run_of_before_goes_on(tmp_path: Path) -> None:
    """A checkpoint that knows nothing of looks, and a command that now asks for them."""
    run(sets.config(optim={"epochs": 5}), tmp_path, stop_after=3)
    record = run(sets.config(evaluate_every=1, optim={"epochs": 5}), tmp_path).record
    assert [epoch for epoch, _ in record.curves["mean_mm"]] == [2.0, 3.0, 4.0]


def test_the_figure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Lines, "first_seconds", 0.0)
    monkeypatch.setattr(Lines, "seconds", 0.0)
    record = run(sets.config(evaluate_every=1), tmp_path, progress=Lines()).record
    first = record.curves["mean_mm"][0][1]
    lines = capsys.readouterr().err.splitlines()
    assert "mean_mm" not in lines[0]
    assert f", mean_mm {first:.4g}, " in lines[4]


def test_without_test_items_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    config = sets.config(evaluate_every=1)
    task = make_task(config, sets.meshes(num_test=0))
    assert train(config, tmp_path, task=task).record.curves.keys() == {"loss"}
