"""Damaged runs and exports: one flipped bit in any file is found, and no index out of a file goes unchecked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from geoskip.records.files import add_to_manifest, write_with_checksum
from geoskip.report.runs import find_runs
from geoskip.training.evaluation import evaluate_run
from geoskip.training.loop import train
from geoskip.training.pretrained import from_pretrained, load, save_pretrained
from geoskip.training.run import Run
from geoskip.training.tasks import make_task
from geoskip.training.trained import Context, context_bytes
from tests.training import sets
from tests.training.runs import untrained


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a finished run, by their paths in it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    config = sets.config(optim={"epochs": 1})
    run = train(config, folder, task=make_task(config, sets.data("reconstruction")))
    evaluate_run(run, data=sets.data("reconstruction"))
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def restored(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def flip(path: Path, random: np.random.Generator) -> None:
    data = bytearray(path.read_bytes())
    data[random.integers(len(data))] ^= 1 << int(random.integers(8))
    path.write_bytes(data)


LISTED = ("config", "context", "evaluation", "items", "manifest", "metrics", "model", "record", "samples")


def test_a_flipped_bit_in_any_file_of_a_run_is_found(tmp_path: Path, finished: dict[str, bytes]) -> None:
    names = sorted(name for name in finished if "/" not in name and not name.startswith("."))
    assert [Path(name).stem for name in names] == sorted(LISTED)
    random = np.random.default_rng(0)
    for name in names:
        for _ in range(5):
            restored(tmp_path, finished)
            flip(tmp_path / name, random)
            with pytest.raises(ValueError, match=f"{name}: damaged"):
                Run.open(tmp_path)
            with pytest.raises(ValueError, match=f"{name}: damaged"):
                load(tmp_path)


def test_a_flipped_bit_in_any_file_of_an_export_is_found(tmp_path: Path, finished: dict[str, bytes]) -> None:
    save_pretrained(tmp_path / "model", load(restored(tmp_path / "run", finished)))
    whole, random = contents(tmp_path / "model"), np.random.default_rng(0)
    assert sorted(whole) == ["config.json", "manifest.json", "model.safetensors"]
    for name in whole:
        for _ in range(5):
            restored(tmp_path / "model", whole)
            flip(tmp_path / "model" / name, random)
            with pytest.raises(ValueError, match=f"{name}: damaged"):
                from_pretrained(tmp_path / "model")


def test_an_export_without_checksums_is_refused(tmp_path: Path) -> None:
    save_pretrained(tmp_path / "model", untrained(tmp_path / "run")[0].trained())
    (tmp_path / "model" / "manifest.json").unlink()
    with pytest.raises(ValueError, match=r"has no checksum in manifest\.json; export the model again"):
        from_pretrained(tmp_path / "model")


def test_weights_without_a_checksum_are_not_used(tmp_path: Path, finished: dict[str, bytes]) -> None:
    """Those of a run that was cut off while it ended, or of an older version; the last checkpoint has its own."""
    run = restored(tmp_path / "run", finished)
    (run / "manifest.json").unlink()
    flip(run / "model.safetensors", np.random.default_rng(1))
    whole = load(restored(tmp_path / "whole", finished)).model.state_dict()
    found = load(run).model.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in whole.items())
    without = {name: data for name, data in finished.items() if not name.startswith(("checkpoints", "manifest"))}
    with pytest.raises(ValueError, match=r"neither an undamaged checkpoint nor a complete model\.safetensors"):
        load(restored(tmp_path / "old", without))


def test_training_again_repairs_a_finished_run(tmp_path: Path, finished: dict[str, bytes]) -> None:
    """From its last checkpoint, if it has one."""
    config = sets.config(optim={"epochs": 1})
    task = make_task(config, sets.data("reconstruction"))
    restored(tmp_path / "a", finished)
    for name in ("record.json", "model.safetensors"):
        flip(tmp_path / "a" / name, np.random.default_rng(2))
        train(config, tmp_path / "a", task=task)
        assert contents(tmp_path / "a")["model.safetensors"] == finished["model.safetensors"]
        assert Run.open(tmp_path / "a").record.metrics
    restored(tmp_path / "b", {name: data for name, data in finished.items() if "checkpoints" not in name})
    flip(tmp_path / "b" / "model.safetensors", np.random.default_rng(2))
    with pytest.raises(ValueError, match=r"model\.safetensors: damaged"):
        train(config, tmp_path / "b", task=task)


def test_a_run_that_goes_on_is_not_complete_any_more(tmp_path: Path, finished: dict[str, bytes]) -> None:
    config = sets.config(optim={"epochs": 3})
    restored(tmp_path, finished)
    train(config, tmp_path, task=make_task(config, sets.data("reconstruction")), stop_after=1)
    opened = Run.open(tmp_path)
    assert opened.weights[1] == 4
    assert opened.trained().context.facts["unit_mm"] == 100.0


def test_the_report_names_damaged_samples_and_records(tmp_path: Path, finished: dict[str, bytes]) -> None:
    restored(tmp_path, finished)
    flip(tmp_path / "samples.safetensors", np.random.default_rng(0))
    (problem,) = find_runs([tmp_path]).problems
    assert "samples.safetensors: damaged" in problem
    copied = tmp_path / "copies" / "a.json"
    copied.parent.mkdir()
    copied.write_bytes(finished["record.json"].replace(b'"seconds": ', b'"seconds": 9'))
    with pytest.raises(ValueError, match=r"a\.json: damaged: it does not match its own checksum"):
        find_runs([copied])


CASES = [("reconstruction", "monet"), ("reconstruction", "spiral")]


@pytest.mark.parametrize(("task", "operator"), CASES)
def test_a_changed_index_is_refused(tmp_path: Path, task: str, operator: str) -> None:
    """Whatever the checksums say: the kernels read memory at these places."""
    untrained(tmp_path, task, operator=operator)
    path = tmp_path / "model.safetensors"
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    weights = load_file(path)
    indices = [name for name, tensor in weights.items() if not tensor.is_floating_point()]
    assert len(indices) > 20
    random = np.random.default_rng(0)
    for name in indices:
        changed = weights[name].clone().view(-1)
        place = int(random.integers(len(changed)))
        # In range for some, and yet not the edges that were stored.
        before = int(changed[place])
        changed[place] = int(random.choice([before + 10_000, -5, 2**40, before + 1]))
        if "spirals" in name:
            changed[place] = 2**40
        save_file(weights | {name: changed.view(weights[name].shape)}, path, metadata)
        add_to_manifest(tmp_path, ["model.safetensors"])
        with pytest.raises(ValueError, match="not those of the configured"):
            Run.open(tmp_path).trained()


def test_a_configuration_cannot_ask_for_more_than_the_weights_have(tmp_path: Path) -> None:
    """The model is compared with the weights before there is memory for it."""
    save_pretrained(tmp_path, untrained(tmp_path / "run")[0].trained())
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('"latent": 3', '"latent": 4000000000'))
    add_to_manifest(tmp_path, ["config.json"])
    with pytest.raises(ValueError, match="cannot load the model"):
        from_pretrained(tmp_path)


class AnyContext(Context):
    """Stores what it is given, right or wrong."""

    constants: Any = None
    facts: Any = None

    def __init__(self, constants: dict[str, torch.Tensor], facts: dict[str, object]) -> None:
        vars(self).update(constants=constants, facts=facts)


@pytest.mark.parametrize(
    ("constants", "facts", "fault"),
    [
        ({"mean": torch.zeros(5, 3)}, {}, "faces|deviation|vertices"),
        ({"faces": torch.tensor([[0, 1, 99]])}, {}, "99"),
        ({"faces": torch.zeros(4, 3)}, {}, "faces must be a tensor of torch.int64"),
        ({"deviation": torch.zeros(42, 3)}, {}, "deviation must be positive"),
        ({"mean": torch.full((42, 3), torch.nan)}, {}, "mean is not finite"),
        ({}, {"unit_mm": "1"}, "unit_mm: expected a number"),
        ({}, {"unit_mm": 0}, "unit_mm must be positive"),
    ],
)
def test_a_context_that_does_not_fit(
    tmp_path: Path, constants: dict[str, torch.Tensor], facts: dict[str, object], fault: str
) -> None:
    trained = untrained(tmp_path / "run")[0].trained()
    context = AnyContext({**trained.context.constants, **constants}, {**trained.context.facts, **facts})
    save_pretrained(tmp_path / "model", replace(trained, context=context))
    with pytest.raises(ValueError, match=rf"model: .*({fault})"):
        from_pretrained(tmp_path / "model")
    write_with_checksum(tmp_path / "run" / "context.safetensors", context_bytes(context))
    with pytest.raises(ValueError, match=rf"run.*: .*({fault})"):
        load(tmp_path / "run")
