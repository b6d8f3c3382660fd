"""Checkpoints where the system refuses to write, and where the process is killed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import geoskip
from geoskip.training import checkpoint
from geoskip.training.checkpoint import CheckpointNotSaved, State, load_checkpoint, newest_checkpoint, save_checkpoint
from tests.training.test_checkpoint import assert_same, names, state


class Refusing:
    """The system calls that saving makes, of which the nth fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fail_at: int, code: int) -> None:
        self.calls, self.fail_at, self.code = 0, fail_at, code
        self.log: list[str] = []
        for owner, name in ((Path, "mkdir"), (Path, "write_bytes"), (checkpoint, "sync"), (checkpoint, "rename")):
            monkeypatch.setattr(owner, name, self.wrapped(getattr(owner, name), name))

    def wrapped(self, real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            self.log.append(name)
            if self.calls == self.fail_at:
                if name == "write_bytes":  # a disk fills up in the middle of a file
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                raise OSError(self.code, os.strerror(self.code))
            return real(*arguments, **options)

        return call


REASONS = {
    errno.ENOSPC: "disk is full",
    errno.EROFS: "read-only",
    errno.EACCES: "may not be written",
    errno.EDQUOT: "quota",
    errno.EIO: "the operating system reports an error",
}
# The folder is made, and the one aside; four files are written and synced; that folder is synced and renamed, its
# parent synced.
CALLS = ["mkdir", "mkdir", *["write_bytes", "sync"] * 4, "sync", "rename", "sync"]


def test_the_calls_that_can_fail_are_these(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest comes last, everything is synced before it gets its name, and the name after that."""
    written = Refusing(monkeypatch, fail_at=0, code=0)
    save_checkpoint(tmp_path, state(2))
    assert written.log == CALLS
    assert list(checkpoint._to_files(state(2)))[-1] == "manifest.json"


@pytest.mark.parametrize(
    ("fail_at", "code"), [*((at, errno.ENOSPC) for at in range(1, len(CALLS) + 1)), *((5, code) for code in REASONS)]
)
def test_a_refusal_anywhere_keeps_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail_at: int, code: int
) -> None:
    save_checkpoint(tmp_path, state(1), keep=1)
    with monkeypatch.context() as patched:
        Refusing(patched, fail_at, code)
        with pytest.raises(CheckpointNotSaved, match=REASONS[code]) as told:
            save_checkpoint(tmp_path, state(2), keep=1)
    assert told.value.errno == code
    assert os.strerror(code) in str(told.value)
    assert "step-00000001" in str(told.value) or fail_at == len(CALLS)
    assert_same(load_checkpoint(tmp_path / "step-00000001").model, dict(state(1).model))
    # Only the last sync fails after the rename: the new one is whole then, and stays.
    expected = ["step-00000001"] + ["step-00000002"] * (fail_at == len(CALLS))
    assert names(tmp_path) == expected
    save_checkpoint(tmp_path, state(2), keep=1)
    assert newest_checkpoint(tmp_path) == tmp_path / "step-00000002"


@pytest.mark.parametrize("fail_at", range(1, len(CALLS) + 2))
def test_a_refusal_while_a_step_is_replaced_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail_at: int
) -> None:
    """There is one rename more: the old one is put aside under a name where it would be found."""
    save_checkpoint(tmp_path, State(1, {"x": torch.zeros(2)}), keep=1)
    with monkeypatch.context() as patched:
        Refusing(patched, fail_at, errno.ENOSPC)
        with pytest.raises(CheckpointNotSaved):
            save_checkpoint(tmp_path, State(1, {"x": torch.ones(2)}), keep=1)
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert (load_checkpoint(newest).model["x"] == float(fail_at > len(CALLS))).all()


def test_killed_between_the_two_renames_the_old_one_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, State(1, {"x": torch.zeros(2)}), keep=1)
    (tmp_path / "step-00000001").rename(tmp_path / "step-00000001.old")
    newest = newest_checkpoint(tmp_path)
    assert newest == tmp_path / "step-00000001.old"
    assert (load_checkpoint(newest).model["x"] == 0).all()
    save_checkpoint(tmp_path, State(1, {"x": torch.ones(2)}), keep=1)
    assert names(tmp_path) == ["step-00000001"]


def test_there_may_be_no_older_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Refusing(monkeypatch, 3, errno.ENOSPC)
    with pytest.raises(CheckpointNotSaved, match="there is no older one"):
        save_checkpoint(tmp_path, state(2))
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointNotSaved, match="not saved: the operating system reports an error"):
        save_checkpoint(tmp_path / "file" / "checkpoints", state(1))


def test_an_old_one_that_cannot_be_removed_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    save_checkpoint(tmp_path, state(1), keep=1)
    Refusing(monkeypatch, len(CALLS) + 1, errno.EACCES)
    path = save_checkpoint(tmp_path, state(2), keep=1)
    assert newest_checkpoint(tmp_path) == path
    assert "step-00000001: an old checkpoint that could not be removed" in caplog.text


def test_leftovers_are_cleaned_at_the_next_save(tmp_path: Path) -> None:
    (tmp_path / ".step-00000001.0badcafe").mkdir()
    (tmp_path / ".step-00000001.0badcafe" / "model.safetensors").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("not ours")
    assert newest_checkpoint(tmp_path) is None
    save_checkpoint(tmp_path, state(2))
    assert names(tmp_path) == ["notes.txt", "step-00000002"]


# Children are forked from one process, since to import torch takes longer than many kills.
KILLING = """
import os, random, signal, sys, time, torch
from pathlib import Path
from geoskip.training.checkpoint import State, load_checkpoint, newest_checkpoint, save_checkpoint

folder, kills = Path(sys.argv[1]), int(sys.argv[2])
random.seed(0)

def save_for_ever(step, pipe):
    while True:
        step += 1
        save_checkpoint(folder, State(step, {"x": torch.full((20_000,), float(step))}), keep=1)
        os.write(pipe, step.to_bytes(8, "little"))

step = 0
for _ in range(kills):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        save_for_ever(step, writing)
    os.close(writing)
    told = int.from_bytes(os.read(reading, 8), "little")
    time.sleep(random.uniform(0, 0.02))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while said := os.read(reading, 8):
        told = int.from_bytes(said, "little")
    os.close(reading)
    loaded = load_checkpoint(newest_checkpoint(folder))
    assert loaded.step in (told, told + 1), (loaded.step, told)
    assert (loaded.model["x"] == loaded.step).all()
    print(loaded.step - step)
    step = loaded.step
"""


def test_killed_while_it_saves_in_a_loop(tmp_path: Path) -> None:
    """At random moments; what was called saved is never lost, and what loads is whole."""
    environment = {**os.environ, "PYTHONPATH": str(Path(geoskip.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", KILLING, str(tmp_path), "25"]
    told = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)
    assert told.returncode == 0, told.stderr
    saved = [int(line) for line in told.stdout.split()]
    assert len(saved) == 25
    assert min(saved) >= 1
