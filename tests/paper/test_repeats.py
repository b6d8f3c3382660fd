"""Runs that were made again from the start, on a machine that was started afresh."""

from __future__ import annotations

from pathlib import Path

import pytest

from geoskip.records import read_record

RESULTS = Path(__file__).resolve().parents[2] / "results"
REPEATS = sorted((RESULTS / "repeats").rglob("*.json"))


@pytest.mark.parametrize("path", REPEATS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_run_made_again_is_the_same(path: Path) -> None:
    again, first = read_record(path), read_record(RESULTS / "runs" / path.relative_to(RESULTS / "repeats"))
    assert again.config == first.config
    assert again.seconds != first.seconds, "it is a run of its own"
    assert again.metrics == first.metrics
    assert again.curves == first.curves


def test_there_are_some() -> None:
    assert len(REPEATS) >= 10
