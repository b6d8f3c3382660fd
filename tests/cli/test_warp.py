"""``geoskip warp`` as its users meet it."""

import json
from pathlib import Path

import numpy as np
import pytest

from geoskip.meshes import icosphere, read_mesh, write_mesh
from tests.cli.test_cli import run

BALL = icosphere(2)
HELD = [0, 11, 3, 40, 77, 120]


@pytest.fixture
def ball(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mesh, landmarks on it, and targets: twice as far out, but for the first one."""
    monkeypatch.chdir(tmp_path)
    write_mesh(BALL, "ball.ply")
    write_mesh(icosphere(2, radius=2.0), "big.obj")
    Path("held.json").write_text(json.dumps(HELD))
    Path("few.json").write_text(json.dumps(HELD[:3]))
    points = 2 * BALL.verts[HELD]
    points[0] += 0.5
    Path("targets.csv").write_text("x,y,z\n" + "\n".join(",".join(map(repr, map(float, point))) for point in points))
    return tmp_path


def test_landmarks_meet_their_targets(ball: Path) -> None:
    told = run("warp", "ball.ply", "held.json", "targets.csv")
    assert told.exit_code == 0, told.output
    assert "6 landmarks, linear kernel, a polynomial part of degree 1" in told.stdout
    assert "wrote ball.warped.ply" in told.stdout
    warped = read_mesh(ball / "ball.warped.ply")
    wanted = 2 * BALL.verts[HELD] + np.array([[0.5]] + [[0.0]] * 5)
    np.testing.assert_allclose(warped.verts[HELD], wanted, atol=1e-9)
    assert warped.topology_hash() == BALL.topology_hash()


def test_the_mesh_itself_is_overwritten_only_with_force(ball: Path) -> None:
    before = Path("ball.ply").read_bytes()
    refused = run("warp", "ball.ply", "held.json", "targets.csv", "-o", "ball.ply")
    assert refused.exit_code == 2
    assert "ball.ply: already exists; choose another file with -o, or overwrite it with --force" in refused.output
    assert Path("ball.ply").read_bytes() == before
    assert run("warp", "ball.ply", "held.json", "targets.csv", "-o", "ball.ply", "--force").exit_code == 0
    assert Path("ball.ply").read_bytes() != before


def test_vertex_numbers_of_another_mesh(ball: Path) -> None:
    told = run("warp", "ball.ply", "held.json", "held.json", "--target-mesh", "big.obj", "-o", "out.off", "--json")
    summary = json.loads(told.stdout)
    np.testing.assert_allclose(read_mesh(ball / "out.off").verts, 2 * BALL.verts, atol=1e-9)
    np.testing.assert_allclose(summary["affine"], 2 * np.eye(3), atol=1e-9)
    assert summary["largest_miss"] < 1e-9
    assert summary["mean_move"] == pytest.approx(1)
    assert summary["file"] == "out.off"


def test_without_the_affine_part_it_is_not_a_scaling(ball: Path) -> None:
    run("warp", "ball.ply", "held.json", "held.json", "--target-mesh", "big.obj", "--no-affine", "-o", "out.ply")
    warped = read_mesh(ball / "out.ply").verts
    np.testing.assert_allclose(warped[HELD], 2 * BALL.verts[HELD], atol=1e-9)
    assert np.abs(warped - 2 * BALL.verts).max() > 0.05


def test_a_local_edit(ball: Path) -> None:
    Path("one.json").write_text("[0]")
    Path("there.json").write_text("[[0, 0, 1.3]]")
    options = ["--no-affine", "--kernel", "wendland_c2", "--width", "0.5"]
    told = run("warp", "ball.ply", "one.json", "there.json", *options, "-o", "out.ply")
    assert "wendland_c2 kernel, no polynomial part" in told.stdout
    far = np.linalg.norm(BALL.verts - BALL.verts[0], axis=1) >= 0.5
    warped = read_mesh(ball / "out.ply").verts
    assert np.array_equal(warped[far], BALL.verts[far])
    assert (warped[~far, 2] > BALL.verts[~far, 2]).all()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["absent.ply", "held.json", "targets.csv"], "there is no such file or folder; check the name"),
        (["ball.ply", "absent.json", "targets.csv"], "there is no such file or folder; check the name"),
        (["ball.ply", "held.json", "ball.ply"], "landmarks are read from .json and .csv files"),
        (["ball.ply", "held.json", "targets.csv", "--kernel", "gauss"], "kernel: 'gauss' is not one of"),
        (
            ["ball.ply", "held.json", "targets.csv", "--kernel", "gaussian"],
            "--width: the gaussian kernel needs a width",
        ),
        (["ball.ply", "held.json", "targets.csv", "--width", "0"], "--width: must be above 0, got 0"),
        (["ball.ply", "held.json", "targets.csv", "--width", "1"], "--width: the linear kernel has no width"),
        (["ball.ply", "few.json", "few.json"], "landmarks: the affine part needs 4 or more, got 3"),
        (["ball.ply", "held.json", "targets.csv", "--smoothing", "-1"], "smoothing: must be at least 0, got -1"),
        (["ball.ply", "held.json", "targets.csv", "-o", "out.txt"], "unknown mesh format '.txt'"),
    ],
)
def test_bad_input_is_said_and_nothing_is_written(ball: Path, arguments: list[str], named: str) -> None:
    before = sorted(path.name for path in ball.iterdir())
    told = run("warp", *arguments)
    assert told.exit_code == 2
    assert named in " ".join(told.stderr.split())
    assert "Traceback" not in told.output
    assert sorted(path.name for path in ball.iterdir()) == before
