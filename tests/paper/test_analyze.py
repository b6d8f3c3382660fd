"""``geoskip analyze …`` as its users meet it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from docs.make_tables import depth_table
from typer.testing import CliRunner

from docs import analyze_depth, analyze_power
from geoskip.cli import app
from geoskip.data import MeshSet
from geoskip.inference import save_pretrained
from geoskip.meshes.formats import write_mesh
from geoskip.paper.findings import read_analysis
from geoskip.paper.small_sets import tiny_set
from geoskip.training.run import Run
from tests.paper.small_run import small_run, spheres

NEAREST = "nearest training item"


def analyze(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["analyze", *map(str, arguments)], env={"COLUMNS": "200"})


@pytest.fixture
def meshes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder of meshes, which a run's configuration can name."""
    monkeypatch.setenv("GEOSKIP_CACHE", str(tmp_path / "cache"))
    data = spheres(24)
    (tmp_path / "meshes").mkdir()
    for item in range(len(data)):
        write_mesh(data.mesh(item), tmp_path / "meshes" / f"{item:02d}.ply")
    return tmp_path / "meshes"


def make_run(folder: Path, meshes: Path, **chosen: Any) -> Path:
    small_run(folder, data=str(meshes), data_options={"unit_mm": 10.0}, **chosen)
    return folder


def test_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SUBDIVISIONS": 0, "TRAINED_DEPTHS": (1, 3), "STEPS": 2}.items():
        monkeypatch.setattr(analyze_depth, name, value)
    analyze_depth.main(["--seeds", "1", "--train-seeds", "1", "-o", str(tmp_path / "depth.json")])
    record = read_analysis(tmp_path / "depth.json")
    assert [line.count(" | ") for line in depth_table(record).splitlines()] == [3, 0, *[3] * 6]
    assert record.settings["vertices"] == 12
    assert record.settings["separation"]["vertices"] == 162
    untrained, trained = record.rows[: 9 * 7], record.rows[9 * 7 :]
    kinds = {(row["skip"], row["activation"]) for row in untrained}
    assert kinds == {(s, a) for s in ("none", "residual", "affine") for a in ("linear", "elu", "theory")}
    kinds = {(row["skip"], row["weights"]) for row in trained}
    assert kinds == {(s, w) for s in ("none", "residual", "affine") for w in ("initial", "trained")}
    assert len(trained) == 6 * 2


def test_power(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    analyze_power.main(["--seeds", "1", "-o", str(tmp_path / "power.json")])
    printed = capsys.readouterr().out
    lines = {line.split("│")[1].strip(): line.split("│")[2:-1] for line in printed.splitlines() if "│" in line}
    assert [cell.strip() for cell in lines["Aff-GIN-0"]] == ["0", "0", "0", "1", "1", "1", "1", "1", "1", "1"]
    rows = read_analysis(tmp_path / "power.json").rows
    assert len({(row["method"], row["pair"]) for row in rows}) == len(rows) == 15 * 10
    assert {row["seeds"] for row in rows} == {1}


def test_baselines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoskip.data.generated_faces.faces", lambda: spheres(24))
    monkeypatch.setattr("geoskip.data.generated_bodies.bodies", lambda: tiny_set("correspondence"))
    monkeypatch.setattr("geoskip.paper.baselines.STEPS", 1)
    monkeypatch.setenv("GEOSKIP_CACHE", str(tmp_path / "cache"))
    told = analyze("baselines", "faces", "bodies", "-o", tmp_path)
    assert told.exit_code == 0, told.output
    assert "Baselines on bodies" in told.output
    faces, bodies = (read_analysis(tmp_path / f"baselines-{name}.json") for name in ("faces", "bodies"))
    assert [row["method"] for row in faces.rows] == ["PCA 8", "PCA 16", "PCA 32", "PCA 64", "MLP 16", NEAREST]
    assert all(row["mean_mm"] >= 0 and row["median_mm"] >= 0 for row in faces.rows)
    majority, nearest = bodies.rows
    assert (majority["method"], nearest["method"]) == ("majority of 3 Weisfeiler-Lehman rounds", "nearest position")
    assert 0 <= nearest["accuracy_pct"] <= 100
    assert faces.commit


def test_baselines_of_a_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mixed_faces(split: str) -> MeshSet:
        return spheres({"people": 20, "mouth_extreme": 24}[split])

    monkeypatch.setattr("geoskip.data.generated_faces.mixed_faces", mixed_faces)
    monkeypatch.setattr("geoskip.paper.baselines.STEPS", 1)
    for split in ("people", "mouth_extreme"):
        told = analyze("baselines", "mixed-faces", "--split", split, "-o", tmp_path)
        assert told.exit_code == 0, told.output
        record = read_analysis(tmp_path / f"baselines-mixed-faces-{split}.json")
        assert record.settings == {"data": "mixed-faces", "split": split}
    told = analyze("baselines", "bodies", "--split", "people", "-o", tmp_path)
    assert "bodies has no such option" in told.output


def test_parts(tmp_path: Path, meshes: Path) -> None:
    run = make_run(tmp_path / "run", meshes)
    told = analyze("parts", run, "--samples", 2, "--picture", tmp_path / "a.png", "-o", tmp_path / "a.json")
    assert told.exit_code == 0, told.output
    assert "Aff-MoNet M=3" in told.output
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert len(read_analysis(tmp_path / "a.json").rows) == 3 + 2 * 3


def test_an_export_is_analyzed_like_its_run(tmp_path: Path, meshes: Path) -> None:
    run = make_run(tmp_path / "run", meshes, steps=(5,))
    save_pretrained(tmp_path / "model", Run.open(run).trained())
    for command, *options in (["parts", "--samples", 2], ["share"], ["smoothness", "--start"]):
        records = []
        for folder in (run, tmp_path / "model"):
            told = analyze(command, folder, *options, "--data", meshes, "-o", tmp_path / "a.json")
            assert told.exit_code == 0, told.output
            records.append(read_analysis(tmp_path / "a.json"))
        first, second = records
        without_steps = [[{k: v for k, v in row.items() if k != "step"} for row in record.rows] for record in records]
        assert without_steps[0] == without_steps[1]
        assert (first.settings, first.data_key) == (second.settings, second.data_key)
        assert first.data_key
        assert first.commit
    assert second.rows[0]["start"]


def test_parts_of_as_many_as_there_are(tmp_path: Path, meshes: Path) -> None:
    run = make_run(tmp_path / "run", meshes, test_items=3)
    told = analyze("parts", run)
    assert told.exit_code == 0, told.output
    assert "decoding by parts, 3 test items" in told.output


def test_share(tmp_path: Path, meshes: Path) -> None:
    run = make_run(tmp_path / "run", meshes, steps=(5,))
    told = analyze("share", run, "-o", tmp_path / "a.json")
    assert told.exit_code == 0, told.output
    assert "step 0" in told.output
    assert "step 5" in told.output
    record = read_analysis(tmp_path / "a.json")
    assert len(record.rows) == 2 * 5
    assert record.settings["method"] == "Aff-MoNet M=3"


def test_smoothness(tmp_path: Path, meshes: Path) -> None:
    runs = [
        make_run(tmp_path / f"{skip}-{seed}", meshes, skip=skip, seed=seed)
        for skip in ("none", "affine")
        for seed in (0, 1)
    ]
    told = analyze("smoothness", *runs, "--start", "-o", tmp_path / "a.json")
    assert told.exit_code == 0, told.output
    assert "at the start of training" in told.output
    assert "Aff-MoNet M=3" in told.output
    assert "±" in told.output
    rows = read_analysis(tmp_path / "a.json").rows
    assert [(row["skip"], row["seed"]) for row in rows] == [("affine", 0), ("affine", 1), ("none", 0), ("none", 1)]


@pytest.mark.parametrize("command", ["parts", "share", "smoothness"])
def test_a_folder_that_is_no_run_is_named(tmp_path: Path, command: str) -> None:
    told = analyze(command, tmp_path)
    assert told.exit_code == 2
    assert "not the folder of a run" in told.output
    assert "Traceback" not in told.output


def test_a_run_without_skips_has_no_shares(tmp_path: Path, meshes: Path) -> None:
    told = analyze("share", make_run(tmp_path / "run", meshes, skip="none"))
    assert told.exit_code == 2
    assert "no blocks with skips" in told.output


def test_a_run_of_another_task_has_no_decoder(tmp_path: Path, meshes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from geoskip.training.run import Run

    run = make_run(tmp_path / "run", meshes)
    monkeypatch.setattr(Run, "model", lambda self: torch.nn.Linear(1, 1))
    told = analyze("parts", run)
    assert told.exit_code == 2
    assert "only reconstruction has a decoder" in told.output
