"""The display of a run in progress."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest

from geoskip.training.loop import train
from geoskip.training.progress import Bar, Progress, choose_progress
from geoskip.training.tasks import make_task
from tests.training import sets


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files pass for terminals."""
    for name, value in {"COLUMNS": "160", "TERM": "xterm", "FORCE_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("_terminal")
def test_bar_shows_step_loss_metric_and_time(tmp_path: Path) -> None:
    with (tmp_path / "shown").open("w+") as stream:
        bar = Bar(stream)
        bar.start(total=40, done=10)
        bar.began -= 5.0
        bar.update(20, 1, 0.123456, "12.3 mm")
        bar.message("stopped [here]")
        bar.close()
    shown = (tmp_path / "shown").read_text()
    assert "step 20 of 40, epoch 2, loss 0.1235, 12.3 mm" in shown
    assert "2.0 steps/s, 0:10 min left" in shown
    assert "stopped [here]" in shown, "square brackets are no markup"


@pytest.mark.usefixtures("_terminal")
def test_bar_does_not_change_a_run(tmp_path: Path) -> None:
    config = sets.config()
    data = sets.data(config.task)
    with (tmp_path / "shown").open("w+") as stream:
        bar = Bar(stream)
        seen = train(config, tmp_path / "bar", task=make_task(config, data), progress=bar)
    quiet = train(config, tmp_path / "none", task=make_task(config, data), progress=Progress())
    assert seen.record.curves == quiet.record.curves
    assert "epoch" in (tmp_path / "shown").read_text()


def test_bar_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    assert isinstance(choose_progress(), Bar)
    monkeypatch.setattr("sys.stderr", StringIO())
    assert not isinstance(choose_progress(), Bar)
