"""Checkpoints: what comes back, what is kept, and what damage does."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import geoskip
from geoskip.training import checkpoint
from geoskip.training.checkpoint import (
    CheckpointError,
    State,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
)

FILES = ["manifest.json", "model.safetensors", "optimizer.safetensors", "state.json"]


def state(step: int) -> State:
    """Different at each step, with everything that a training loop would keep."""
    torch.manual_seed(step)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 / 3, weight_decay=1e-4)
    model(torch.randn(5, 3)).square().sum().backward()
    optimizer.step()
    random = {"cpu": torch.get_rng_state()}
    progress = {"random": random, "sampler": {"epoch": 2, "order": torch.randperm(7)}, "losses": [(0, 0.1), (1, 1 / 3)]}
    return State(step, model.state_dict(), optimizer.state_dict(), progress)


def assert_same(found: Any, expected: Any) -> None:
    """The same types, keys and bits, all the way down."""
    assert type(found) is type(expected) or isinstance(found, dict)
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)
    elif isinstance(expected, dict):
        assert set(found) == set(expected)
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert found == expected


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_everything_comes_back_bit_for_bit(tmp_path: Path) -> None:
    saved = state(12)
    path = save_checkpoint(tmp_path / "run" / "checkpoints", saved)
    assert path == tmp_path / "run" / "checkpoints" / "step-00000012"
    assert names(path) == FILES
    loaded = load_checkpoint(path)
    assert loaded.step == 12
    for part in ("model", "optimizer", "progress"):
        assert_same(dict(getattr(loaded, part)), dict(getattr(saved, part)))


def test_the_optimizer_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        model(torch.ones(2, 3)).square().sum().backward()
        optimizer.step()

    torch.manual_seed(0)
    model = nn.Linear(3, 4)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    step(model, optimizer)
    path = save_checkpoint(tmp_path, State(1, model.state_dict(), optimizer.state_dict()))
    step(model, optimizer)
    other = nn.Linear(3, 4)
    resumed = torch.optim.Adam(other.parameters(), 0.5)
    loaded = load_checkpoint(path)
    other.load_state_dict(loaded.model)
    resumed.load_state_dict(dict(loaded.optimizer))
    step(other, resumed)
    assert torch.equal(model.weight, other.weight)


def test_tensors_that_share_memory_or_are_transposed_are_stored_as_they_look(tmp_path: Path) -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    saved = State(
        1, {"whole": whole, "row": whole[1], "turned": whole.t(), "none": whole[:0], "one": torch.tensor(3.0)}
    )
    assert_same(load_checkpoint(save_checkpoint(tmp_path, saved)).model, dict(saved.model))


def test_no_pickle(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, state(1))
    for file in path.iterdir():
        data = file.read_bytes()
        if file.suffix == ".json":
            json.loads(data)
        else:
            header = int.from_bytes(data[:8], "little")
            json.loads(data[8 : 8 + header])


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3, 10):
        save_checkpoint(tmp_path, state(step), keep=2)
    assert names(tmp_path) == ["step-00000003", "step-00000010"]
    save_checkpoint(tmp_path, state(11), keep=1)
    assert names(tmp_path) == ["step-00000011"]


def test_steps_are_numbers_even_beyond_eight_digits(tmp_path: Path) -> None:
    for step in (99_999_999, 100_000_000):
        save_checkpoint(tmp_path, state(step))
    assert newest_checkpoint(tmp_path) == tmp_path / "step-100000000"


def test_a_history_that_was_given_up_does_not_come_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, state(step), keep=5)
    save_checkpoint(tmp_path, state(2), keep=5)
    assert names(tmp_path) == ["step-00000001", "step-00000002"]
    assert "step-00000003" in caplog.text


def test_a_step_saved_twice_is_replaced(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, State(1, {"x": torch.zeros(2)}))
    path = save_checkpoint(tmp_path, State(1, {"x": torch.ones(2)}))
    assert names(tmp_path) == ["step-00000001"]
    assert torch.equal(load_checkpoint(path).model["x"], torch.ones(2))


def test_a_folder_that_is_no_checkpoint(tmp_path: Path) -> None:
    """The folder of a run, for example, which has weights and a manifest, too."""
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="there is no such checkpoint; name a folder step-"):
        load_checkpoint(tmp_path)


def test_where_there_is_nothing(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path / "absent") is None
    assert newest_checkpoint(tmp_path) is None
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        load_checkpoint(tmp_path / "step-00000001")


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "flipped at the start": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "flipped in the middle": lambda data: (
        data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
    ),
    "flipped at the end": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "longer": lambda data: data + b"\0",
}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", [*DAMAGE, "absent"])
def test_a_damaged_one_is_skipped_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, file: str, damage: str
) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, state(step))
    hurt = tmp_path / "step-00000002" / file
    if damage == "absent":
        hurt.unlink()
    else:
        hurt.write_bytes(DAMAGE[damage](hurt.read_bytes()))
    with caplog.at_level(logging.WARNING):
        assert newest_checkpoint(tmp_path) == tmp_path / "step-00000001"
    assert "step-00000002" in caplog.text
    assert file in caplog.text
    with pytest.raises(CheckpointError, match=f"step-00000002: {file}"):
        load_checkpoint(tmp_path / "step-00000002")


@pytest.mark.parametrize("text", ["[]", '{"sha256": 3}', '"sha256"', "null"])
def test_a_manifest_that_is_other_json_is_damage(tmp_path: Path, text: str) -> None:
    path = save_checkpoint(tmp_path, state(1))
    (path / "manifest.json").write_text(text)
    assert newest_checkpoint(tmp_path) is None


def test_every_flipped_byte_of_a_manifest_is_seen(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, State(1, {"x": torch.zeros(1)})) / "manifest.json"
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        found = newest_checkpoint(tmp_path)
        # White space between the entries is nobody's content.
        assert found is None or json.loads(path.read_bytes()) == json.loads(whole), place


def test_after_damage_the_next_one_saved_is_the_newest(tmp_path: Path) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, state(step))
    (tmp_path / "step-00000002" / "model.safetensors").write_bytes(b"")
    (tmp_path / "step-00000009").mkdir()
    save_checkpoint(tmp_path, state(2), keep=1)
    assert newest_checkpoint(tmp_path) == tmp_path / "step-00000002"
    assert names(tmp_path) == ["step-00000002"]


def test_another_format_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, state(1))
    monkeypatch.setattr(checkpoint, "FORMAT", 7)
    path = save_checkpoint(tmp_path, state(2))
    monkeypatch.undo()
    for attempt in (lambda: newest_checkpoint(tmp_path), lambda: load_checkpoint(path)):
        with pytest.raises(
            CheckpointError, match=rf"format 7.*reads format 1.*resume with geoskip {geoskip.__version__}"
        ):
            attempt()


def test_what_may_not_be_read_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, state(1))

    def refuse(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(PermissionError, match=r"manifest\.json"):
        newest_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"loss": float("nan")}, "progress.loss"),
        ({"a": [1, {"b": object()}]}, "progress.a.1.b"),
        ({"a": {1: 2, "b": 3}}, "progress.a: keys"),
        ({"$tensor": 3}, "progress: keys"),
    ],
)
def test_what_cannot_be_stored_is_named_and_nothing_is_touched(tmp_path: Path, value: Any, named: str) -> None:
    save_checkpoint(tmp_path, state(1), keep=1)
    with pytest.raises(ValueError, match=named):
        save_checkpoint(tmp_path, State(2, {}, {}, value), keep=1)
    assert names(tmp_path) == ["step-00000001"]
