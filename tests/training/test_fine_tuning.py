"""Training that starts from the weights of another model."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from geoskip.data import GraphSet
from geoskip.graphs import Hierarchy, record_from_buffers
from geoskip.inference import from_pretrained, save_pretrained
from geoskip.training import evaluate_run, override, train
from geoskip.training.run import Run, RunError
from geoskip.training.tasks import make_task
from tests.training import sets
from tests.training.runs import untrained


def tune(folder: Path, source: Path, data: Any = None, **given: Any) -> Run:
    """A run from the weights of ``source``; by default too short to change them, since its learning rate is tiny."""
    task = given.pop("task", "reconstruction")
    stop_after = given.pop("stop_after", None)
    optim = {"epochs": 1, "lr": 1e-30, **given.pop("optim", {})}
    config = sets.config(task, init_from=str(source), optim=optim, **given)
    made = make_task(config, sets.data(task) if data is None else data)
    return train(config, folder, task=made, stop_after=stop_after)


@pytest.mark.parametrize("task", sets.TASKS)
@pytest.mark.parametrize("exported", [False, True], ids=["run", "export"])
def test_training_starts_from_the_weights(task: str, exported: bool, tmp_path: Path) -> None:
    source, _ = untrained(tmp_path / "source", task, skip="affine", seed=1)
    if exported:
        save_pretrained(tmp_path / "model", source.trained())
    folder = tmp_path / ("model" if exported else "source")
    run = tune(tmp_path / "run", folder, task=task, skip="affine")
    expected = source.weights[0]
    assert run.weights[0].keys() == expected.keys()
    for name, tensor in run.weights[0].items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=0)
    assert run.record.config["init_from"] == str(folder)
    assert run.record.config["init_sha256"] == source.weights_sha256


def test_an_export_does_not_name_folders_of_this_machine(tmp_path: Path) -> None:
    untrained(tmp_path / "source", seed=1)
    save_pretrained(tmp_path / "model", tune(tmp_path / "run", tmp_path / "source").trained())
    assert from_pretrained(tmp_path / "model").config.init_from == "source"
    assert str(tmp_path) not in (tmp_path / "model" / "config.json").read_text()


def test_a_longer_run_resumes_as_it_would_have_gone_on(tmp_path: Path) -> None:
    """Also after the model that it started from was removed or moved."""
    untrained(tmp_path / "source", seed=1)
    chosen = {"optim": {"lr": 0.01, "epochs": 2}}
    whole = tune(tmp_path / "whole", tmp_path / "source", **chosen)
    tune(tmp_path / "run", tmp_path / "source", stop_after=1, **chosen)
    (tmp_path / "source").rename(tmp_path / "moved")
    tune(tmp_path / "run", tmp_path / "source", stop_after=1, **chosen)
    resumed = tune(tmp_path / "run", tmp_path / "moved", **chosen)
    assert resumed.weights_sha256 == whole.weights_sha256 != Run.open(tmp_path / "moved").weights_sha256


def test_a_changed_model_is_noticed(tmp_path: Path) -> None:
    source, task = untrained(tmp_path / "source", seed=1)
    tune(tmp_path / "run", source.folder)
    source.write_model(task.make_model(), step=8)
    with pytest.raises(RunError, match=r"init_from: .*run was started with the weights of .*, not those that it has"):
        tune(tmp_path / "run", source.folder)
    config = sets.config(optim={"epochs": 1, "lr": 1e-30})
    task = make_task(config, sets.meshes())
    with pytest.raises(RunError, match=r"was started with the weights of .*source, not new weights"):
        train(config, tmp_path / "run", task=task)


def test_a_fine_tuned_model_is_fine_tuned_again(tmp_path: Path) -> None:
    """Its configuration, which has the checksum of other weights, is the start of the new one."""
    untrained(tmp_path / "source", seed=1)
    first = tune(tmp_path / "first", tmp_path / "source", optim={"lr": 0.01})
    config = override(first.config, [f"init_from={tmp_path / 'first'}"])
    second = train(config, tmp_path / "second", task=make_task(config, sets.meshes()))
    assert second.record.config["init_sha256"] == first.weights_sha256


def test_the_levels_are_those_of_the_model(tmp_path: Path) -> None:
    """Meshes of the same connectivity, but of another shape, would be decimated otherwise, and the weights belong to
    the vertices that are kept."""
    source, _ = untrained(tmp_path / "source", seed=1)
    own = sets.meshes(seed=1)
    stretch = torch.tensor([1.0, 3.0, 0.4]).double().numpy()
    data = replace(own, template=own.template.with_verts(own.template.verts * stretch))
    config = sets.config(init_from=str(tmp_path / "source"))
    assert not _same_levels(make_task(config, data).make_model().state_dict(), source.weights[0])
    run = tune(tmp_path / "run", tmp_path / "source", data)
    assert _same_levels(run.weights[0], source.weights[0])
    run = tune(tmp_path / "run", tmp_path / "source", data, optim={"epochs": 2})
    assert _same_levels(run.weights[0], source.weights[0])
    shutil.rmtree(tmp_path / "source")
    evaluated = evaluate_run(run, data=data)
    assert evaluated.evaluation.metrics == run.record.metrics


def _same_levels(one: Any, other: Any) -> bool:
    first, second = (record_from_buffers(Hierarchy, weights, "hierarchy.") for weights in (one, other))
    return all(
        torch.equal(ours.pattern.senders, theirs.pattern.senders)
        for ours, theirs in zip(first.levels, second.levels, strict=True)
    )


def three_classes() -> GraphSet:
    graphs = sets.graphs()
    return replace(graphs, class_names=("low", "high", "other"))


def test_the_last_layer_starts_anew_if_there_are_other_classes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, _ = untrained(tmp_path / "source", "classification", seed=1)
    run = tune(tmp_path / "run", tmp_path / "source", three_classes(), task="classification")
    assert "the last layer starts from new weights: the model has 2 classes, the data 3" in caplog.text
    weights, expected = run.weights[0], source.weights[0]
    new = make_task(run.config, three_classes()).make_model().state_dict()
    for name, tensor in weights.items():
        own = new if name.startswith("output.") else expected
        torch.testing.assert_close(tensor, own[name], rtol=0, atol=1e-20)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"skip": "affine"}, "was trained with skip none .here affine.; use the same settings"),
        (
            {"model": {"latent": 4}, "kernel_size": 3},
            "was trained with kernel_size 2 .here 3., model.latent 3 .here 4.; use",
        ),
        (
            {"data": sets.meshes(subdivisions=2)},
            "another connectivity, with 42 vertices and 240 edges; the data have 162",
        ),
        ({"task": "classification"}, "source is a MeshAutoencoder, but classification trains a GraphClassifier"),
    ],
)
def test_another_model_is_refused(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    untrained(tmp_path / "source")
    with pytest.raises(ValueError, match=f"init_from: .*{message}"):
        tune(tmp_path / "run", tmp_path / "source", **given)
    assert not (tmp_path / "run" / "config.json").exists()


def test_other_features_are_refused(tmp_path: Path) -> None:
    untrained(tmp_path / "source", "classification")
    graphs = sets.graphs()
    colors = replace(graphs, x=graphs.x.repeat(1, 3))
    with pytest.raises(ValueError, match=r"init_from: .* does not fit the data: convs\.0\.theta is \[2, 1, 4\]"):
        tune(tmp_path / "run", tmp_path / "source", colors, task="classification")
