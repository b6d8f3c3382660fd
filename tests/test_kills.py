"""A short version of ``make kills``; and its checks are seen to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kills import STAGES, differences, incomplete, kill_stage


@pytest.mark.parametrize("stage", STAGES)
def test_kills_lose_nothing_and_leave_nothing_behind(stage: str, tmp_path: Path) -> None:
    outcome = kill_stage(STAGES[stage], 3, tmp_path / "kills")
    assert outcome.failures == []
    assert outcome.kills == 3
    assert outcome.completed >= 1


def test_what_is_lost_left_behind_or_changed_is_seen() -> None:
    found = differences({"a": 1, "b": 1, "c": 1}, {"b": 1, "c": 2, ".d": 1})
    assert list(found) == [".d is left behind", "a is lost", "c is not what it is without kills"]


@pytest.mark.parametrize("name", ["a.json", "a.safetensors", "a.ply", "a.png", "a.pt2"])
def test_half_a_file_is_seen(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"half")
    assert [name in fault for fault in incomplete(tmp_path)] == [True]
    (tmp_path / name).rename(tmp_path / f".{name}")
    assert list(incomplete(tmp_path)) == []
