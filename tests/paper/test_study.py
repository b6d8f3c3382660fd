"""The study of skips and kernels: what it trains, and that it can be interrupted."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from docs.run_study import configs, main, measured, operators
from typer.testing import CliRunner

from geoskip.cli import app
from geoskip.paper.findings import by_method, read_analysis
from geoskip.paper.measures import run_parts, run_shares, run_smoothness, start_alike, task_of
from geoskip.paper.small_sets import coarsened
from geoskip.paper.smoothness import model_smoothness
from geoskip.training import loop
from geoskip.training.run import Run
from geoskip.training.tasks import make_task
from tests.paper.small_run import spheres


def settings(**given: Any) -> argparse.Namespace:
    usual = {"operator": ["monet=2"], "seeds": 1, "epochs": 2, "batch_size": 4, "device": "cpu", "channels": [4]}
    usual |= {"train_items": None, "test_items": None, "coarse": []}
    return argparse.Namespace(**usual | given)


def test_every_method_with_every_seed() -> None:
    given = settings(operator=["monet=9", "cheb=6"], seeds=2, epochs=10, train_items=50, batch_size=5)
    chosen = configs(given, 1000)
    assert len(chosen) == 2 * 3 * 2
    one = chosen["cheb-affine-1"]
    assert (one.operator, one.skip, one.seed, one.kernel_size) == ("cheb", "affine", 1, 6)
    # Ten steps per epoch, a hundred in all, ten checkpoints on the way.
    assert (one.optim.epochs, one.checkpoint_every, one.keep) == (10, 10, 11)
    assert configs(settings(epochs=1), 5)["monet-none-0"].checkpoint_every == 1


def test_operators_are_named_with_their_size() -> None:
    assert operators(["spline=3", "cheb=4"]) == {"spline": 3, "cheb": 4}
    with pytest.raises(ValueError, match="operator: monet needs a kernel size, such as monet=9"):
        operators(["monet"])
    with pytest.raises(ValueError, match="operator: gcn has no filter to measure; choose from monet, spline, cheb"):
        operators(["monet=4", "gcn=1"])


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


def test_runs_are_trained_once_and_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = spheres()
    chosen = configs(settings(), len(data.split.train))
    first = list(measured(chosen, data, tmp_path))
    (_, _, shares, parts), _, (_, roughness, affine_shares, affine_parts) = first
    assert (shares, parts) == ([], [])
    assert sorted({row["step"] for row in affine_shares}) == [0, 1, 2, 3, 4]
    assert {row["run"] for row in affine_parts} == {"monet-affine-0"}
    assert roughness["end"]["overall"] != roughness["start"]["overall"]
    assert roughness["metrics"]["mean_mm"] > 0

    def refuse(*args: Any) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(loop, "Session", refuse)
    assert list(measured(chosen, data, tmp_path)) == first


def test_methods_begin_with_the_same_convolutions() -> None:
    data = spheres()
    chosen = configs(settings(seeds=2), 8)
    models = {name: start_alike(make_task(config, data=data)).to("cpu").make_model() for name, config in chosen.items()}
    starts = {name: [row.slope for row in model_smoothness(model)] for name, model in models.items()}
    assert starts["monet-none-0"] == starts["monet-residual-0"] == starts["monet-affine-0"] != starts["monet-none-1"]
    skips = [model.get_parameter("output.weight") for model in (models["monet-affine-0"], models["monet-affine-1"])]
    assert not torch.equal(*skips)
    assert bool((skips[0] != 0).all())
    unpaired = make_task(chosen["monet-affine-0"], data=data).make_model()
    assert [row.slope for row in model_smoothness(unpaired)] != starts["monet-affine-0"]


def test_change_is_the_end_over_the_start() -> None:
    def run(method: str, start: float, end: float) -> dict[str, Any]:
        return {"method": method, "start": {"overall": {"slope": start}}, "end": {"overall": {"slope": end}}}

    found = [run("A", 2.0, 3.0), run("B", 4.0, 1.0), run("A", 5.0, 5.0)]
    assert by_method(found, "slope", "change") == {"A": [1.5, 1.0], "B": [0.25]}
    assert by_method(found, "slope", "start") == {"A": [2, 5], "B": [4]}
    assert by_method(found, "edge_slope", "change") == {}
    assert by_method([{"method": "A", "end": {"overall": {"slope": 1.0}}}], "slope", "change") == {}


def test_the_script_writes_three_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoskip.data.generated_faces.faces", lambda: spheres(24))
    words = "--operator monet=2 --seeds 1 --epochs 1 --batch 8 --device cpu --coarse 2 --channels 4"
    main(["-o", str(tmp_path / "runs"), "--records", str(tmp_path / "records"), *words.split()])
    found = {name: read_analysis(tmp_path / "records" / f"{name}.json") for name in ("smoothness", "shares", "parts")}
    assert len(found["smoothness"].rows) == 3
    assert {row["run"] for row in found["parts"].rows} == {"monet-residual-0", "monet-affine-0"}
    assert found["shares"].settings["vertices"] == 21
    assert (tmp_path / "runs" / "monet-affine-0" / "parts.safetensors").is_file()
    assert found["shares"].settings["coarse"] == [2]
    # Where it was trained, as the runs' own records say.
    run = Run.open(tmp_path / "runs" / "monet-affine-0")
    assert {record.device for record in found.values()} == {run.record.device}
    for command in ("parts", "share", "smoothness"):
        options = {"parts": ["--samples", "2"], "smoothness": ["--start"]}.get(command, [])
        told = CliRunner().invoke(app, ["analyze", command, str(run.folder), *options])
        assert told.exit_code == 0, told.output
    again = run_smoothness(run, task_of(run))
    (row,) = (row for row in found["smoothness"].rows if row["skip"] == "affine")
    assert again["start"]["overall"] == pytest.approx(row["start"]["overall"], rel=1e-6)
    shares = [{"run": run.folder.name, **row} for row in run_shares(run)]
    kept = [row for row in found["shares"].rows if row["run"] == run.folder.name]
    assert [row["share"] for row in shares] == pytest.approx([row["share"] for row in kept], rel=1e-5)
    assert len(run_parts(run, 2)[0]) == len([row for row in found["parts"].rows if row["run"] == run.folder.name])


def test_a_run_on_other_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose data were given in Python."""
    monkeypatch.setattr("geoskip.data.generated_faces.faces", lambda: spheres(24))
    data = coarsened(spheres(24), (2,))
    assert len(list(measured(configs(settings(epochs=1, coarse=[2]), len(data.split.train)), data, tmp_path))) == 3
    run = Run.open(tmp_path / "monet-affine-0")
    assert task_of(run).num_items == len(data.split.train)
    monkeypatch.setattr("geoskip.data.generated_faces.faces", lambda: spheres(12))
    with pytest.raises(ValueError, match=r"monet-affine-0: the data of .* are not those that the run was trained on"):
        task_of(run)
