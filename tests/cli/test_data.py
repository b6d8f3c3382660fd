"""``geoskip data`` as its users meet it."""

import json
import logging
import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from geoskip.data import CorrespondenceSet, MeshSet, Split, StoredShapes, bodies
from geoskip.data.cache import CacheEntry, cached
from geoskip.data.catalog import BUILT_IN
from geoskip.meshes import icosphere
from geoskip.training.run import Run
from tests.cli.test_cli import run
from tests.data.test_superpixels import write_mnist


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data and cache in a folder of the test's own."""
    monkeypatch.setenv("GEOSKIP_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("GEOSKIP_CACHE", str(tmp_path / "cache"))
    return tmp_path


def keep(kind: str, **recipe: Any) -> Path:
    """An entry of the cache."""
    cached(kind, recipe, lambda: CacheEntry({"verts": np.zeros(250_000)}))
    return max(Path(os.environ["GEOSKIP_CACHE"]).glob(f"{kind}-*"), key=lambda path: path.stat().st_mtime_ns)


def mesh_set() -> MeshSet:
    verts = torch.zeros(10, 12, 3)
    return MeshSet(icosphere(0), StoredShapes(verts), tuple("abcdefghij"), Split.leading(10, 8), unit_mm=1.0)


def body_set() -> CorrespondenceSet:
    mesh = icosphere(2)
    labels = (torch.arange(mesh.num_vertices),) * 4
    return CorrespondenceSet(mesh, (mesh,) * 4, labels, tuple("abcd"), Split.leading(4, 3), unit_mm=1000.0)


def test_check_tells_what_to_do(place: Path) -> None:
    told = run("data", "check")
    assert told.exit_code == 0
    for name in BUILT_IN:
        assert f"{name}: missing\n" in told.stdout
    assert f"Put it at {place / 'data' / 'coma' / 'COMA_data.zip'}" in told.stdout


def test_check_of_named_sets_fails_where_one_is_missing(place: Path) -> None:
    (place / "data" / "coma" / "COMA_data").mkdir(parents=True)
    found = run("data", "check", "coma")
    assert (found.exit_code, found.stdout.splitlines()[0]) == (0, f"coma: {place / 'data' / 'coma' / 'COMA_data'}")
    assert run("data", "check", "coma", "faust").exit_code == 1
    unknown = run("data", "check", "comma")
    assert unknown.exit_code == 2
    assert "data: unknown name 'comma'; did you mean coma?" in " ".join(unknown.stderr.split())


def test_check_knows_superpixels_as_training_does(place: Path) -> None:
    write_mnist(place / "data" / "mnist")
    told = run("data", "check", "superpixels")
    assert (told.exit_code, told.stdout.splitlines()[0]) == (0, f"mnist: {place / 'data' / 'mnist'}")


def test_an_unknown_set_to_make_tells_those_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    told = run("data", "make", "nosuch")
    assert told.exit_code == 2
    assert "'nosuch'; there are faces, mixed-faces, moving-bodies, coma, bodies, remeshed-bodies, faust" in told.stderr
    assert "Did you mean 'faces'?" in run("data", "make", "face").stderr


def test_check_as_json(place: Path) -> None:
    (place / "data" / "coma" / "COMA_data").mkdir(parents=True)
    told = json.loads(run("data", "check", "--json").stdout)
    places = {status["name"]: status["path"] for status in told["data"]}
    assert places["coma"] == str(place / "data" / "coma" / "COMA_data")
    assert places["faust"] is None
    assert told["damaged"] == []


def test_check_finds_damage(place: Path) -> None:
    entry = keep("faces", seed=0)
    whole = (entry / "arrays.safetensors").read_bytes()
    (entry / "arrays.safetensors").write_bytes(whole[:-1] + b"\x01")
    assert "damaged" not in run("data", "check").stdout
    assert f"needed: {entry.name} (arrays.safetensors does not match" in run("data", "check", "--thorough").stdout
    (entry / "manifest.json").write_text("{")
    assert f"needed: {entry.name} (unreadable" in run("data", "check").stdout


def test_list_shows_kind_recipe_size_and_key(place: Path) -> None:
    assert run("data", "list").stdout == f"0 entries, 0.0 MB in {place / 'cache'}\n"
    faces, bodies = keep("faces", subjects=12, seed=3), keep("bodies", poses=10)
    told = run("data", "list").stdout
    for text in ("subjects=12 seed=3", "poses=10", faces.name[6:18], bodies.name[7:19], "2.0", "2 entries, 4.0 MB"):
        assert text in told
    (faces / "manifest.json").unlink()
    assert "damaged: unreadable" in run("data", "list").stdout
    listed = json.loads(run("data", "list", "--json").stdout)
    assert [entry["name"] for entry in listed] == [bodies.name, faces.name]


def test_clear_asks_first(place: Path) -> None:
    entry = keep("faces", seed=0)
    refused = run("data", "clear")
    assert refused.exit_code == 1
    assert "Remove 1 entry, 2.0 MB" in refused.stdout
    assert entry.is_dir()
    assert "removed 1 entry" in run("data", "clear", "--yes").stdout
    assert not entry.exists()
    assert run("data", "clear", "--yes").stdout == f"nothing in {place / 'cache'}\n"


def test_clear_of_one_kind_leaves_the_others(place: Path) -> None:
    faces, bodies = keep("faces", seed=0), keep("bodies", seed=0)
    (place / "data" / "coma").mkdir(parents=True)
    assert "nothing of the kind bodices" in run("data", "clear", "bodices", "-y").stdout
    assert "removed 1 entry" in run("data", "clear", "bodies", "-y").stdout
    assert faces.is_dir()
    assert not bodies.exists()
    assert (place / "data" / "coma").is_dir()


def test_clear_leaves_what_is_being_made(place: Path) -> None:
    from geoskip.data.locks import try_lock

    entry = keep("faces", seed=0)
    with try_lock(place / "cache" / "locks" / f"{entry.name}.lock", 0.0):
        assert f"left {entry.name}: another process" in run("data", "clear", "--yes").stdout
    assert entry.is_dir()


def test_make_passes_on_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def made(result: Any) -> Any:
        def make(*places: Any, **options: Any) -> Any:
            asked.append({"places": places, **options})
            logging.getLogger("geoskip.data").info("this takes long")
            return result

        return make

    monkeypatch.setattr("geoskip.data.generated_faces.faces", made(mesh_set()))
    monkeypatch.setattr("geoskip.data.generated_bodies.bodies", made(body_set()))
    monkeypatch.setattr("geoskip.data.generated_faces.mixed_faces", made(mesh_set()))
    monkeypatch.setattr("geoskip.data.generated_bodies.moving_bodies", made(mesh_set()))
    monkeypatch.setattr("geoskip.data.generated_bodies.remeshed_bodies", made(body_set()))
    monkeypatch.setattr("geoskip.data.mesh_files.coma", made(mesh_set()))
    monkeypatch.setattr("geoskip.data.mesh_files.faust", made(body_set()))
    told = run("data", "make", "faces", "--people", "3", "--frames", "99", "--seed", "5")
    assert "10 meshes of 12 vertices, one unit is 1 mm; 8 for training, 2 for testing; cached in" in told.stdout
    assert told.stderr == "this takes long\n"
    run("data", "make", "bodies", "--people", "3", "--poses", "2", "--num-vertices", "99", "--seed", "5")
    run("data", "make", "mixed-faces", "--people", "3", "--takes", "2", "--frames-per-take", "4", "--seed", "5")
    run(
        "data",
        "make",
        "moving-bodies",
        "--people",
        "3",
        "--frames-per-take",
        "4",
        "--num-vertices",
        "99",
        "--seed",
        "5",
    )
    run("data", "make", "remeshed-bodies", "--people", "3", "--poses", "2", "--num-vertices", "99", "--seed", "5")
    run("data", "make", "coma", "x.zip")
    told = run("data", "make", "faust", "--geodesics")
    assert asked == [
        {"places": (), "people": 3, "frames": 99, "seed": 5},
        {"places": (), "people": 3, "poses": 2, "num_vertices": 99, "seed": 5},
        {"places": (), "people": 3, "takes": 2, "frames_per_take": 4, "seed": 5},
        {"places": (), "people": 3, "frames_per_take": 4, "num_vertices": 99, "seed": 5},
        {"places": (), "people": 3, "poses": 2, "num_vertices": 99, "seed": 5},
        {"places": (), "path": Path("x.zip")},
        {"places": ()},
    ]
    assert "162 vertices, one unit is 1000 mm" in told.stdout
    largest = float(told.stdout.partition("geodesics: up to ")[2].split()[0])
    assert largest == pytest.approx(1000 * np.pi, rel=0.05)


def test_the_log_is_shown_by_make_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**options: Any) -> None:
        raise ValueError("seed: no")

    monkeypatch.setattr("geoskip.data.generated_faces.faces", fail)
    run("data", "make", "faces")
    assert logging.getLogger("geoskip").handlers == []
    assert logging.getLogger("geoskip").level == logging.NOTSET


def test_made_data_is_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands and the functions mean the same entry."""
    arrays = {"verts": np.zeros((4, 12, 3), dtype=np.float32), "faces": icosphere(0).faces, "kept": np.arange(12)}
    monkeypatch.setattr("geoskip.data.generated_bodies._build_bodies", lambda *sizes: CacheEntry(arrays))
    told = run("data", "make", "bodies", "--people", "2", "--poses", "2", "--num-vertices", "12")
    assert told.exit_code == 0, told.output
    monkeypatch.setattr("geoskip.data.generated_bodies._build_bodies", None)
    assert len(bodies(2, 2, 12)) == 4
    assert "bodies: " + str(place / "cache" / "bodies-") in run("data", "check", "bodies").stdout


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_make_superpixels_of_images_in_the_data_folder(place: Path, name: str) -> None:
    write_mnist(place / "data" / name)
    told = run("data", "make", "superpixels", name, "--nodes", "20", "--degree", "6", "--workers", "1")
    assert told.exit_code == 0, told.output
    assert "6 graphs of 20 vertices and 1" in told.stdout
    assert "4 for training, 2 for testing" in told.stdout
    assert "num_segments=20" in run("data", "list").stdout


def test_make_superpixels_of_a_folder(place: Path) -> None:
    from PIL import Image

    for number in range(10):
        path = place / "images" / f"class{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (12, 12), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    told = run("data", "make", "superpixels", str(place / "images"), "--nodes", "9", "--degree", "4", "--workers", "1")
    assert "10 graphs of 9 vertices" in told.stdout, told.output
    assert "8 for training, 2 for testing" in told.stdout


def test_training_uses_the_recipe_that_the_data_were_made_with(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that make prints trains on just these graphs; evaluation and a second start use them, too."""
    from PIL import Image

    monkeypatch.chdir(place)
    for number in range(20):
        path = Path("my images", f"class{number % 2}", f"{number}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (12, 12), dtype=np.uint8)).save(path)
    recipe = ["--nodes", "30", "--degree", "5", "--workers", "1"]
    told = run("data", "make", "superpixels", "my images", *recipe)
    assert "20 graphs of 30 vertices" in told.stdout, told.output
    program, *words = shlex.split(told.stdout.splitlines()[-1].partition("train on it with: ")[2])
    assert program == "geoskip"

    def build(*args: Any) -> Any:
        raise AssertionError("the cache has them")

    monkeypatch.setattr("geoskip.data.image_sets.superpixels", build)
    small = ["--kernel-size", "2", "--epochs", "1", "--set", "model.channels=[4,5,6]", "--device", "cpu", "-o", "run"]
    trained = run(*words, *small)
    assert trained.exit_code == 0, trained.output
    opened = Run.open("run")
    assert opened.context.facts["num_vertices"] == 30
    assert opened.config.data_options == {"nodes": 30, "degree": 5.0, "workers": 1}
    assert run("evaluate", "run", "--device", "cpu", "--no-pictures").exit_code == 0
    assert "already finished" in run(*words, *small, "--workers", "2").stdout
    other = run("train", "classification", "--data", "my images", *small)
    assert other.exit_code == 2
    assert "--degree: the run in run was started with 5.0, not the default" in " ".join(other.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["superpixels", "--no-download"], "MNIST superpixels: train-images-idx3-ubyte"),
        (["superpixels", "--nodes", "10"], "10 superpixels cannot have 18.5733 neighbors"),
        (["superpixels", "nowhere"], "geoskip: nowhere: there is no such file or folder; check the name"),
        (["coma"], "CoMA faces: not found at"),
        (["faust", "elsewhere.zip"], "MPI-FAUST bodies: not found at elsewhere.zip"),
        (["faces", "--frames", "3"], "--frames: expected 144 or more, for 12 people × 12 expressions, got 3"),
        (["bodies", "--num-vertices", "20000"], "--num-vertices: expected 4 to 13348, got 20000"),
    ],
)
def test_what_cannot_be_made_is_one_line(arguments: list[str], fault: str) -> None:
    told = run("data", "make", *arguments)
    assert told.exit_code == 2
    assert told.stderr.startswith("geoskip: ")
    assert told.stderr.count("\n") == 1
    assert fault in told.stderr
