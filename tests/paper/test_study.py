"""The study of skips and kernels: what it trains, what it measures, and that it can be interrupted."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from docs.run_study import answer, configs, main, measured_epochs, operators, stored_results
from torch.nn.functional import l1_loss
from typer.testing import CliRunner

from geoskip.cli import app
from geoskip.meshes.formats import write_mesh
from geoskip.paper.findings import by_method, read_analysis
from geoskip.paper.measures import (
    PairedReconstruction,
    run_progress,
    run_shares,
    run_smoothness,
    training_loss,
)
from geoskip.paper.running import load_once
from geoskip.paper.small_sets import coarsened
from geoskip.paper.smoothness import model_smoothness
from geoskip.training import loop
from geoskip.training.evaluation import task_of
from geoskip.training.run import Run
from tests.docs.pages import DOCS
from tests.paper.small_run import small_run, spheres

SMALL = ["model.channels=[4]", "model.factors=[2]", "optim.batch_size=4", "data_options.unit_mm=10.0"]


@pytest.fixture
def meshes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of meshes, which worker processes find, too."""
    monkeypatch.setenv("GEOSKIP_CACHE", str(tmp_path / "cache"))
    return write_meshes(tmp_path / "meshes", 24)


def write_meshes(folder: Path, count: int) -> Path:
    load_once.cache_clear()
    folder.mkdir(exist_ok=True)
    data = spheres(count)
    for item in range(len(data)):
        write_mesh(data.mesh(item), folder / f"{item:02d}.ply")
    return folder


def settings(data: object = "mixed-faces", **given: Any) -> argparse.Namespace:
    usual = {"operator": ["monet=2"], "seeds": 1, "schedule": "in3", "data": str(data), "device": "cpu", "set": SMALL}
    return argparse.Namespace(**usual | given)


def test_every_method_with_every_seed() -> None:
    chosen = configs(settings(operator=["monet=9", "cheb=6"], seeds=2, schedule="in60", set=["train_items=50"]))
    assert len(chosen) == 2 * 3 * 2
    one = chosen["cheb-affine-1"]
    assert (one.operator, one.skip, one.seed, one.kernel_size) == ("cheb", "affine", 1, 6)
    assert (one.data, one.train_items, one.model) == ("mixed-faces", 50, {})
    # All of the paper's learning rates: five of its epochs in one.
    assert one.optim.epochs == 60
    assert one.optim.rate(12) == pytest.approx(1e-3 * 0.99**60)


def test_operators_are_named_with_their_size() -> None:
    assert operators(["spline=3", "cheb=4"]) == {"spline": 3, "cheb": 4}
    with pytest.raises(ValueError, match="operator: monet needs a kernel size, such as monet=9"):
        operators(["monet"])
    with pytest.raises(ValueError, match="operator: gcn has no filter to measure; choose from monet, cheb, spline"):
        operators(["monet=4", "gcn=1"])


def test_checkpoints_are_dense_at_the_start() -> None:
    assert measured_epochs(60) == [1, 2, 3, 4, 6, 9, 14, 20, 29, 41, 60]
    assert measured_epochs(3) == [1, 2, 3]
    assert measured_epochs(1) == [1]


def test_a_coarser_set_has_the_same_shapes_at_fewer_vertices() -> None:
    data = spheres()
    coarse = coarsened(data, (2,))
    assert coarse.template.num_vertices == 21
    assert (coarse.names, len(coarse)) == (data.names, len(data))
    # Each kept vertex is one of the fine mesh, in every shape the same one.
    fine, kept = data.verts(torch.arange(3)), coarse.verts(torch.arange(3))
    same = (fine.unsqueeze(2) == kept.unsqueeze(1)).all(-1)
    assert bool((same.sum(1) == 1).all())
    assert torch.equal(same[0], same[1])
    template = torch.tensor(coarse.template.verts).float()
    assert torch.equal(torch.tensor(data.template.verts).float()[same[0].int().argmax(0)], template)


def test_runs_are_trained_and_measured_once(tmp_path: Path, meshes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, out = configs(settings(meshes)), tmp_path / "runs"
    for name in ("monet-none-0", "monet-affine-0"):
        request = {"name": name, "config": chosen[name].to_json(), "jobs": 3}
        assert answer(request, out) == ""
        assert not (out / name / "checkpoints").exists()
    plain, affine = (stored_results(name, chosen[name], out) for name in ("monet-none-0", "monet-affine-0"))
    assert plain is not None
    assert affine is not None
    assert (plain["shares"], plain["parts"]) == ([], [])
    # The first of every ten files are for the test: 21 for training, in batches of 4.
    steps = [point["step"] for point in affine["smoothness"]["progress"]]
    assert steps == [0, 6, 12, 18]
    assert sorted({row["step"] for row in affine["shares"]}) == steps
    first, *_, last = affine["smoothness"]["progress"]
    assert last["loss"] < first["loss"]
    for when, point in (("start", first), ("end", last)):
        overall = affine["smoothness"][when]["overall"]
        assert {name: point[name] for name in overall} == pytest.approx(overall)
    assert last["mean_mm"] == pytest.approx(affine["smoothness"]["metrics"]["mean_mm"], rel=1e-5)
    assert min(affine["seconds"].values()) > 0
    assert affine["jobs"] == 3
    # Other settings, other results.
    assert stored_results("monet-none-0", replace(chosen["monet-none-0"], train_items=5), out) is None
    assert stored_results("monet-residual-0", chosen["monet-residual-0"], out) is None

    def refuse(*args: Any) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(loop, "Session", refuse)
    results = read_bytes(out)
    # Without its checkpoints, a run cannot be measured again.
    fault = answer({"name": "monet-none-0", "config": chosen["monet-none-0"].to_json(), "jobs": 3}, out)
    assert "the run has lost its checkpoints; remove the folder to train it again" in fault
    assert read_bytes(out) == results


def test_a_trained_run_is_only_measured(tmp_path: Path, meshes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a process that was killed while it measured."""
    config = configs(settings(meshes))["monet-none-0"]
    request = {"name": "run", "config": config.to_json(), "jobs": 1}
    with monkeypatch.context() as patched:
        patched.setattr("docs.run_study.run_progress", lambda *_: 1 / 0)
        assert "ZeroDivisionError" in answer(request, tmp_path)

    def refuse(*args: Any) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(loop, "Session", refuse)
    assert answer(request, tmp_path) == ""
    assert stored_results("run", config, tmp_path) is not None


def read_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.json")}


def test_an_interrupted_run_resumes(tmp_path: Path, meshes: Path) -> None:
    config = configs(settings(meshes))["monet-affine-0"]
    loop.train(replace(config, checkpoint_every=6, keep=4), tmp_path / "cut", stop_after=8)
    assert len(list((tmp_path / "cut" / "checkpoints").iterdir())) == 2
    for name in ("cut", "whole"):
        assert answer({"name": name, "config": config.to_json(), "jobs": 1}, tmp_path) == ""
    cut, whole = (stored_results(name, config, tmp_path) for name in ("cut", "whole"))
    assert cut is not None
    assert whole is not None
    assert cut["smoothness"] == whole["smoothness"]
    assert cut["shares"] == whole["shares"]


def test_a_run_that_fails_says_why(tmp_path: Path, meshes: Path) -> None:
    config = replace(configs(settings(meshes))["monet-none-0"], data=str(tmp_path / "nothing"))
    fault = answer({"name": "monet-none-0", "config": config.to_json(), "jobs": 1}, tmp_path / "runs")
    assert "there is no such path" in fault
    assert not (tmp_path / "runs" / "monet-none-0.json").exists()


def test_progress_is_that_of_the_checkpoints(tmp_path: Path) -> None:
    run, task = small_run(tmp_path, steps=(5, 10, 20))
    rows = run_progress(run, task, steps=[10])
    assert [row["step"] for row in rows] == [0, 10, 20]
    # The last of all: by hand, all training items at once.
    model, x = run.model(), task.batch(torch.arange(task.num_items))
    with torch.no_grad():
        assert rows[-1]["loss"] == pytest.approx(float(l1_loss(model(x), x)), rel=1e-5)
    assert rows[-1]["mean_mm"] == pytest.approx(task.evaluate(model).metrics["mean_mm"])
    assert rows[-1]["slope"] == pytest.approx(run_smoothness(run)["end"]["overall"]["slope"])
    assert rows[0]["loss"] != rows[1]["loss"] != rows[2]["loss"]
    assert {row["step"] for row in run_shares(run, 4, task, steps=[10])} == {0, 10, 20}


def test_the_loss_counts_every_item_once() -> None:
    """A batch of 64 and one of 36."""
    task = PairedReconstruction(configs(settings(set=SMALL[:3]))["monet-none-0"], spheres(150))
    assert task.num_items == 100
    model, x = task.make_model(), task.batch(torch.arange(100))
    with torch.no_grad():
        assert training_loss(task, model) == pytest.approx(float(l1_loss(model(x), x)), rel=1e-5)


def test_methods_begin_with_the_same_convolutions() -> None:
    data = spheres()
    chosen = configs(settings(seeds=2, set=SMALL[:3]))
    models = {name: PairedReconstruction(config, data).to("cpu").make_model() for name, config in chosen.items()}
    starts = {name: [row.slope for row in model_smoothness(model)] for name, model in models.items()}
    assert starts["monet-none-0"] == starts["monet-residual-0"] == starts["monet-affine-0"] != starts["monet-none-1"]
    skips = [model.get_parameter("output.weight") for model in (models["monet-affine-0"], models["monet-affine-1"])]
    assert not torch.equal(*skips)
    assert bool((skips[0] != 0).all())
    affine = chosen["monet-affine-0"]
    unpaired = super(PairedReconstruction, PairedReconstruction(affine, data)).make_model()
    assert [row.slope for row in model_smoothness(unpaired)] != starts["monet-affine-0"]


def test_change_is_the_end_over_the_start() -> None:
    def run(method: str, start: float, end: float) -> dict[str, Any]:
        return {"method": method, "start": {"overall": {"slope": start}}, "end": {"overall": {"slope": end}}}

    found = [run("A", 2.0, 3.0), run("B", 4.0, 1.0), run("A", 5.0, 5.0)]
    assert by_method(found, "slope", "change") == {"A": [1.5, 1.0], "B": [0.25]}
    assert by_method(found, "slope", "start") == {"A": [2, 5], "B": [4]}
    assert by_method(found, "edge_slope", "change") == {}
    assert by_method([{"method": "A", "end": {"overall": {"slope": 1.0}}}], "slope", "change") == {}


def test_the_script_writes_three_records(tmp_path: Path, meshes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a worker process; and again, when everything is done."""
    out, records = tmp_path / "runs", tmp_path / "records"
    words = ["-o", str(out), "--records", str(records), "--data", str(meshes), "--operator", "monet=2", "--seeds", "1"]
    words += ["--schedule", "in2", "--device", "cpu", "--jobs", "1", *(f"--set={setting}" for setting in SMALL)]
    assert main(words) == 0
    assert "monet-affine-0: done" in capsys.readouterr().out
    found = {name: read_analysis(records / f"{name}.json") for name in ("smoothness", "shares", "parts")}
    assert len(found["smoothness"].rows) == 3
    assert {row["run"] for row in found["parts"].rows} == {"monet-residual-0", "monet-affine-0"}
    assert (found["shares"].settings["vertices"], found["shares"].settings["epochs"]) == (42, 2)
    # Where it was trained, and for how long, as the runs' own results say.
    run = Run.open(out / "monet-affine-0")
    assert {record.device for record in found.values()} == {run.record.device}
    seconds = [json.loads(path.read_bytes())["seconds"].values() for path in out.glob("*.json")]
    assert found["parts"].seconds == pytest.approx(sum(map(sum, seconds)), abs=0.01)
    for command in ("parts", "share", "smoothness"):
        options = {"parts": ["--samples", "2"], "smoothness": ["--start"]}.get(command, [])
        told = CliRunner().invoke(app, ["analyze", command, str(run.folder), *options])
        assert told.exit_code == 0, told.output
    again = run_smoothness(run, task_of(run))
    (row,) = (row for row in found["smoothness"].rows if row["skip"] == "affine")
    assert again["start"]["overall"] == pytest.approx(row["start"]["overall"], rel=1e-6)
    before = read_bytes(records)
    assert main(words) == 0
    assert capsys.readouterr().out == ""
    assert read_bytes(records) == before
    # Two runs at once took half of the device's time each.
    path = out / "monet-none-0.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "jobs": 2}))
    assert main(words) == 0
    halved = found["parts"].seconds - read_analysis(records / "parts.json").seconds
    assert halved == pytest.approx(sum(json.loads(path.read_text())["seconds"].values()) / 2, abs=0.02)


LEAN = """
import sys
for name in "anny beartype matplotlib PIL plotly potpourri3d pygeodesic ray skimage torch_geometric trimesh".split():
    sys.modules[name] = None
"""


def test_the_study_runs_where_no_extra_is_installed(tmp_path: Path, meshes: Path) -> None:
    """As on a machine that has torch, numpy and scipy, and the data from elsewhere. Its workers have no more."""
    (tmp_path / "sitecustomize.py").write_text(LEAN)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    words = ["-o", str(tmp_path / "runs"), "--records", str(tmp_path / "records"), "--data", str(meshes)]
    words += ["--operator", "spline=2", "--operator", "cheb=2", "--seeds", "1", "--schedule", "in1", "--jobs", "2"]
    words += ["--device", "cpu", *(f"--set={setting}" for setting in SMALL)]
    command = [sys.executable, str(DOCS / "run_study.py"), *words]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": done") == 6
    assert len(read_analysis(tmp_path / "records" / "smoothness.json").rows) == 6


def test_the_script_says_what_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-o", str(tmp_path / "runs"), "--records", str(tmp_path / "records"), "--data", str(tmp_path / "nothing")]
    assert main([*words, "--operator", "monet=2", "--seeds", "1", "--device", "cpu"]) == 1
    printed = capsys.readouterr().out
    assert printed.count("there is no such path") == 3
    assert "0 of 3 runs have results; repeat the command for the others" in printed
    assert not (tmp_path / "records").exists()


def test_a_run_on_other_data_is_refused(tmp_path: Path, meshes: Path) -> None:
    config = configs(settings(meshes))["monet-affine-0"]
    assert answer({"name": "a", "config": config.to_json(), "jobs": 1}, tmp_path) == ""
    run = Run.open(tmp_path / "a")
    assert task_of(run).num_items > 16
    (meshes / "23.ply").write_bytes((meshes / "22.ply").read_bytes())
    with pytest.raises(ValueError, match=r"a: the data of .* are not those that the run was trained on"):
        task_of(run)
