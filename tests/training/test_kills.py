"""A run that is killed or interrupted, again and again, ends with bitwise the weights of one that is not."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from geoskip.training.progress import read_metrics
from geoskip.training.run import METRICS, Run
from geoskip.training.signals import Interrupts
from tests.training import sets
from tests.training.children import start

KILLS = 20


def finished(config: Any, folder: Path) -> Run:
    process, ready = start(config, folder)
    process.join(120)
    assert ready.is_set()
    assert process.exitcode == 0
    return Run.open(folder)


def same(one: Run, other: Run) -> bool:
    ours, theirs = one.weights[0], other.weights[0]
    assert ours.keys() == theirs.keys()
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_twenty_kills_leave_no_trace(tmp_path: Path) -> None:
    config = sets.config(checkpoint_every=2, optim={"epochs": 20})
    process, ready = start(config, tmp_path / "whole")
    assert ready.wait(60)
    # Without the start of the process, which takes longest the first time.
    began = time.monotonic()
    process.join(120)
    seconds, moments = time.monotonic() - began, random.Random(0)
    whole = Run.open(tmp_path / "whole")
    for _ in range(KILLS):
        process, ready = start(config, tmp_path / "killed")
        assert ready.wait(60)
        # So short that a run cannot be done before the last of them.
        time.sleep(moments.uniform(0, seconds / KILLS))
        process.kill()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
    killed = finished(config, tmp_path / "killed")
    assert same(whole, killed)
    assert killed.record.curves["loss"] == whole.record.curves["loss"]
    losses = [
        [line["loss"] for line in read_metrics(run.folder / METRICS) if "loss" in line] for run in (whole, killed)
    ]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 20


not_under_nohup = pytest.mark.skipif(
    signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, reason="SIGHUP is ignored here, as under nohup"
)


@pytest.mark.parametrize(
    ("number", "code"),
    [pytest.param(signal.SIGHUP, 129, marks=not_under_nohup), (signal.SIGINT, 130), (signal.SIGTERM, 143)],
)
def test_signals_end_with_a_checkpoint_and_a_code_of_their_own(tmp_path: Path, number: int, code: int) -> None:
    config = sets.config(optim={"epochs": 4000})
    process, ready = start(config, tmp_path / "run")
    assert ready.wait(60)
    while not read_metrics(tmp_path / "run" / METRICS):
        time.sleep(0.02)
    assert process.pid is not None
    os.kill(process.pid, number)
    process.join(60)
    assert process.exitcode == code
    run = Run.open(tmp_path / "run")
    assert run.checkpoint is not None
    assert not (run.folder / "record.json").exists()


@not_under_nohup
def test_a_terminal_that_closes_ends_with_a_checkpoint(tmp_path: Path) -> None:
    """The system sends SIGHUP then, and nothing can be printed any more."""
    terminal, inside = os.openpty()
    config = sets.config(optim={"epochs": 4000})
    process, ready = start(config, tmp_path / "run", terminal=os.ttyname(inside))
    assert ready.wait(60)
    while not read_metrics(tmp_path / "run" / METRICS):
        time.sleep(0.02)
    os.close(inside)
    os.close(terminal)
    process.join(60)
    assert process.exitcode == 129
    assert Run.open(tmp_path / "run").checkpoint is not None


def test_hangups_that_are_ignored_stay_so() -> None:
    """``nohup geoskip train`` outlives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGHUP)
        assert interrupts.number is None
    finally:
        signal.signal(signal.SIGHUP, before)
