"""Trained models passed on: config.json and model.safetensors, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import geoskip
from geoskip.inference import Matcher, MeshCoder
from geoskip.inference.predictors import verts_of
from geoskip.meshes import icosphere
from geoskip.records import RunRecord, read_record
from geoskip.records.files import add_to_manifest
from geoskip.training.config import Config
from geoskip.training.pretrained import from_pretrained, save_pretrained
from tests.training import sets
from tests.training.runs import untrained

ROOT = Path(geoskip.__file__).parents[2]
PUBLISHED = sorted((ROOT / "results" / "weights").glob("*"))
assert PUBLISHED, "the repository has lost its trained models"


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_published_weights_are_of_a_record(folder: Path) -> None:
    """Of its configuration and its size; that they reach its figures takes the data."""
    trained = from_pretrained(folder)
    configs = {name: Config.from_json(record.config) for name, record in published_records().items()}
    (name,) = [name for name, config in configs.items() if config == trained.config]
    parameters = sum(parameter.numel() for parameter in trained.model.parameters())
    assert parameters == published_records()[name].parameters
    assert sum(file.stat().st_size for file in folder.iterdir()) < 5e6


def published_records() -> dict[str, RunRecord]:
    return {str(path): read_record(path) for path in sorted((ROOT / "results" / "runs").rglob("*.json"))}


@pytest.mark.parametrize("task", sets.TASKS)
def test_all_comes_back(tmp_path: Path, task: str) -> None:
    trained = untrained(tmp_path / "run", task)[0].trained()
    paths = save_pretrained(tmp_path / "model", trained)
    assert sorted(path.name for path in paths) == ["config.json", "model.safetensors"]
    found = from_pretrained(tmp_path / "model")
    assert found.config == trained.config
    assert found.context.facts == trained.context.facts
    assert not found.model.training
    for expected, tensors in (
        (trained.model.state_dict(), found.model.state_dict()),
        (trained.context.constants, found.context.constants),
    ):
        assert tensors.keys() == expected.keys()
        assert all(torch.equal(tensors[name], expected[name]) for name in expected)


def test_a_classifier_without_its_channels_is_refused(tmp_path: Path) -> None:
    """The model has a default, images have not."""
    save_pretrained(tmp_path / "model", untrained(tmp_path / "run", "classification")[0].trained())
    path = tmp_path / "model" / "config.json"
    about = path.read_text()
    changed = about.replace('"in_channels": 1,', "").replace(', "in_channels": 1', "")
    assert changed != about
    path.write_text(changed)
    add_to_manifest(tmp_path / "model", ["config.json"])
    with pytest.raises(ValueError, match=r"model: cannot load the model: context: arguments has no in_channels"):
        from_pretrained(tmp_path / "model")


def test_the_layout_is_that_of_hubs(tmp_path: Path) -> None:
    """Weights under the names of the module, so that any tool that knows safetensors can read them."""
    trained = untrained(tmp_path / "run")[0].trained()
    save_pretrained(tmp_path / "model", trained)
    from safetensors import safe_open

    with safe_open(tmp_path / "model" / "model.safetensors", framework="pt") as file:
        names, metadata = set(file.keys()), file.metadata()
    assert dict(trained.model.named_parameters()).keys() <= names
    assert metadata == {"format": "pt"}
    about = json.loads((tmp_path / "model" / "config.json").read_text())
    assert about["library_name"] == "geoskip"
    assert about["architectures"] == ["MeshAutoencoder"]


def test_a_run_is_no_pretrained_model(tmp_path: Path) -> None:
    untrained(tmp_path)
    with pytest.raises(ValueError, match=r"a run, not a pretrained model; use geoskip\.inference\.load"):
        from_pretrained(tmp_path)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"it has no config\.json; `geoskip export` writes one"):
        from_pretrained(tmp_path)
    save_pretrained(tmp_path, untrained(tmp_path / "run")[0].trained())
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"it has no model\.safetensors"):
        from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"format": 2}, "in format 2, but this version reads format 1"),
        ({"library_name": "transformers"}, "a model of transformers"),
        ({"library_name": None}, "a model of None"),
        ({"config": {"task": "reconstruction"}}, "cannot load the model"),
        ({"facts": None, "config": None}, "cannot load the model"),
    ],
)
def test_a_description_that_does_not_fit(tmp_path: Path, changes: dict[str, Any], fault: str) -> None:
    save_pretrained(tmp_path, untrained(tmp_path / "run")[0].trained())
    about = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(about | changes))
    add_to_manifest(tmp_path, ["config.json"])
    with pytest.raises(ValueError, match=fault):
        from_pretrained(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"format": 1}'])
def test_a_description_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match="not the configuration of a geoskip model"):
        from_pretrained(tmp_path)


def test_damaged_and_foreign_weights(tmp_path: Path) -> None:
    save_pretrained(tmp_path, untrained(tmp_path / "run")[0].trained())
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with pytest.raises(ValueError, match=r"model\.safetensors: damaged"):
        from_pretrained(tmp_path)
    save_pretrained(tmp_path / "other", untrained(tmp_path / "wide", model={"latent": 9})[0].trained())
    path.write_bytes((tmp_path / "other" / "model.safetensors").read_bytes())
    add_to_manifest(tmp_path, ["model.safetensors"])
    with pytest.raises(ValueError, match="cannot load the model: weights: not those of the configured"):
        from_pretrained(tmp_path)


@pytest.mark.parametrize("task", ["reconstruction", "correspondence"])
def test_output_that_is_not_finite_names_the_model(tmp_path: Path, task: str) -> None:
    """Finite but huge weights load; what they compute overflows."""
    trained = untrained(tmp_path / "run", task)[0].trained()
    for parameter in trained.model.parameters():
        parameter.detach().fill_(1e30)
    save_pretrained(tmp_path / "huge-model", trained)
    loaded = from_pretrained(tmp_path / "huge-model")
    mesh = icosphere(1)
    apply = (
        Matcher(loaded).match if task == "correspondence" else lambda mesh: MeshCoder(loaded).encode(verts_of([mesh]))
    )
    with pytest.raises(ValueError, match=r"huge-model: the model's output is not finite; its weights are damaged"):
        apply(mesh)
