"""The comparison in small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from geoskip.cli import app
from geoskip.data import MeshSet, Split, StoredShapes
from geoskip.meshes import icosphere
from geoskip.paper.demo_runs import demo_runs, demo_set, write_demo_pictures
from geoskip.paper.small_sets import deformed, reduced
from geoskip.records.samples import MeshSamples, read_samples
from geoskip.report.picture_grids import errors_mm, reconstruction_grid


@pytest.fixture
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few shapes, a smaller sphere, small pictures."""
    monkeypatch.setattr("geoskip.paper.demo_runs.NUM_TRAIN", 16)
    monkeypatch.setattr("geoskip.paper.demo_runs.NUM_TEST", 5)
    monkeypatch.setattr("geoskip.paper.demo_runs.icosphere", lambda level: icosphere(2))
    monkeypatch.setattr("geoskip.paper.demo_runs.SIZE", 16)


def test_shapes_repeat_and_differ() -> None:
    sphere = icosphere(1)
    shapes = deformed(sphere, 5, seed=0)
    assert np.array_equal(shapes, deformed(sphere, 5, seed=0))
    assert not np.allclose(shapes, deformed(sphere, 5, seed=1))
    assert not np.allclose(shapes[0], shapes[1])


def test_twist_leaves_its_axis_alone() -> None:
    sphere = icosphere(1)
    poles = np.abs(sphere.verts[:, :2]).max(axis=1) < 1e-12
    assert poles.sum() == 2
    shapes = deformed(sphere, 20, seed=0)
    assert np.abs(shapes[:, poles, :2]).max() < 1e-12
    assert np.abs(np.abs(shapes[:, poles, 2]) - 1).min() > 0, "stretched or swollen"


def sphere_set() -> MeshSet:
    sphere = icosphere(2)
    shapes = StoredShapes(torch.from_numpy(deformed(sphere, 30, seed=0)).float())
    return MeshSet(sphere, shapes, tuple(f"{k:02d}" for k in range(30)), Split.leading(30, 20), 2.0)


def test_coarser_keeps_vertices_items_and_split() -> None:
    whole = sphere_set()
    some = reduced(whole, 40, num_train=8, num_test=4)
    assert (len(some), some.template.num_vertices, some.unit_mm) == (12, 40, 2.0)
    assert len(some.split.train) == 8
    for item, name in enumerate(some.names):
        source = whole.names.index(name)
        assert (source in whole.split.train.tolist()) == (item < 8)
        fine, coarse = (data.verts(torch.tensor([k]))[0] for data, k in ((whole, source), (some, item)))
        assert {tuple(vertex) for vertex in coarse.tolist()} <= {tuple(vertex) for vertex in fine.tolist()}


@pytest.mark.usefixtures("_few")
def test_runs_train_and_are_taken_up(tmp_path: Path) -> None:
    shapes = demo_set("spheres").shapes
    runs = list(demo_runs(shapes, tmp_path, seeds=1, epochs=2))
    assert [run.record.name for run in runs] == ["MoNet", "Res-MoNet", "Aff-MoNet"]
    plain, residual, affine = (run.record.parameters for run in runs)
    assert plain == residual < affine
    samples = read_samples(runs[0].folder / "samples.safetensors")
    assert isinstance(samples, MeshSamples)
    assert samples.parts["full"].shape == (4, 162, 3)
    again = demo_runs(shapes, tmp_path, seeds=1, epochs=2)
    assert [run.record for run in again] == [run.record for run in runs], "not trained again"
    other = next(demo_runs(shapes, tmp_path / "again", seeds=1, epochs=2))
    assert other.record.metrics == runs[0].record.metrics
    configs = [run.config.to_json() for run in runs]
    assert {key for key in configs[0] if configs[0][key] != configs[2][key]} == {"skip"}


@pytest.mark.usefixtures("_few")
def test_spheres_stand_in_where_faces_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ImportError("pip install 'geoskip[people]'")

    monkeypatch.setattr("geoskip.data.generated_faces.faces", fail)
    made = demo_set("auto")
    assert made.note == "Faces cannot be generated here (pip install 'geoskip[people]'), so these are deformed spheres."
    assert "spheres of 162 vertices" in made.about
    assert demo_set("spheres").note == ""
    with pytest.raises(ImportError):
        demo_set("faces")


@pytest.mark.usefixtures("_few")
def test_faces_are_made_coarser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoskip.data.generated_faces.faces", sphere_set)
    monkeypatch.setattr("geoskip.paper.demo_runs.NUM_VERTICES", 60)
    made = demo_set()
    assert made.about == "16 faces of 60 vertices"
    assert made.shapes.template.num_vertices == 60


def samples_off_by(distance: float) -> MeshSamples:
    sphere = icosphere(1)
    verts = np.stack([sphere.verts] * 2)
    moved = verts + np.array([0.0, distance, 0.0])
    return MeshSamples(("a", "b"), sphere.faces, 10.0, {"input": verts, "full": moved})


def test_errors_are_in_millimetres() -> None:
    assert errors_mm(samples_off_by(0.5)) == pytest.approx(np.full((2, 42), 5.0), rel=1e-6)


def test_pictures_share_their_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"MoNet": samples_off_by(0.1), "Aff-MoNet": samples_off_by(0.05)}
    monkeypatch.setattr("geoskip.paper.demo_runs.SIZE", 24)
    paths, high = write_demo_pictures(tmp_path / "pictures", made)
    assert [path.name for path in paths] == ["monet.png", "aff-monet.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert high == pytest.approx(1.0, rel=1e-5)
    worse, better = (reconstruction_grid(one, size=24, largest=high) for one in made.values())
    assert worse.shape == (3 * 24, 2 * 24, 3)
    assert np.array_equal(worse[:24], better[:24]), "the same inputs, seen alike"
    assert worse[48:].mean() < better[48:].mean(), "what is wrong is darker"


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["demo", *arguments])


@pytest.mark.usefixtures("_few")
def test_command(tmp_path: Path) -> None:
    told = run("--seeds", "2", "--epochs", "1", "--data", "spheres", "--output", str(tmp_path))
    assert told.exit_code == 0, told.output
    for method in ("MoNet", "Res-MoNet", "Aff-MoNet"):
        assert f" {method} " in told.stdout
        assert (tmp_path / "pictures" / f"{method.lower()}.png").is_file()
    assert "Aff-MoNet beats MoNet with" in told.stdout
    assert "of 2 seeds" in told.stdout
    assert f"Interactive page: {tmp_path / 'report' / 'index.html'}" in told.stdout
    assert (tmp_path / "report" / "index.html").is_file()
    runs = json.loads(run("--seeds", "2", "--epochs", "1", "--data", "spheres", "-o", str(tmp_path), "--json").stdout)
    assert [(r["skip"], r["seed"]) for r in runs] == [(s, n) for n in (0, 1) for s in ("none", "residual", "affine")]
    assert all(r["error_mm"] > 0 and r["params"] > 0 for r in runs)


@pytest.mark.usefixtures("_few")
def test_command_says_why_there_are_no_faces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail() -> None:
        raise ImportError("no anny")

    monkeypatch.setattr("geoskip.data.generated_faces.faces", fail)
    told = run("--epochs", "1", "--output", str(tmp_path))
    assert told.exit_code == 0, told.output
    assert "Faces cannot be generated here (no anny)" in told.stderr


def test_unknown_data(tmp_path: Path) -> None:
    told = run("--data", "hands", "--output", str(tmp_path))
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr == "geoskip: --data: unknown name 'hands'; choose from faces, spheres, auto\n"


def test_at_least_one() -> None:
    for option in ("--seeds", "--epochs"):
        told = run(option, "0")
        assert told.exit_code == 2
        assert option in told.stderr
