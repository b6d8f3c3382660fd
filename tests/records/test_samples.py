from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from jaxtyping import TypeCheckError
from safetensors.numpy import load_file, save_file

from geoskip.meshes import icosphere
from geoskip.records import (
    CorrespondenceSamples,
    GraphSamples,
    MatchedMesh,
    MeshLevel,
    MeshSamples,
    RecordError,
    Samples,
    read_samples,
    write_samples,
)

REFUSED = (RecordError, TypeCheckError)
SPHERE = icosphere(1)
VERTS = np.stack([SPHERE.verts, 2 * SPHERE.verts])
MESHES = MeshSamples(
    names=("calm", "<b>sad</b>"),
    faces=SPHERE.faces,
    unit_mm=1000.0,
    parts={"input": VERTS, "full": VERTS + 0.1, "affine": VERTS * 1.1},
    levels=(MeshLevel(np.arange(12), icosphere(0).faces),),
)
FINE = icosphere(2)
MATCHED = CorrespondenceSamples(
    meshes=(
        MatchedMesh("a", SPHERE.verts, SPHERE.faces, np.arange(42)[::-1], np.arange(42), np.ones(42)),
        MatchedMesh(
            "b",
            FINE.verts,
            FINE.faces,
            np.arange(162) % 42,
            np.where(np.arange(162) < 42, np.arange(162), -1),
            np.where(np.arange(162) < 42, 0.0, np.nan),
        ),
    ),
    target_verts=SPHERE.verts,
    target_faces=SPHERE.faces,
)
GRAPHS = GraphSamples(
    pos=np.random.default_rng(0).random((5, 2)),
    x=np.ones((5, 1)),
    edges=np.array([[0, 1, 2, 3], [1, 0, 3, 2]]),
    offsets=np.array([0, 2, 5]),
    true=np.array([1, 0]),
    predicted=np.array([0, 0]),
    class_names=("zero", "one"),
    names=("one/a.png", "zero/b.png"),
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, MeshLevel | MatchedMesh):
        return all(same(getattr(a, entry.name), getattr(b, entry.name)) for entry in fields(a))
    return a == b


@pytest.mark.parametrize("samples", [MESHES, MATCHED, GRAPHS], ids=lambda samples: type(samples).__name__)
def test_written_and_read_again(tmp_path: Path, samples: Samples) -> None:
    write_samples(tmp_path / "samples.safetensors", samples)
    found = read_samples(tmp_path / "samples.safetensors")
    assert type(found) is type(samples)
    for entry in fields(samples):
        assert same(getattr(found, entry.name), getattr(samples, entry.name)), entry.name


def test_arrays_are_kept_small(tmp_path: Path) -> None:
    """In memory, and in a file: the smallest type that represents an array exactly."""
    assert MESHES.parts["input"].dtype == np.float32
    assert MESHES.faces.dtype == np.int32
    parts: dict[str, np.ndarray] = {
        "input": np.round(1000 * VERTS), "full": VERTS.astype(np.float16).astype(np.float32), "affine": VERTS,
    }  # fmt: skip
    write_samples(tmp_path / "samples.safetensors", replace(MESHES, parts=parts))
    stored = load_file(tmp_path / "samples.safetensors")
    assert {name: str(array.dtype) for name, array in stored.items() if "levels" not in name} == {
        "faces": "uint8", "parts.input": "int16", "parts.full": "float16", "parts.affine": "float32",
    }  # fmt: skip
    found = read_samples(tmp_path / "samples.safetensors")
    assert isinstance(found, MeshSamples)
    assert all(same(found.parts[name], part.astype(np.float32)) for name, part in parts.items())


def test_a_run_without_samples_of_its_own(tmp_path: Path) -> None:
    none = replace(MESHES, names=(), parts={name: part[:0] for name, part in MESHES.parts.items()})
    write_samples(tmp_path / "samples.safetensors", none)
    found = read_samples(tmp_path / "samples.safetensors")
    assert isinstance(found, MeshSamples)
    assert found.names == ()


@pytest.mark.parametrize(
    ("samples", "change", "message"),
    [
        (MESHES, {"names": ("one",)}, "input must be of shape"),
        (MESHES, {"unit_mm": 0.0}, "unit_mm must be a positive length"),
        (MESHES, {"faces": SPHERE.faces + 40}, "faces must lie from 0 to 41"),
        (MESHES, {"parts": {"input": VERTS}}, "parts have no 'full'"),
        (MESHES, {"parts": {"input": VERTS, "full": VERTS, "half": VERTS}}, "unknown part 'half'"),
        (MESHES, {"parts": {"input": VERTS, "full": VERTS[:, :5]}}, "full must be of shape"),
        (MESHES, {"parts": {"input": VERTS, "full": VERTS * np.nan}}, "full must be finite"),
        (MESHES, {"levels": (MeshLevel(np.array([42]), SPHERE.faces[:0]),)}, "levels.kept must lie from 0"),
        (GRAPHS, {"offsets": np.array([0, 3, 2, 5])}, "offsets must ascend"),
        (GRAPHS, {"offsets": np.array([0, 4])}, "offsets must ascend"),
        (GRAPHS, {"true": np.array([0, 2])}, "true must lie from 0 to 1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(samples: Samples, change: dict[str, Any], message: str) -> None:
    with pytest.raises(REFUSED) as raised:
        replace(samples, **change)
    assert isinstance(raised.value, TypeCheckError) or message in str(raised.value)


@pytest.mark.parametrize(
    ("number", "change", "message"),
    [
        (0, {"predicted": np.arange(42) + 1}, "predicted must lie from 0 to 41"),
        (0, {"labels": np.ones(42)}, "labels must be integers"),
        (0, {"labels": np.arange(42) - 2}, "labels must lie from -1 to 41"),
        (0, {"error_pct": np.ones(3)}, "error_pct must be of shape"),
        (0, {"faces": FINE.faces}, "faces must lie from 0 to 41"),
        (0, {"error_pct": np.full(42, np.nan)}, "error_pct must be finite"),
        (1, {"error_pct": np.zeros(162)}, "error_pct must be NaN where there is no label"),
    ],
)
def test_matches_that_cannot_be_drawn_are_refused(number: int, change: dict[str, Any], message: str) -> None:
    with pytest.raises(REFUSED) as raised:
        CorrespondenceSamples((replace(MATCHED.meshes[number], **change),), SPHERE.verts, SPHERE.faces)
    assert isinstance(raised.value, TypeCheckError) or message in str(raised.value)


@given(labels=arrays(np.int64, 42, elements=st.integers(-1, 41)))
def test_means_are_over_labelled_vertices(labels: np.ndarray) -> None:
    predicted, known = np.arange(42), labels >= 0
    errors = np.where(known, np.abs(predicted - labels), np.nan)
    (mesh,) = CorrespondenceSamples(
        (MatchedMesh("", SPHERE.verts, SPHERE.faces, predicted, labels, errors),), SPHERE.verts, SPHERE.faces
    ).meshes
    if not known.any():
        assert (mesh.mean_error_pct, mesh.exact_pct) == (None, None)
    else:
        assert mesh.mean_error_pct == pytest.approx(errors[known].mean())
        assert mesh.exact_pct == pytest.approx(100 * (errors[known] == 0).mean())


def test_files_that_are_something_else(tmp_path: Path) -> None:
    path = tmp_path / "samples.safetensors"
    with pytest.raises(RecordError, match=r"samples\.safetensors: cannot be read as samples"):
        read_samples(path)
    path.write_bytes(b"what is this")
    with pytest.raises(RecordError, match=r"samples\.safetensors: cannot be read as samples"):
        read_samples(path)
    save_file({"faces": SPHERE.faces}, path)
    with pytest.raises(RecordError, match="not a file of samples"):
        read_samples(path)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"format": "2"}, "format 2; this version reads 1"),
        ({"kind": "songs"}, "'songs' is missing"),
        ({"plain": "{"}, "cannot be read as samples"),
        ({"plain": "{}"}, "names"),
        ({"plain": '{"names": [], "unit_mm": []}'}, "unit_mm: expected a number"),
        ({"plain": '{"names": 1, "unit_mm": 1}'}, "names: expected a list of texts"),
    ],
)
def test_files_of_another_kind(tmp_path: Path, metadata: dict[str, str], message: str) -> None:
    path = tmp_path / "samples.safetensors"
    known = {"geoskip": "samples", "format": "1", "kind": "meshes", "plain": '{"names": [], "unit_mm": 1}'}
    save_file({"faces": SPHERE.faces}, path, known | metadata)
    with pytest.raises(RecordError, match=message):
        read_samples(path)
