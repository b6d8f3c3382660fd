"""Evaluation of a run, from the folder to the figures."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from geoskip.data import StoredShapes
from geoskip.inference import Matcher
from geoskip.records import EVALUATION_PICTURES, CorrespondenceSamples, read_samples, write_samples
from geoskip.report.charts import draw_confusion
from geoskip.report.picture_grids import match_grid, write_pictures
from geoskip.training.evaluation import evaluate_run
from geoskip.training.loop import train
from geoskip.training.run import Run
from geoskip.training.tasks import Evaluation, make_task
from geoskip.training.tasks.reconstruction import Reconstruction
from tests.training import sets
from tests.training.runs import perturbed, untrained


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEOSKIP_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("task", sets.TASKS)
def test_what_is_written_is_what_the_task_finds(tmp_path: Path, task: str) -> None:
    run, made = untrained(tmp_path / "run", task)
    found = evaluate_run(run, data=sets.data(task))
    expected = made.evaluate(perturbed(made.make_model()))
    stored = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert stored["metrics"] == dict(found.evaluation.metrics) == dict(expected.metrics)
    assert stored["step"] == 7
    assert stored["task"] == task
    names = getattr(made.data, "names", ()) or range(100)
    assert stored["items"] == [names[item] for item in made.data.split.test]
    assert all(
        len(array) == len(stored["items"]) for name, array in stored["arrays"].items() if name.startswith("per_item_")
    )
    assert stored["curves"] == {name: [list(p) for p in points] for name, points in expected.curves.items()}
    for name, array in expected.arrays.items():
        assert np.allclose(stored["arrays"][name], array, rtol=1e-6)


@pytest.mark.parametrize("task", sets.TASKS)
def test_a_trained_run_evaluates_to_its_record(tmp_path: Path, task: str) -> None:
    config = sets.config(task, optim={"epochs": 2})
    run = train(config, tmp_path / "run", task=make_task(config, sets.data(task)))
    found = evaluate_run(Run.open(tmp_path / "run"), data=sets.data(task))
    assert dict(found.evaluation.metrics) == pytest.approx(dict(run.record.metrics), rel=1e-5)


def test_misclassified_graphs_are_named(tmp_path: Path) -> None:
    graphs = replace(sets.graphs(), names=tuple(f"class/{number}.png" for number in range(14)))
    run, _ = untrained(tmp_path, "classification", graphs)
    evaluated = evaluate_run(run, data=graphs)
    stored = json.loads((tmp_path / "evaluation.json").read_text())
    assert stored["items"] == [f"class/{number}.png" for number in range(10, 14)]
    assert len(stored["arrays"]["per_item_correct"]) == 4
    assert evaluated.samples.names == tuple(stored["items"])
    assert evaluate_run(run, data=sets.graphs()).samples.names == ()


def test_the_unit_of_the_files_makes_no_difference(tmp_path: Path) -> None:
    """The same bodies in meters and in millimeters: in training, evaluation, use and export."""

    def trained_in(unit_mm: float) -> tuple[list[float], torch.Tensor]:
        bodies = sets.correspondences()
        scale = bodies.unit_mm / unit_mm
        scaled = [mesh.with_verts(scale * mesh.verts) for mesh in (bodies.target, *bodies.meshes)]
        bodies = replace(bodies, target=scaled[0], meshes=tuple(scaled[1:]), unit_mm=unit_mm)
        config = sets.config("correspondence", skip="affine", optim={"lr": 0.01, "epochs": 5})
        task = make_task(config, bodies)
        run = train(config, tmp_path / f"{unit_mm}", task=task)
        program = type(task).program(config, run.model(), task.context())
        matches = Matcher(run.trained()).match(scaled[-1])
        with torch.no_grad():
            scores = program.module(torch.tensor(scaled[-1].verts).float())
        assert np.array_equal(matches, scores.argmax(-1).numpy())
        assert np.array_equal(matches, task.evaluate(run.model()).arrays["predicted"][-len(matches) :])
        epochs = map(json.loads, (run.folder / "metrics.jsonl").read_text().splitlines())
        return [epoch["loss"] for epoch in epochs if "loss" in epoch], scores

    (losses, scores), (same_losses, same_scores) = trained_in(1000.0), trained_in(1.0)
    assert losses == pytest.approx(same_losses, rel=1e-3)
    torch.testing.assert_close(scores, same_scores, rtol=1e-2, atol=1e-2)


def test_an_evaluation_does_not_outlive_its_weights(tmp_path: Path) -> None:
    """It is gone as soon as a continued run has other weights, and not before."""
    folder, spheres = tmp_path / "run", sets.meshes()

    def continued(epochs: int, stop_after: int | None = None) -> Run:
        config = sets.config(optim={"epochs": epochs})
        train(config, folder, task=make_task(config, spheres), stop_after=stop_after)
        return Run.open(folder)

    def pictures(run: Run) -> list[str]:
        found = evaluate_run(run, data=spheres)
        write_pictures(run.pictures, found.samples, found.evaluation.curves, found.evaluation.arrays)
        (run.pictures / "mine.png").write_bytes(b"")
        return sorted(path.name for path in run.pictures.iterdir())

    run = continued(2)
    assert pictures(run) == ["mean-error.png", "mine.png", "reconstructions.png"]
    stored = json.loads((folder / "evaluation.json").read_text())
    assert (stored["step"], stored["weights_sha256"]) == (6, run.weights_sha256)
    continued(2)
    assert json.loads((folder / "evaluation.json").read_text()) == stored, "nothing was trained"
    run = continued(3, stop_after=1)
    assert not (folder / "evaluation.json").exists()
    assert [path.name for path in run.pictures.iterdir()] == ["mine.png"]
    pictures(run)
    assert json.loads((folder / "evaluation.json").read_text())["step"] == 7
    run = continued(3)
    assert not (folder / "evaluation.json").exists()
    assert run.weights_sha256 != stored["weights_sha256"]


def test_an_evaluation_that_training_overtook_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, task = untrained(tmp_path)
    true = Reconstruction.evaluate

    def overtaken(self: Reconstruction, model: torch.nn.Module, part: str = "test") -> Evaluation:
        run.write_model(perturbed(task.make_model(), seed=2), step=8)
        return true(self, model, part)

    monkeypatch.setattr(Reconstruction, "evaluate", overtaken)
    with pytest.raises(ValueError, match="training reached step 8 while step 7 was evaluated"):
        evaluate_run(run, data=sets.meshes())
    assert not (tmp_path / "evaluation.json").exists()


def test_errors_in_millimetres_by_hand(tmp_path: Path) -> None:
    """A model whose output layers are 0 answers with the mean shape of the training items."""
    run, task = untrained(tmp_path)
    model = task.make_model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    run.write_model(model, step=8)
    data = sets.meshes()
    mean = data.verts(data.split.train).double().mean(0)
    distances = (data.verts(data.split.test).double() - mean).norm(dim=-1) * data.unit_mm
    evaluation = evaluate_run(Run.open(tmp_path), data=data).evaluation
    assert evaluation.metrics["mean_mm"] == pytest.approx(float(distances.mean()), rel=1e-5)
    assert evaluation.metrics["median_mm"] == pytest.approx(float(np.median(distances.numpy())), rel=1e-5)
    assert evaluation.arrays["per_vertex_mm"] == pytest.approx(distances.mean(0).numpy(), rel=1e-4)


def test_other_data_are_refused(tmp_path: Path) -> None:
    run, _ = untrained(tmp_path)
    with pytest.raises(ValueError, match="not those that the run was trained on: deviation, mean differ"):
        evaluate_run(run, data=sets.meshes(seed=1))
    with pytest.raises(ValueError, match="unit_mm differ"):
        evaluate_run(run, data=replace(sets.meshes(), unit_mm=1.0))
    finer = sets.meshes(subdivisions=2)
    with pytest.raises(ValueError, match="faces, mean, topology differ"):
        evaluate_run(run, data=finer)
    assert not (tmp_path / "evaluation.json").exists()


def test_rounding_of_another_machine_is_not_another_set(tmp_path: Path) -> None:
    run, _ = untrained(tmp_path)
    data = sets.meshes()
    verts = data.verts(torch.arange(len(data)))
    evaluate_run(run, data=replace(data, shapes=StoredShapes(verts * (1 + 1e-7))))


def test_a_place_that_does_not_exist(tmp_path: Path) -> None:
    run, _ = untrained(tmp_path)
    with pytest.raises(ValueError, match="no such path"):
        evaluate_run(Run.open(run.folder, str(tmp_path / "absent")))


@pytest.mark.parametrize(
    ("task", "names"),
    [
        ("reconstruction", ["reconstructions.png", "mean-error.png"]),
        ("correspondence", ["matches.png", "geodesic.png"]),
        ("classification", ["confusion.png"]),
    ],
)
def test_pictures(tmp_path: Path, task: str, names: list[str]) -> None:
    from PIL import Image

    run, _ = untrained(tmp_path, task)
    found = evaluate_run(run, data=sets.data(task), samples=2)
    evaluation = found.evaluation
    paths = write_pictures(run.pictures, found.samples, evaluation.curves, evaluation.arrays, ("low", "high"))
    assert [path.name for path in paths] == names
    assert set(names) <= set(EVALUATION_PICTURES)
    for path in paths:
        with Image.open(path) as image:
            assert np.asarray(image.convert("RGB")).std() > 5, path.name


def test_vertices_without_a_label_have_no_error_and_all_connectivities_are_drawn(tmp_path: Path) -> None:
    """The mixed set tests a mesh of 42 labelled vertices and one of 162, of which 120 have no label."""
    data = sets.correspondences(mixed=True)
    run, _ = untrained(tmp_path / "run", "correspondence", data)
    found = evaluate_run(run, data=data, samples=2)
    labels = [data.labels[item].numpy() for item in data.split.test.tolist()]
    assert [mesh.verts.shape for mesh in found.samples.meshes] == [(42, 3), (162, 3)]
    for mesh, true in zip(found.samples.meshes, labels, strict=True):
        np.testing.assert_array_equal(np.isnan(mesh.error_pct), true < 0)
        np.testing.assert_array_equal(mesh.error_pct[true >= 0] == 0, (mesh.predicted == true)[true >= 0])
    errors, known = found.evaluation.arrays["error_pct"], np.concatenate(labels) >= 0
    assert len(errors) == found.evaluation.arrays["offsets"][-1] == 204
    np.testing.assert_array_equal(np.isnan(errors), ~known)
    assert found.evaluation.metrics["geodesic_mean_pct"] == pytest.approx(errors[known].mean(), rel=1e-5)
    assert found.evaluation.metrics["accuracy_pct"] == pytest.approx(100 * (errors[known] == 0).mean())
    stored = json.loads((tmp_path / "run" / "evaluation.json").read_text())["arrays"]["error_pct"]
    assert [value is None for value in stored] == (~known).tolist()
    path = tmp_path / "samples.safetensors"
    write_samples(path, found.samples)
    assert isinstance(read_samples(path), CorrespondenceSamples)
    assert match_grid(found.samples, size=40).shape == (80, 120, 3), "the target and both meshes"


def test_many_classes_have_a_confusion_without_numbers(tmp_path: Path) -> None:
    draw_confusion(tmp_path / "many.png", np.eye(25, dtype=np.int64))
    assert (tmp_path / "many.png").stat().st_size > 1000


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"geoskip\[plots\]"):
        draw_confusion(tmp_path / "few.png", np.eye(2, dtype=np.int64))
