"""Trained models on a user's own files."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from geoskip.data import Split, TemplateError, superpixel_set
from geoskip.inference import user_files
from geoskip.inference.apply import ActionResult, classify, decode, encode, interpolate, reconstruct, transfer
from geoskip.inference.predictors import ImageClassifier, Matcher, MeshCoder
from geoskip.inference.user_files import BadFiles, Inputs, Outputs, mesh_suffix, read_codes, read_values
from geoskip.meshes import Mesh, icosphere, read_mesh, write_mesh
from geoskip.records.files import mark_unfinished
from geoskip.training.pretrained import from_pretrained, load, save_pretrained
from geoskip.training.run import Run
from geoskip.training.tasks.classification import Classification
from geoskip.training.tasks.correspondence import Correspondence
from geoskip.training.tasks.reconstruction import Reconstruction
from geoskip.training.trained import Trained
from tests.training import sets
from tests.training.runs import perturbed, untrained

CONTEXT = multiprocessing.get_context("forkserver")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.fixture
def coding(tmp_path: Path) -> tuple[Trained, Reconstruction]:
    run, task = untrained(tmp_path / "run")
    assert isinstance(task, Reconstruction)
    return run.trained(), task


@pytest.fixture
def spheres(tmp_path: Path) -> list[Path]:
    """Three test items as files."""
    data = sets.meshes()
    (tmp_path / "in").mkdir()
    paths = [tmp_path / "in" / f"{item}{suffix}" for item, suffix in zip("abc", (".ply", ".obj", ".off"), strict=True)]
    for item, path in zip(data.split.test.tolist(), paths, strict=False):
        write_mesh(data.mesh(item), path)
    return paths


def test_the_coder_does_what_the_task_does(coding: tuple[Trained, Reconstruction]) -> None:
    trained, task = coding
    verts = task.data.verts(task.data.split.test)
    expected = task.reconstruct(perturbed(task.make_model()).eval(), verts)
    assert torch.equal(MeshCoder(trained).reconstruct(verts), expected)


@pytest.mark.usefixtures("unchecked")
def test_arrays_of_another_shape_are_refused(coding: tuple[Trained, Reconstruction]) -> None:
    coder = MeshCoder(coding[0])
    with pytest.raises(TypeError, match="verts: expected a Tensor, got"):
        coder.encode(np.zeros((1, 42, 3)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"verts: expected shape \[meshes, 42, 3\], got \[42, 3\]"):
        coder.encode(torch.zeros(42, 3))
    with pytest.raises(ValueError, match=rf"codes: expected shape \[meshes, {coder.latent}\], got \[1, 99\]"):
        coder.decode(torch.zeros(1, 99))


def test_many_meshes_go_in_parts(coding: tuple[Trained, Reconstruction]) -> None:
    coder, task = MeshCoder(coding[0]), coding[1]
    verts = task.data.verts(torch.arange(14)).repeat(5, 1, 1)
    one_by_one = torch.cat([coder.encode(one[None]) for one in verts])
    assert torch.allclose(coder.encode(verts), one_by_one, atol=1e-5)


def test_meshes_in_any_format_come_back_in_it(
    coding: tuple[Trained, Reconstruction], spheres: list[Path], tmp_path: Path
) -> None:
    done = reconstruct(coding[0], spheres, Outputs(tmp_path / "out"))
    assert names(tmp_path / "out") == ["a.ply", "b.obj", "c.off"]
    assert [path.name for path in done.written] == ["a.ply", "b.obj", "c.off"]
    for path, (name, told) in zip(spheres, done.messages, strict=True):
        true, found = read_mesh(path), read_mesh(tmp_path / "out" / path.name)
        assert found.topology_hash() == true.topology_hash()
        error = np.linalg.norm(found.verts - true.verts, axis=1).mean() * 100
        assert name == str(path)
        assert told == f"mean error {error:.3f} mm"


def test_encode_then_decode_is_reconstruct(
    coding: tuple[Trained, Reconstruction], spheres: list[Path], tmp_path: Path
) -> None:
    whole = reconstruct(coding[0], spheres, Outputs(tmp_path / "whole"), ".ply").written
    for suffix in (".npy", ".json"):
        codes = encode(coding[0], spheres, Outputs(tmp_path / f"codes{suffix}"), suffix).written
        assert [path.suffix for path in codes] == [suffix] * 3
        applied = decode(coding[0], codes, Outputs(tmp_path / f"meshes{suffix}"))
        decoded = applied.written
        assert {told for _, told in applied.messages} == {"1 code"}
        for one, other in zip(whole, decoded, strict=True):
            assert np.allclose(read_mesh(one).verts, read_mesh(other).verts, atol=1e-6)


def test_a_file_of_several_codes_becomes_numbered_meshes(
    coding: tuple[Trained, Reconstruction], tmp_path: Path
) -> None:
    np.save(tmp_path / "many.npy", np.zeros((2, 3)))
    done = decode(coding[0], [tmp_path / "many.npy"], Outputs(tmp_path / "out"), ".off")
    assert done.messages[0][1].endswith(" codes")
    assert names(tmp_path / "out") == ["many-000.off", "many-001.off"]


def test_an_interpolation_is_straight_and_ends_where_it_should(
    coding: tuple[Trained, Reconstruction], spheres: list[Path], tmp_path: Path
) -> None:
    coder = MeshCoder(coding[0])
    first, last = (coder.encode(torch.tensor(read_mesh(path).verts)[None])[0] for path in spheres[:2])
    codes = torch.stack([first + k / 4 * (last - first) for k in range(5)])
    done = interpolate(coding[0], spheres[:2], Outputs(tmp_path / "out"), 5)
    assert [path.name for path in done.written] == [f"a-to-b-{k:03d}.ply" for k in range(5)]
    for path, mesh in zip(done.written, coder.meshes(coder.decode(codes)), strict=True):
        assert np.allclose(read_mesh(path).verts, mesh.verts, atol=1e-6)
    np.save(tmp_path / "last.npy", last.numpy())
    mixed = interpolate(coding[0], [spheres[0], tmp_path / "last.npy"], Outputs(tmp_path / "mixed"), 2).written
    assert np.allclose(read_mesh(mixed[-1]).verts, read_mesh(done.written[-1]).verts, atol=1e-6)


def test_what_an_interpolation_is_not(
    coding: tuple[Trained, Reconstruction], spheres: list[Path], tmp_path: Path
) -> None:
    outputs = Outputs(tmp_path / "out")
    with pytest.raises(ValueError, match="interpolate: expected two files"):
        interpolate(coding[0], spheres, outputs)
    with pytest.raises(ValueError, match="steps: expected 2 or more"):
        interpolate(coding[0], spheres[:2], outputs, 1)
    np.save(tmp_path / "many.npy", np.zeros((2, 3)))
    with pytest.raises(ValueError, match="2 codes; interpolation"):
        interpolate(coding[0], [spheres[0], tmp_path / "many.npy"], outputs)
    assert names(tmp_path / "out") == []


def test_another_topology_is_refused_by_its_hash_before_anything_is_written(
    coding: tuple[Trained, Reconstruction], spheres: list[Path], tmp_path: Path
) -> None:
    sphere = icosphere(1)
    order = np.random.default_rng(0).permutation(42)
    shuffled = Mesh(sphere.verts[order], np.argsort(order)[sphere.faces])
    for mesh, fault in (
        (icosphere(2), "trained on: 162 vertices and 320 faces, not 42 vertices and 80 faces"),
        (shuffled, "order"),
    ):
        write_mesh(mesh, tmp_path / "other.ply")
        for action in (reconstruct, encode):
            with pytest.raises(BadFiles, match=rf"other\.ply: .*{fault}.*; export .* kept, or train a model"):
                action(coding[0], [*spheres, tmp_path / "other.ply"], Outputs(tmp_path / "out"))
    assert names(tmp_path / "out") == []


@pytest.mark.parametrize("scale", [1000.0, 0.001])
def test_a_mesh_in_another_unit_is_refused(
    coding: tuple[Trained, Reconstruction], tmp_path: Path, scale: float
) -> None:
    """Its reconstruction would be the nonsense of normalized positions far outside of those of the training."""
    run, task = untrained(tmp_path / "matching", "correspondence")
    assert isinstance(task, Correspondence)
    for action, trained, mesh in (
        (reconstruct, coding[0], coding[1].data.mesh(0)),
        (transfer, run.trained(), task.data.meshes[0]),
    ):
        write_mesh(mesh.with_verts(scale * mesh.verts), tmp_path / "scaled.ply")
        with pytest.raises(ValueError, match=r"scaled\.ply: .* than the .*; scale it to the same unit"):
            action(trained, [tmp_path / "scaled.ply"], Outputs(tmp_path / "out"))
    assert names(tmp_path / "out") == []


@pytest.mark.parametrize("change", ["unit", "position", "nothing"])
def test_a_mesh_far_from_those_of_the_training_is_warned_about(
    coding: tuple[Trained, Reconstruction], caplog: pytest.LogCaptureFixture, change: str
) -> None:
    """Every mesh of the training set is accepted silently, also the most unusual ones."""
    run, matching = untrained(coding[0].folder.parent / "matching", "correspondence")
    for model, meshes in (
        (MeshCoder(coding[0]), [coding[1].data.mesh(item) for item in range(len(coding[1].data.names))]),
        (Matcher(run.trained()), matching.data.meshes),
    ):
        caplog.clear()
        for mesh in meshes:
            verts = {"unit": 10 * mesh.verts, "position": mesh.verts + np.array([0, 0, 20]), "nothing": mesh.verts}[
                change
            ]
            model.check(mesh.with_verts(verts), "scan.ply")
        expected = 0 if change == "nothing" else len(meshes)
        warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert len(warnings) == expected
        assert all("scan.ply: its vertices are" in warning and "check its unit" in warning for warning in warnings)


def test_the_fault_of_a_single_file_is_raised_as_it_is(coding: tuple[Trained, Reconstruction], tmp_path: Path) -> None:
    write_mesh(icosphere(2), tmp_path / "other.ply")
    with pytest.raises(TemplateError, match="162 vertices"):
        reconstruct(coding[0], [tmp_path / "other.ply"], Outputs(tmp_path / "out"), skip_bad=True)


@given(bad=st.lists(st.booleans(), min_size=2, max_size=8), skip_bad=st.booleans())
def test_all_bad_files_are_reported_at_once_or_all_left_out(bad: list[bool], skip_bad: bool) -> None:
    paths = [Path(f"{number}.ply") for number in range(len(bad))]
    wrong = [path for path, is_bad in zip(paths, bad, strict=True) if is_bad]
    inputs, tried = Inputs(paths, skip_bad), []

    def read(path: Path) -> str:
        tried.append(path)
        if path in wrong:
            raise ValueError(f"{path}: is bad")
        return path.stem

    if wrong and not (skip_bad and len(wrong) < len(paths)):
        with pytest.raises(BadFiles) as refused:
            inputs.each(read)
        assert refused.value.faults == tuple(f"{path}: is bad" for path in wrong)
    else:
        assert inputs.each(read) == [path.stem for path in paths if path not in wrong]
        assert inputs.paths == [path for path in paths if path not in wrong]
        assert inputs.skipped == [f"{path}: is bad" for path in wrong]
    assert tried == paths


def test_nothing_is_overwritten_unless_asked(
    coding: tuple[Trained, Reconstruction], spheres: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "c.off").write_text("mine")
    with pytest.raises(ValueError, match=r"c\.off: already exists.*--force"):
        reconstruct(coding[0], spheres, Outputs(tmp_path / "out"))
    assert names(tmp_path / "out") == ["c.off"]
    assert (tmp_path / "out" / "c.off").read_text() == "mine"
    reconstruct(coding[0], spheres, Outputs(tmp_path / "out", force=True))
    assert read_mesh(tmp_path / "out" / "c.off").num_vertices == 42


def test_two_inputs_with_one_output_are_refused(
    coding: tuple[Trained, Reconstruction], spheres: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"a\.npy is also that of .*a\.ply"):
        encode(coding[0], [spheres[0], spheres[0]], Outputs(tmp_path / "out"))
    assert names(tmp_path / "out") == []


def test_inputs_of_one_name_in_different_folders(coding: tuple[Trained, Reconstruction], tmp_path: Path) -> None:
    """Subjects are often in folders, with the same names of files in each."""
    paths = [tmp_path / folder / f"pose{pose}.ply" for folder in ("s00", "s01") for pose in range(2)]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        write_mesh(sets.meshes().mesh(0), path)
    out = tmp_path / "out"
    encode(coding[0], paths, Outputs(out))
    codes = ["s00-pose0.npy", "s00-pose1.npy", "s01-pose0.npy", "s01-pose1.npy"]
    assert names(out) == codes
    reconstruct(coding[0], paths[1:3], Outputs(tmp_path / "short"))
    assert names(tmp_path / "short") == ["pose0.ply", "pose1.ply"]


@pytest.mark.parametrize(
    ("name", "contents", "fault"),
    [
        ("code.txt", b"1 2 3", "latent codes are in"),
        ("code.npy", b"nonsense", "cannot be read as numbers"),
        ("code.json", b"{", "cannot be read as numbers"),
        ("code.json", b'{"other": [1, 2, 3]}', "cannot be read as numbers"),
        ("code.json", b'["a", "b", "c"]', "numbers are needed"),
        ("code.json", b"[1, 2]", "codes of 3 numbers"),
        ("code.json", b"[]", "codes of 3 numbers"),
        ("code.json", b"[1, 2, Infinity]", "not finite"),
    ],
)
def test_codes_that_are_none(tmp_path: Path, name: str, contents: bytes, fault: str) -> None:
    (tmp_path / name).write_bytes(contents)
    with pytest.raises(ValueError, match=rf"{name}: .*{fault}"):
        read_codes(tmp_path / name, 3)


def test_pickled_codes_are_not_run(tmp_path: Path) -> None:
    np.save(tmp_path / "code.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="cannot be read as numbers"):
        read_codes(tmp_path / "code.npy", 3)


def test_formats_of_meshes() -> None:
    assert mesh_suffix(Path("a.OBJ")) == ".obj"
    assert mesh_suffix(Path("a.stl")) == ".ply"  # STL forgets the order of the vertices
    assert mesh_suffix(Path("a.npy")) == ".ply"
    assert mesh_suffix(Path("a.ply"), ".glb") == ".glb"
    with pytest.raises(ValueError, match=r"unknown mesh format '\.doc'"):
        mesh_suffix(Path("a.ply"), ".doc")


@pytest.mark.parametrize("operator", ["monet", "feast", "spiral"])
def test_matches_are_those_of_the_task(tmp_path: Path, operator: str) -> None:
    run, task = untrained(tmp_path / "run", "correspondence", operator=operator)
    assert isinstance(task, Correspondence)
    matcher = Matcher(run.trained())
    mesh = sets.correspondences().meshes[-1]
    expected = task.predict(perturbed(task.make_model()).eval(), mesh).numpy()
    assert (matcher.match(mesh) == expected).all()
    values = np.random.default_rng(0).random((42, 2))
    assert (matcher.transfer(mesh, values) == values[expected]).all()


def test_labels_are_carried_over(tmp_path: Path) -> None:
    trained = untrained(tmp_path / "run", "correspondence")[0].trained()
    write_mesh(icosphere(2), tmp_path / "fine.ply")
    labels = np.arange(42) // 7
    np.save(tmp_path / "parts.npy", labels)
    (tmp_path / "parts.txt").write_text("\n".join(map(str, labels)))
    transfer(trained, [tmp_path / "fine.ply"], Outputs(tmp_path / "out"), tmp_path / "parts.npy")
    matches = np.load(tmp_path / "out" / "fine.matches.npy")
    assert matches.shape == (162,)
    assert (np.load(tmp_path / "out" / "fine.labels.npy") == labels[matches]).all()
    transfer(trained, [tmp_path / "fine.ply"], Outputs(tmp_path / "text"), tmp_path / "parts.txt")
    from_text = np.load(tmp_path / "text" / "fine.labels.npy")
    assert (from_text == labels[matches]).all()
    assert from_text.dtype == np.int64
    transfer(trained, [tmp_path / "fine.ply"], Outputs(tmp_path / "bare"))
    assert names(tmp_path / "bare") == ["fine.matches.npy"]


def test_labels_that_do_not_fit(tmp_path: Path) -> None:
    trained = untrained(tmp_path / "run", "correspondence")[0].trained()
    np.save(tmp_path / "few.npy", np.zeros(5))
    np.save(tmp_path / "one.npy", np.zeros(()))
    (tmp_path / "words.txt").write_text("head\narm\n")
    for name, fault in (("few.npy", "got 5"), ("one.npy", "got 1"), ("words.txt", "not a list of numbers")):
        with pytest.raises(ValueError, match=rf"{name}: .*{fault}"):
            transfer(trained, [tmp_path / "absent.ply"], Outputs(tmp_path / "out"), tmp_path / name)
    assert read_values(tmp_path / "few.npy").shape == (5,)
    for text, kind in (("1 # one\n-2", "i"), ("1\n2.0", "f"), ("1\nnan", "f"), ("9" * 30, "f")):
        (tmp_path / "few.txt").write_text(text)
        assert read_values(tmp_path / "few.txt").dtype.kind == kind, text


@pytest.fixture
def images() -> np.ndarray:
    """Bright squares and bright discs."""
    random, side = np.random.default_rng(0), 12
    rows, columns = np.mgrid[:side, :side] - (side - 1) / 2
    shapes = [np.maximum(abs(rows), abs(columns)) < 4, np.hypot(rows, columns) < 5]
    noise = random.integers(0, 40, (10, side, side))
    return np.stack([200 * shapes[item % 2] + noise[item] for item in range(10)]).astype(np.uint8)


@pytest.fixture
def classifier(tmp_path: Path, images: np.ndarray) -> tuple[ImageClassifier, Classification]:
    options: dict[str, Any] = {"nodes": 14, "degree": 4.0, "workers": 1, "cache": tmp_path / "cache"}
    data = superpixel_set(images, np.arange(10) % 2, ("square", "disc"), Split.leading(10, 6), **options)
    run, task = untrained(tmp_path / "run", "classification", data)
    assert isinstance(task, Classification)
    return ImageClassifier(run.trained()), task


def test_images_become_the_graphs_of_training(
    classifier: tuple[ImageClassifier, Classification], images: np.ndarray
) -> None:
    """The set keeps positions in 16 bits; but for that the probabilities are those of the task's own graphs."""
    own, task = classifier
    model = perturbed(task.make_model()).eval()
    with torch.inference_mode():
        packed = task.split_store("test").batch(torch.arange(4))
        expected = model(packed.x, packed.graphs).softmax(-1)
    found = own.classify(images[6:])
    assert torch.allclose(found, expected, atol=2e-3)
    assert torch.allclose(found.sum(-1), torch.ones(4))


def test_scores_that_are_not_finite_name_the_run(
    classifier: tuple[ImageClassifier, Classification], images: np.ndarray
) -> None:
    own, _ = classifier
    for parameter in own.trained.model.parameters():
        parameter.detach().fill_(1e30)
    with pytest.raises(ValueError, match=r"run: the model's output is not finite; its weights are damaged"):
        own.classify(images)


def test_classes_of_files(
    classifier: tuple[ImageClassifier, Classification], images: np.ndarray, tmp_path: Path
) -> None:
    from PIL import Image

    paths = [tmp_path / f"{name}.png" for name in ("x", "y")]
    for path, image in zip(paths, images, strict=False):
        Image.fromarray(image).save(path)
    done = classify(load(tmp_path / "run"), paths, Outputs(tmp_path / "out"))
    probabilities = classifier[0].classify(images[:2])
    for path, row in zip(done.written, probabilities, strict=True):
        stored = json.loads(path.read_text())
        assert stored["class"] == ("square", "disc")[int(row.argmax())]
        assert list(stored["probabilities"].values()) == pytest.approx(row.tolist(), abs=1e-5)
    assert names(tmp_path / "out") == ["x.classes.json", "y.classes.json"]
    Image.fromarray(images[0][:8]).save(paths[0])
    with pytest.raises(ValueError, match=r"y\.png: \(12, 12\) pixels.*--size"):
        classify(load(tmp_path / "run"), paths, Outputs(tmp_path / "more"))
    classify(load(tmp_path / "run"), paths, Outputs(tmp_path / "more"), (12, 12))
    paths[1].write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"y\.png: not an image"):
        classify(load(tmp_path / "run"), paths, Outputs(tmp_path / "none"))


def test_colours_for_a_grey_model_are_refused(
    classifier: tuple[ImageClassifier, Classification], images: np.ndarray
) -> None:
    with pytest.raises(ValueError, match="3 channels, but the model was trained on 1"):
        classifier[0].classify(np.stack([images] * 3, axis=3))


def test_images_of_another_size_are_refused(
    classifier: tuple[ImageClassifier, Classification], images: np.ndarray
) -> None:
    doubled = images.repeat(2, axis=1).repeat(2, axis=2)
    with pytest.raises(ValueError, match=r"images: superpixels reach \d+ × \d+ pixels.*--size"):
        classifier[0].classify(doubled)


def test_the_size_of_images_where_the_configuration_tells(
    classifier: tuple[ImageClassifier, Classification], tmp_path: Path
) -> None:
    own = classifier[0]
    assert own.image_size is None
    own.config = replace(own.config, data="mnist")
    assert own.image_size == (28, 28)
    own.config = replace(own.config, data_options={"size": [20, 30]})
    assert own.image_size == (20, 30)


@pytest.mark.parametrize(
    ("task", "action"),
    [("reconstruction", transfer), ("correspondence", reconstruct), ("reconstruction", classify)],
)
def test_a_model_of_another_task_is_refused(tmp_path: Path, task: str, action: Callable[..., ActionResult]) -> None:
    trained = untrained(tmp_path / "run", task)[0].trained()
    with pytest.raises(ValueError, match=f"but this is one of {task}"):
        action(trained, [tmp_path / "a.ply"], Outputs(tmp_path / "out"))


def test_an_exported_model_works_as_the_run_does(tmp_path: Path, spheres: list[Path]) -> None:
    run, _ = untrained(tmp_path / "run")
    save_pretrained(tmp_path / "model", run.trained())
    found = [
        reconstruct(load(tmp_path / name), spheres, Outputs(tmp_path / f"{name}-out")).written
        for name in ("run", "model")
    ]
    for one, other in zip(*found, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert from_pretrained(tmp_path / "model").config == run.config


def killed_apply(folder: Path, run: Path, paths: list[Path], written: int) -> None:
    """``geoskip apply``, killed after so many files."""
    real, calls = user_files.atomic_write, itertools.count()

    def write(path: str | Path, data: bytes) -> None:
        if next(calls) == written:
            os.kill(os.getpid(), signal.SIGKILL)
        real(path, data)

    user_files.atomic_write = write
    reconstruct(Run.open(run).trained(), paths, Outputs(folder))


def test_after_a_kill_the_same_command_is_run_again(
    coding: tuple[Trained, Reconstruction], spheres: list[Path], tmp_path: Path
) -> None:
    expected = tmp_path / "expected"
    reconstruct(coding[0], spheres, Outputs(expected))
    out = tmp_path / "out"
    for written in (2, 1, 0):
        process = CONTEXT.Process(target=killed_apply, args=(out, tmp_path / "run", spheres, written), daemon=True)
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
    # Of another input, with a name that the killed command would have used.
    reconstruct(coding[0], spheres[:1], Outputs(out))
    reconstruct(coding[0], spheres[1:], Outputs(out))
    assert names(out) == names(expected)
    assert all((out / name).read_bytes() == (expected / name).read_bytes() for name in names(out))
    with pytest.raises(ValueError, match="already exists"):
        reconstruct(coding[0], spheres, Outputs(out))


def test_what_was_there_before_a_killed_command_is_not_replaced(
    coding: tuple[Trained, Reconstruction], spheres: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "c.off").write_text("mine")
    with suppress(RuntimeError), mark_unfinished(out, ["a.ply", "b.obj", "c.off"]):
        (out / "a.ply").write_text("half of the work")
        raise RuntimeError("killed")
    with pytest.raises(ValueError, match=r"c\.off: already exists"):
        reconstruct(coding[0], spheres, Outputs(out))
    reconstruct(coding[0], spheres[:2], Outputs(out))
    assert names(out) == ["a.ply", "b.obj", "c.off"]
    assert (out / "c.off").read_text() == "mine"


def test_what_another_command_is_writing_is_not_replaced(
    coding: tuple[Trained, Reconstruction], spheres: list[Path], tmp_path: Path
) -> None:
    with mark_unfinished(tmp_path / "out", ["a.ply"]):
        (tmp_path / "out" / "a.ply").write_text("of the other command")
        with pytest.raises(ValueError, match=r"a\.ply: already exists"):
            reconstruct(coding[0], spheres, Outputs(tmp_path / "out"))
    assert names(tmp_path / "out") == ["a.ply"]


def test_claims_that_are_not_needed_leave_nothing(tmp_path: Path) -> None:
    with Outputs(tmp_path) as outputs:
        paths = [outputs.claim(name, name) for name in ("a", "b")]
        outputs.write([(paths[0], b"data")])
    assert names(tmp_path) == ["a"]
