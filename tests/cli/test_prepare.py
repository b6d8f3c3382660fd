"""``geoskip prepare`` as its users meet it."""

import json
from pathlib import Path

import numpy as np
import pytest

from geoskip.data import load_template
from geoskip.meshes import Mesh, grid, icosphere, write_mesh
from tests.cli.test_cli import run


@pytest.fixture
def ball(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A template in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_mesh(icosphere(2), "ball.ply")
    return tmp_path


def test_one_file_with_the_levels_asked_for(ball: Path) -> None:
    told = run("prepare", "ball.ply", "--factors", "4,3", "--unit-mm", "100", "--spiral-length", "9")
    assert told.exit_code == 0, told.output
    template = load_template(ball / "ball.template.safetensors")
    assert template.hierarchy.sizes == (162, 41, 14)
    assert template.unit_mm == 100
    spirals = template.hierarchy.levels[0].spirals
    assert spirals is not None
    assert spirals.shape == (162, 9)
    assert sorted(path.name for path in ball.iterdir()) == ["ball.ply", "ball.template.safetensors"]


def test_an_existing_file_is_overwritten_only_with_force(ball: Path) -> None:
    before = Path("ball.ply").read_bytes()
    refused = run("prepare", "ball.ply", "--factors", "4", "-o", "ball.ply")
    assert refused.exit_code == 2
    assert "ball.ply: already exists; choose another file with -o, or overwrite it with --force" in refused.output
    assert Path("ball.ply").read_bytes() == before
    assert run("prepare", "ball.ply", "--factors", "4", "-o", "ball.ply", "--force").exit_code == 0
    assert load_template(ball / "ball.ply").hierarchy.sizes == (162, 41)


def test_the_table_has_a_line_for_each_level(ball: Path) -> None:
    told = run("prepare", "ball.ply", "--targets", "42,12", "--unit-mm", "100").stdout
    lines = [line.split() for line in told.splitlines()]
    assert ["0", "162", "320", "480"] in [line[:4] for line in lines]
    assert ["1", "42", "80", "120"] in [line[:4] for line in lines]
    assert ["2", "12", "20", "30"] in [line[:4] for line in lines]
    finest = next(line for line in lines if line[:2] == ["0", "162"])
    assert 20 < float(finest[4]) < 40  # millimetres: the sphere has a radius of 100
    assert finest[5:] == ["0", "0", "1", "6"]
    assert "wrote ball.template.safetensors" in told


def test_the_summary_as_json(ball: Path) -> None:
    told = json.loads(run("prepare", "ball.ply", "--factors", "4", "-o", "out/my.file", "--json").stdout)
    assert [level["vertices"] for level in told["levels"]] == [162, 41]
    assert told["levels"][0]["topology"] == icosphere(2).topology_hash()
    assert told["files"] == [str(Path("out") / "my.file")]
    assert load_template(ball / "out" / "my.file").hierarchy.sizes == (162, 41)


def test_no_spirals_and_no_unit(ball: Path) -> None:
    run("prepare", "ball.ply", "--factors", "4", "--spiral-length", "0")
    template = load_template(ball / "ball.template.safetensors")
    assert template.hierarchy.levels[0].spirals is None
    assert template.unit_mm is None


@pytest.mark.parametrize("up", ["y", "z"])
def test_pictures_of_the_levels(ball: Path, up: str) -> None:
    from PIL import Image

    told = run("prepare", "ball.ply", "--factors", "4,3", "--pictures", "seen", "--up", up)
    assert "wrote seen/ball-levels.png" in told.stdout
    with Image.open(ball / "seen" / "ball-levels.png") as image:
        width, height = image.size
        assert np.asarray(image).std() > 10
    assert width * 2 == height * 3


def test_faces_that_repeat_a_vertex_are_left_out_on_demand(ball: Path) -> None:
    mesh = grid(5, 5)
    lines = [
        "OFF",
        "25 33 0",
        *(" ".join(map(str, v)) for v in mesh.verts),
        *(f"3 {a} {b} {c}" for a, b, c in mesh.faces),
    ]
    (ball / "flat.off").write_text("\n".join([*lines, "3 0 0 1"]))
    told = run("prepare", "flat.off", "--factors", "4")
    assert told.exit_code == 2
    assert "faces repeat a vertex" in told.stderr
    assert run("prepare", "flat.off", "--factors", "4", "--drop-degenerate").exit_code == 0
    assert load_template(ball / "flat.template.safetensors").mesh.num_faces == 32


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["absent.ply"], "there is no such file or folder; check the name"),
        (["ball.txt"], "unknown mesh format '.txt'"),
        (["ball.ply", "--factors", "4,4,4,4"], "a triangle needs 3"),
        (["ball.ply", "--factors", "4;4"], "expected positive integers separated by commas"),
        (["ball.ply", "--factors", "4", "--targets", "40"], "not both"),
        (["ball.ply", "--targets", "200"], "each must be at most the one before"),
        (["ball.ply", "--factors", "4", "--unit-mm", "-1"], "length of one unit"),
        (["ball.ply", "--spiral-length", "-1"], "--spiral-length"),
        (["ball.ply", "--up", "x"], "--up"),
    ],
)
def test_bad_input_is_said_and_nothing_is_written(ball: Path, arguments: list[str], named: str) -> None:
    told = run("prepare", *arguments)
    assert told.exit_code == 2
    assert named in " ".join(told.stderr.split())
    assert "Traceback" not in told.output
    assert [path.name for path in ball.iterdir()] == ["ball.ply"]


def test_a_mesh_without_faces_to_coarsen_is_said(ball: Path) -> None:
    (ball / "points.off").write_text("OFF\n4 0 0\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n")
    told = run("prepare", "points.off")
    assert told.stderr == "geoskip: points.off: no faces\n"


def test_parts_and_edges_of_three_faces_are_counted(ball: Path) -> None:
    book = Mesh(np.random.default_rng(0).random((9, 3)), np.array([[0, 1, 2], [0, 1, 3], [0, 1, 4], [5, 6, 7]]))
    write_mesh(book, "book.ply")
    levels = json.loads(run("prepare", "book.ply", "--targets", "8", "--json").stdout)["levels"]
    assert [level["parts"] for level in levels] == [3, 2]
    assert [level["nonmanifold_edges"] for level in levels] == [1, 1]
