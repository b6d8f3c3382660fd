"""Runs as folders, and models from them without the data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from geoskip.records import RunRecord, write_record
from geoskip.records.files import add_to_manifest
from geoskip.training.checkpoint import State, save_checkpoint
from geoskip.training.pretrained import save_pretrained
from geoskip.training.run import Run, RunError
from tests.training import sets
from tests.training.runs import perturbed, untrained


@pytest.mark.parametrize("task", sets.TASKS)
def test_a_run_is_opened_with_all_that_was_stored(tmp_path: Path, task: str) -> None:
    made, trained_on = untrained(tmp_path / "run", task)
    run = Run.open(tmp_path / "run")
    assert run.config == made.config
    assert run.weights[1] == 7
    expected = perturbed(trained_on.make_model())
    found = run.model()
    assert not found.training
    assert type(found) is type(expected)
    assert found.state_dict().keys() == expected.state_dict().keys()
    for name, tensor in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name


@pytest.mark.parametrize(
    ("operator", "skip"),
    [
        *((operator, "affine") for operator in ("cheb", "feast", "gcn", "gin", "monet", "spiral", "spline")),
        *(("monet", skip) for skip in ("none", "polynomial")),
    ],
)
def test_every_network_is_rebuilt_without_its_data(tmp_path: Path, operator: str, skip: str) -> None:
    """Hierarchy, spirals and pseudo-coordinates come out of the stored buffers."""
    run, task = untrained(tmp_path, operator=operator, skip=skip)
    expected = perturbed(task.make_model()).eval()
    x = torch.randn(2, 42, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(run.model()(x), expected(x))


def test_degrees_as_pseudo_coordinates(tmp_path: Path) -> None:
    for task in sets.TASKS:
        run, made = untrained(tmp_path / task, task, pseudo="degree")
        assert run.model().state_dict().keys() == made.make_model().state_dict().keys()


def test_the_latest_weights_count(tmp_path: Path) -> None:
    run, task = untrained(tmp_path)
    later, earlier = perturbed(task.make_model(), 2), perturbed(task.make_model(), 3)
    save_checkpoint(run.checkpoints, State(5, earlier.state_dict()))
    assert Run.open(tmp_path).weights[1] == 7
    path = save_checkpoint(run.checkpoints, State(9, later.state_dict()))
    opened = Run.open(tmp_path)
    assert opened.checkpoint == path
    assert opened.weights[1] == 9
    assert_close(dict(opened.model().named_parameters()), dict(later.named_parameters()))
    (tmp_path / "model.safetensors").unlink()
    assert Run.open(tmp_path).weights[1] == 9


def test_the_record_of_a_run_that_ended(tmp_path: Path) -> None:
    run, _ = untrained(tmp_path)
    with pytest.raises(RunError, match="the run is not finished"):
        _ = run.record
    record = RunRecord("MoNet", run.config.to_json(), 0, 1, 2, 3.0, 4.0, "cpu", {}, {"mean_mm": 1.0})
    write_record(tmp_path / "record.json", record)
    assert run.record.metrics == {"mean_mm": 1.0}


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such run"):
        Run.open(tmp_path / "absent")
    with pytest.raises(RunError, match=r"not the folder of a run: it has no config\.json"):
        Run.open(tmp_path)


def test_an_exported_model_is_no_run(tmp_path: Path) -> None:
    save_pretrained(tmp_path / "model", untrained(tmp_path / "run")[0].trained())
    with pytest.raises(RunError, match="an exported model, not a run"):
        Run.open(tmp_path / "model")


@pytest.mark.parametrize("text", ["{", "[]", '{"task": "reconstruction"}', '{"task": "x", "data": "y", "odd": 1}'])
def test_a_configuration_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(RunError, match=r"config\.json: not a configuration"):
        Run.open(tmp_path)


def test_a_run_that_never_began(tmp_path: Path) -> None:
    run = Run.create(tmp_path, sets.config())
    with pytest.raises(RunError, match="no weights"):
        _ = run.weights
    with pytest.raises(RunError, match=r"no context\.safetensors"):
        _ = run.context


@pytest.mark.parametrize("name", ["model.safetensors", "context.safetensors"])
def test_damaged_files_are_named(tmp_path: Path, name: str) -> None:
    untrained(tmp_path)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=f"{name}: damaged"):
        Run.open(tmp_path).model()


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    untrained(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8] + b"\xff" * 8)
    add_to_manifest(tmp_path, ["model.safetensors"])
    with pytest.raises(RunError, match="is not finite: the file is damaged"):
        Run.open(tmp_path).model()


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    run, _ = untrained(tmp_path)
    changed: dict[str, Any] = run.config.to_json()
    changed["kernel_size"] = 5
    (tmp_path / "config.json").write_text(json.dumps(changed))
    add_to_manifest(tmp_path, ["config.json"])
    with pytest.raises(RunError, match="not those of the configured reconstruction model"):
        Run.open(tmp_path).model()


def test_files_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        untrained(tmp_path / name)
    for path in sorted((tmp_path / "one").iterdir()):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name
