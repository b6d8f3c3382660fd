"""What is told while a run goes on."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest

from geoskip.training.loop import train
from geoskip.training.progress import Bar, Silent, choose_progress
from geoskip.training.tasks import make_task
from tests.training import sets


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_bar_tells_step_loss_metric_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "xterm")
    bar = Bar(stream := Terminal())
    bar.start(total=40, done=10)
    bar.began -= 5.0
    bar.update(20, 1, 0.123456, "12.3 mm")
    bar.say("stopped [here]")
    bar.close()
    told = stream.getvalue()
    assert "step 20 of 40, epoch 2, loss 0.1235, 12.3 mm" in told
    assert "2.0 steps/s, 0:10 min left" in told
    assert "stopped [here]" in told, "square brackets are no markup"


def test_bar_does_not_change_a_run(tmp_path: Any) -> None:
    config, told = sets.config(), Bar(Terminal())
    data = sets.data(config.task)
    seen = train(config, tmp_path / "bar", task=make_task(config, data), progress=told)
    quiet = train(config, tmp_path / "none", task=make_task(config, data), progress=Silent())
    assert seen.record.curves == quiet.record.curves
    assert told.bar.tasks, "it was used"


def test_bar_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    assert isinstance(choose_progress(), Bar)
    monkeypatch.setattr("sys.stderr", StringIO())
    assert not isinstance(choose_progress(), Bar)
