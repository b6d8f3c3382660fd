"""``geoskip evaluate``, ``apply`` and ``export`` as their users meet them."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoskip.data import MeshSet
from geoskip.meshes import icosphere, read_mesh, write_mesh
from geoskip.training import pretrained
from geoskip.training.config import Config
from geoskip.training.pretrained import from_pretrained
from geoskip.training.run import Run
from geoskip.training.tasks import make_task
from tests.cli.test_cli import run
from tests.training import sets
from tests.training.runs import untrained


def folder_of(data: MeshSet, folder: Path) -> Path:
    folder.mkdir()
    for item, name in enumerate(data.names):
        write_mesh(data.mesh(item), folder / f"{name.replace(' ', '-')}.ply")
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of meshes and a run on it, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GEOSKIP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    folder_of(sets.meshes(20), Path("meshes"))
    run_on_meshes(Path("run"))
    return tmp_path


def run_on_meshes(folder: Path, **chosen: Any) -> None:
    config: Config = sets.config(data="meshes", data_options={"unit_mm": 100.0}, **chosen)
    task = make_task(config)
    made = Run.create(folder, config)
    made.write_context(task)
    made.write_model(task.make_model(), step=3)


def test_evaluate(place: Path) -> None:
    told = run("evaluate", "run", "--samples", "2")
    assert told.exit_code == 0, told.output
    stored = json.loads(Path("run/evaluation.json").read_text())
    assert f"{stored['metrics']['mean_mm']:.3f}" in told.stdout
    # A table breaks its caption into lines.
    assert "2 test items; step 3 of an unfinished run" in " ".join(told.stdout.split())
    assert sorted(path.name for path in Path("run/pictures").iterdir()) == ["mean-error.png", "reconstructions.png"]


def test_a_run_that_cannot_be_written_to_is_evaluated_elsewhere(place: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in Path("run").rglob("*")}
    done = run("evaluate", "run", "-o", "results")
    assert done.exit_code == 0, done.output
    assert json.loads(Path("results/evaluation.json").read_text())["weights_sha256"] == Run.open("run").weights_sha256
    assert Path("results/pictures/reconstructions.png").is_file()
    assert {path: path.stat().st_mtime_ns for path in Path("run").rglob("*")} == before
    run_on_meshes(Path("other"))
    refused = run("evaluate", "run", "-o", "other")
    assert refused.exit_code == 2
    assert "other: contains a run or an exported model; choose another folder with -o" in refused.output


def test_what_was_evaluated_is_named(place: Path) -> None:
    """Without the test, the validation items."""
    run_on_meshes(Path("chosen"), validation=0.3, test=False)
    evaluated = run("evaluate", "chosen", "--no-pictures")
    assert "5 validation items; step 3" in " ".join(evaluated.stdout.split())


def test_results_are_printed_where_pictures_cannot_be_drawn(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise PermissionError(13, "Permission denied", "run/pictures")

    monkeypatch.setattr("geoskip.report.picture_grids.write_pictures", refuse)
    told = run("evaluate", "run")
    assert told.exit_code == 2
    assert "Mean error" in told.stdout


def test_evaluate_as_json_without_pictures(place: Path) -> None:
    Path("meshes").rename("moved")
    told = run("evaluate", "run", "--json", "--no-pictures", "--data", "moved")
    assert told.exit_code == 0, told.output
    entries = json.loads(told.stdout)
    assert entries["metrics"] == json.loads(Path("run/evaluation.json").read_text())["metrics"]
    assert entries["files"] == [str(Path("run") / "evaluation.json")]
    assert not Path("run/pictures").exists()


@pytest.mark.parametrize("moved", ["nothing", "both", "data"])
def test_the_data_of_a_run_are_found_from_anywhere(moved: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = json.loads(run("evaluate", "run", "--no-pictures", "--json").stdout)["metrics"]
    home, options = place, []
    if moved == "both":
        home = place.with_name(f"{place.name}-elsewhere")
        place.rename(home)
    (home / "below").mkdir()
    monkeypatch.chdir(home / "below")
    if moved == "data":
        (home / "meshes").rename(home / "shapes")
        lost = run("evaluate", "../run", "--no-pictures")
        assert lost.exit_code == 2
        assert "--data: there is no such path" in " ".join(lost.stderr.split())
        options = ["--data", "../shapes"]
    told = run("evaluate", "../run", "--no-pictures", "--json", *options)
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["metrics"] == before


def test_every_command_that_needs_the_data_of_a_run_can_be_told_where_they_are(place: Path) -> None:
    run_on_meshes(Path("affine"), skip="affine")
    Path("meshes").rename("shapes")
    for words in ("evaluate --no-pictures", "analyze parts", "analyze share", "analyze smoothness --start"):
        assert run(*words.split(), "affine").exit_code == 2, words
        told = run(*words.split(), "affine", "--data", "shapes")
        assert told.exit_code == 0, told.output
    # Other meshes of the same connectivity.
    Path("others").mkdir()
    data = sets.meshes(12, seed=1)
    for item in range(len(data)):
        write_mesh(data.mesh(item), f"others/sphere-{item:03d}.ply")
    told = run("analyze", "parts", "affine", "--data", "others")
    assert told.exit_code == 2
    assert "not those that the run was trained on" in " ".join(told.stderr.split())


def test_apply_there_and_back(place: Path) -> None:
    inputs = ["meshes/sphere-000.ply", "meshes/sphere-010.ply"]
    told = run("apply", "run", *inputs, "-o", "rebuilt")
    assert told.exit_code == 0, told.output
    assert "meshes/sphere-000.ply: mean error " in told.stdout
    assert "wrote 2 files in rebuilt" in told.stdout
    assert run("apply", "run", *inputs, "-o", "codes", "--do", "encode").exit_code == 0
    codes = ["codes/sphere-000.npy", "codes/sphere-010.npy"]
    assert np.load(codes[0]).shape == (3,)
    assert run("apply", "run", *codes, "-o", "decoded", "--do", "decode").exit_code == 0
    for name in ("sphere-000.ply", "sphere-010.ply"):
        assert np.allclose(read_mesh(f"rebuilt/{name}").verts, read_mesh(f"decoded/{name}").verts, atol=1e-6)
    assert run("apply", "run", *inputs, "-o", "between", "--do", "interpolate", "--steps", "3").exit_code == 0
    assert len(list(Path("between").iterdir())) == 3
    told = run("apply", "run", *inputs, "-o", "as-text", "--do", "encode", "--latents", "json")
    assert json.loads(Path("as-text/sphere-000.json").read_text())["latent"] == pytest.approx(
        np.load(codes[0]).tolist()
    )
    told = run("apply", "run", *inputs, "-o", "others", "--format", "obj")
    assert sorted(path.name for path in Path("others").iterdir()) == ["sphere-000.obj", "sphere-010.obj"]


@pytest.mark.parametrize("do", ["reconstruct", "encode"])
def test_apply_lists_all_bad_files_at_once_and_can_leave_them_out(do: str, place: Path) -> None:
    good = ["meshes/sphere-000.ply", "meshes/sphere-010.ply"]
    write_mesh(icosphere(2), "fine.ply")
    Path("junk.ply").write_text("junk")
    Path("half.ply").write_bytes(Path(good[0]).read_bytes()[:300])
    bad = ["absent.ply", "fine.ply", "junk.ply", "half.ply", "run/config.json", "meshes"]
    mixed = [good[0], *bad, good[1]]
    told = run("apply", "run", *mixed, "-o", "out", "--do", do)
    assert told.exit_code == 2
    *faults, summary = told.stderr.splitlines()
    assert [line.split(":")[1].strip() for line in faults] == bad
    assert summary.startswith("geoskip: 6 of 8 files cannot be used; nothing was written: ")
    assert "--skip-bad" in summary
    assert not Path("out").exists()
    told = run("apply", "run", *mixed, "-o", "out", "--do", do, "--skip-bad")
    assert told.exit_code == 1
    assert [line.split(":")[1].strip() for line in told.stderr.splitlines()] == bad
    assert told.stdout.splitlines()[-1] == "wrote 2 files in out; skipped 6 of 8 inputs"
    assert run("apply", "run", *good, "-o", "alone", "--do", do).exit_code == 0
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == {
        path.name: path.read_bytes() for path in Path("alone").iterdir()
    }
    told = run("apply", "run", *bad, "-o", "none", "--do", do, "--skip-bad")
    assert told.exit_code == 2
    assert "none of the 6 files can be used" in told.stderr


def test_the_other_actions_list_all_bad_files_too(place: Path) -> None:
    untrained(Path("matching"), "correspondence")
    Path("junk.ply").write_text("junk")
    for run_folder, do, good, bad in (
        ("matching", "transfer", "meshes/sphere-000.ply", ["absent.ply", "junk.ply"]),
        ("run", "decode", "code.npy", ["absent.npy", "junk.ply"]),
    ):
        np.save("code.npy", np.zeros(3))
        told = run("apply", run_folder, good, *bad, "-o", do, "--do", do)
        assert told.exit_code == 2
        assert [line.split(":")[1].strip() for line in told.stderr.splitlines()[:-1]] == bad
        assert run("apply", run_folder, good, *bad, "-o", do, "--do", do, "--skip-bad").exit_code == 1
        assert len(list(Path(do).iterdir())) == 1
    told = run("apply", "run", "absent.ply", "junk.ply", "-o", "between", "--do", "interpolate", "--skip-bad")
    assert told.exit_code == 2
    assert [line.split(":")[1].strip() for line in told.stderr.splitlines()[:-1]] == ["absent.ply", "junk.ply"]


def test_the_weights_of_an_unfinished_run_are_not_passed_off_as_final(place: Path) -> None:
    use = [["apply", "run", "meshes/sphere-000.ply", "-o"], ["export", "run", "-o"]]
    for number, words in enumerate(use):
        assert "the run is not finished" in run(*words, f"out{number}").output
    Path("run/record.json").write_text("{}")
    for number, words in enumerate([*use, ["apply", "out1", "meshes/sphere-000.ply", "-o"]], start=2):
        assert "the run is not finished" not in run(*words, f"out{number}").output


def test_the_training_data_are_not_needed(place: Path) -> None:
    Path("meshes/sphere-000.ply").rename("one.ply")
    for path in Path("meshes").iterdir():
        path.unlink()
    assert "wrote 1 file in out\n" in run("apply", "run", "one.ply", "-o", "out").stdout
    assert run("export", "run", "-o", "model").exit_code == 0
    assert run("apply", "model", "one.ply", "-o", "out2").exit_code == 0
    assert Path("out/one.ply").read_bytes() == Path("out2/one.ply").read_bytes()


def test_labels_by_correspondence(place: Path) -> None:
    untrained(Path("matching"), "correspondence")
    np.save("parts.npy", np.arange(42) % 5)
    told = run("apply", "matching", "meshes/sphere-000.ply", "-o", "out", "--labels", "parts.npy")
    assert told.exit_code == 0, told.output
    matches = np.load("out/sphere-000.matches.npy")
    assert (np.load("out/sphere-000.labels.npy") == matches % 5).all()


def test_export(place: Path) -> None:
    told = run("export", "run", "-o", "model")
    assert told.exit_code == 0, told.output
    names = sorted(path.name for path in Path("model").iterdir())
    assert names == ["config.json", "manifest.json", "model.safetensors"]
    assert from_pretrained("model").config == replace(Run.open("run").config, data="meshes"), (
        "no folder of this machine"
    )
    again = run("export", "run", "-o", "model")
    assert again.exit_code == 2
    assert "--force" in " ".join(again.stderr.split())
    assert run("export", "run", "-o", "model", "--force").exit_code == 0


@pytest.mark.compiled
def test_export_of_programs(place: Path) -> None:
    untrained(Path("small"), model={"channels": [4]})
    told = run("export", "small", "-o", "model", "--program", "--onnx")
    assert told.exit_code == 0, told.output
    assert "onnxruntime agrees to" in told.stdout
    assert {"model.onnx", "model.pt2"} <= {path.name for path in Path("model").iterdir()}


def test_a_classifier_has_no_program_and_nothing_is_written(place: Path) -> None:
    untrained(Path("digits"), "classification")
    told = run("export", "digits", "-o", "model", "--onnx")
    assert told.exit_code == 2
    assert "cannot be exported as a program" in told.stderr
    assert not Path("model").exists()
    assert run("export", "digits", "-o", "model").exit_code == 0


WRONG = [
    (["evaluate", "absent"], "absent: there is no such run"),
    (["evaluate", "meshes"], "not the folder of a run"),
    (["evaluate", "run", "--data", "nowhere"], "there is no such path"),
    (["apply", "absent", "one.ply", "-o", "out"], "absent: there is no such run"),
    (["apply", "run", "absent.ply", "-o", "out"], "geoskip: absent.ply: there is no such file or folder; check"),
    (["apply", "run", "run/config.json", "-o", "out"], "unknown mesh format"),
    (["apply", "run", "meshes", "-o", "out"], "meshes: a folder; name the meshes in it"),
    (["apply", "run", "fine.ply", "-o", "out"], "162 vertices and 320 faces, not 42 vertices and 80 faces; export"),
    (["apply", "run", "meshes/sphere-000.ply"], "-o"),
    (["apply", "run", "meshes/sphere-000.ply", "-o", "out", "--do", "guess"], "--do"),
    (["apply", "run", "meshes/sphere-000.ply", "-o", "out", "--do", "transfer"], "choose from reconstruct, encode"),
    (["apply", "run", "meshes/sphere-000.ply", "-o", "out", "--size", "big"], "HEIGHT,WIDTH"),
    (["apply", "run", "meshes/sphere-000.ply", "-o", "out", "--format", "doc"], "unknown mesh format"),
    (["apply", "run", "meshes/sphere-000.ply", "-o", "out", "--device", "abacus"], "unknown name 'abacus'"),
    (["apply", "run", "meshes/sphere-000.ply", "-o", "out", "--steps", "3"], "--steps: has no effect on"),
    (["apply", "run", "meshes/sphere-000.ply", "-o", "out", "--latents", "npy"], "--latents: has no effect on"),
    (["export", "run", "-o", "run", "--force"], "run: contains a run; choose another folder with -o"),
    (["evaluate", "run", "--device", "abacus"], "unknown name 'abacus'"),
    (["export", "meshes", "-o", "out"], "not the folder of a run"),
    (["export", "run", "-o", "fine.ply"], "geoskip: fine.ply: is a file, and a folder is needed; choose another"),
    (["apply", "run", "meshes/sphere-000.ply", "-o", "fine.ply"], "geoskip: fine.ply: is a file, and a folder is"),
]


def test_what_is_wrong_is_said_in_a_line(place: Path) -> None:
    write_mesh(icosphere(2), "fine.ply")
    for arguments, named in WRONG:
        told = run(*arguments)
        assert told.exit_code == 2, arguments
        assert named in " ".join(told.stderr.split())
        assert "Traceback" not in told.output
        assert not Path("out").exists()


def test_an_export_that_was_cut_off_is_made_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = pretrained.write_with_checksum

    def full(path: Path, data: bytes) -> None:
        if path.name == "config.json":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        real(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(pretrained, "write_with_checksum", full)
        assert run("export", "run", "-o", "model").exit_code == 2
    assert run("export", "run", "-o", "model").exit_code == 0
    from_pretrained("model")
    assert not list(Path("model").glob(".*"))
    assert run("export", "run", "-o", "model").exit_code == 2
