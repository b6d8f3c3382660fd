"""``geoskip train``: what it prints, what it leaves, and its errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from geoskip.cli import app
from geoskip.cli.train import default_name, plan
from geoskip.meshes.formats import write_mesh
from geoskip.training.config import resolve
from geoskip.training.tasks import make_task
from geoskip.training.tasks.classification import Classification
from tests.training import sets

SMALL = ["--kernel-size", "2", "--set", "model.channels=[4,6]", "--set", "data_options.unit_mm=100", "--device", "cpu"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("meshes")
    spheres = sets.meshes(count=12)
    for item in range(len(spheres)):
        write_mesh(spheres.mesh(item), place / f"{item:02d}.ply")
    return place


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEOSKIP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GEOSKIP_DATA", str(tmp_path / "data"))


def train(*args: str) -> Result:
    return CliRunner().invoke(app, ["train", *args])


def test_a_run_is_made_told_and_goes_on(folder: Path, tmp_path: Path) -> None:
    command = ["reconstruction", "--data", str(folder), *SMALL, "--skip", "affine", "-o", str(tmp_path / "run")]
    done = train(*command, "--epochs", "2")
    assert done.exit_code == 0, done.output
    assert "optim.epochs" in done.output
    assert "Aff-MoNet M=2" in done.output
    assert {"config.json", "metrics.jsonl", "model.safetensors", "record.json"} <= {
        path.name for path in (tmp_path / "run").iterdir()
    }
    assert json.loads((tmp_path / "run" / "config.json").read_text())["skip"] == "affine"
    assert f"wrote {tmp_path / 'run'}" in done.output
    again = train(*command, "--epochs", "2")
    assert again.exit_code == 0, again.output
    assert f"{tmp_path / 'run'}: already finished, nothing to do" in again.output
    assert "wrote" not in again.output
    longer = train(*command, "--epochs", "3", "--json")
    assert longer.exit_code == 0, longer.output
    assert json.loads(longer.stdout)["steps"] == 3
    refused = train(*command, "--resume", "never")
    assert refused.exit_code == 2
    assert "contains a run, and resume is never; choose another folder" in refused.output


def test_a_dry_run_tells_parameters_steps_and_memory(folder: Path, tmp_path: Path) -> None:
    told = train("reconstruction", "--data", str(folder), *SMALL, "-o", str(tmp_path / "run"), "--dry-run", "--json")
    assert told.exit_code == 0, told.output
    plan = json.loads(told.stdout)
    assert not (tmp_path / "run").exists()
    assert plan["steps"] == {"per_epoch": 1, "all": 300}
    assert plan["items"] == {"train": 10, "test": 2}
    parts = plan["parameters"]
    assert parts.pop("all") == sum(parts.values())
    memory = plan["memory"]
    assert memory.pop("all") == sum(memory.values()) > 0
    words = train("reconstruction", "--data", str(folder), *SMALL, "--dry-run")
    assert "estimated memory on CUDA" in words.output


@pytest.mark.parametrize("size", ["model.latent=100000000000", "model.latent=1000000000000000000"])
def test_too_large_a_model_is_one_message(size: str, folder: Path, tmp_path: Path) -> None:
    """Of 40 TB, and of more bytes than 64 bits count."""
    told = train("reconstruction", "--data", str(folder), *SMALL, "--set", size, "-o", str(tmp_path / "run"))
    assert told.exit_code == 2
    assert "geoskip: out of memory with batches of 32" in told.output
    assert "Lower optim.batch_size, train a smaller model" in told.output


def test_a_dry_run_does_not_allocate_the_model(folder: Path) -> None:
    command = ["reconstruction", "--data", str(folder), *SMALL, "--set", "model.latent=100000000000"]
    told = train(*command, "--dry-run", "--json")
    assert told.exit_code == 0, told.output
    plan = json.loads(told.stdout)
    assert plan["parameters"]["all"] > 10**12
    assert plan["memory"]["weights"] > 12 * 10**12


@pytest.mark.parametrize("task", ["reconstruction", "correspondence", "classification"])
@pytest.mark.parametrize("operator", ["cheb", "feast", "gcn", "gin", "monet", "spiral", "spline"])
def test_an_outlined_model_counts_like_the_model(task: str, operator: str) -> None:
    if (task, operator) == ("classification", "spiral"):
        return
    made = make_task(sets.config(task, operator=operator, skip="polynomial"), sets.data(task))
    shapes = [
        {name: tensor.shape for name, tensor in m.state_dict().items()} for m in (made.meta_model(), made.make_model())
    ]
    assert shapes[0] == shapes[1]
    assert all(parameter.is_meta for parameter in made.meta_model().parameters())


def test_packed_graphs_count_as_data_beside_what_they_are_made_of() -> None:
    """Both lie on the device while a classifier trains, whoever asked for the packed ones first."""
    fresh, packed = (Classification(sets.config("classification"), sets.graphs()) for _ in range(2))
    assert len(packed.store) == 10
    assert plan(fresh)["memory"]["data"] == plan(packed)["memory"]["data"]


def test_plan_counts_the_coordinates_that_are_kept() -> None:
    """Bodies of one connectivity have the pseudo-coordinates of every body made once."""
    config = sets.config("correspondence", operator="monet")
    task: Any = make_task(config, sets.data("correspondence"))
    kept = 4 * len(task.store) * task.store.batch_shapes(1)[0].edges * 3
    assert plan(task)["memory"]["data"] > kept


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["reconstruction", "--data", "coma"], "COMA_data.zip"),
        (["correspondence", "--data", "faces"], "faces is for reconstruction"),
        (["classification", "--operator", "spiral"], "spiral needs meshes"),
        (["reconstruction", "--operator", "monnet"], "did you mean monet?"),
        (["reconstruction", "--skip", "afine"], "did you mean affine?"),
        (["reconstruction", "--set", "optim.lrr=1"], "did you mean optim.lr?"),
        (["reconstruction", "--device", "tpu"], "unknown name 'tpu'"),
        (["reconstruction", "--device", "meta"], "not on meta"),
        (["reconstruction", "--resume", "nowhere"], "nowhere: there is no such checkpoint"),
        (["reconstrution"], "reconstrution"),
    ],
)
def test_errors_are_one_line(args: list[str], complaint: str) -> None:
    found = train(*args)
    assert found.exit_code == 2
    assert complaint in found.output
    assert "Traceback" not in found.output


def test_folders_have_names_that_tell_runs_apart() -> None:
    assert default_name(resolve("reconstruction", skip="affine")) == "reconstruction-faces-affine-monet-m9-seed0"
    config = resolve("classification", data="my/digits", operator="gcn", seed=3)
    assert default_name(config) == "classification-digits-gcn-seed3"
    degree = resolve("classification", pseudo="degree")
    assert default_name(degree) == "classification-superpixels-monet-m25-degree-seed0"


def test_looks_at_the_test_items_are_ten_unless_said_otherwise(folder: Path, tmp_path: Path) -> None:
    command = ["reconstruction", "--data", str(folder), *SMALL, "-o", str(tmp_path / "run"), "--dry-run", "--json"]
    for given, expected in ("", 30), ("--epochs 4", 1), ("--evaluate-every 0", 0), ("--evaluate-every 7", 7):
        told = train(*command, *given.split())
        assert json.loads(told.stdout)["config"]["evaluate_every"] == expected


def test_a_file_in_place_of_the_folder_is_told_once(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.ply").write_text("junk")
    told = train("reconstruction", "--data", str(folder), *SMALL, "--json", "-o", str(tmp_path / "broken.ply"))
    assert told.exit_code == 2
    fault = "is a file, and a folder is needed; choose another (for output, another -o)"
    assert told.output == f"geoskip: {tmp_path / 'broken.ply'}: {fault}\n"


def test_fine_tuning_starts_from_another_run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["reconstruction", "--data", str(folder), *SMALL, "--epochs", "1"]
    assert train(*command, "-o", "base").exit_code == 0
    done = train(*command, "--init-from", "base")
    assert done.exit_code == 0, done.output
    assert "starting from the weights of base" in done.output
    assert Path(f"runs/reconstruction-{folder.name}-monet-m2-from-base-seed0").is_dir()
    refused = train(*command, "--init-from", "base", "--skip", "affine", "--dry-run")
    assert refused.exit_code == 2
    assert "--init-from: the model in base was trained with skip none (here affine)" in refused.output
    missing = train(*command, "--init-from", "nowhere")
    assert "--init-from: there is no nowhere; name the folder of a run or an exported model" in missing.output
