from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import TypeCheckError
from safetensors.numpy import save_file

from geoskip.meshes import icosphere
from geoskip.records import (
    CorrespondenceSamples,
    GraphSamples,
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
MATCHED = CorrespondenceSamples(
    names=("a", "b"),
    verts=VERTS,
    faces=SPHERE.faces,
    target_verts=SPHERE.verts,
    target_faces=SPHERE.faces,
    predicted=np.tile(np.arange(42)[::-1], (2, 1)),
    labels=np.tile(np.arange(42), (2, 1)),
    error_pct=np.ones((2, 42)),
)
GRAPHS = GraphSamples(
    pos=np.random.default_rng(0).random((5, 2)),
    x=np.ones((5, 1)),
    edges=np.array([[0, 1, 2, 3], [1, 0, 3, 2]]),
    offsets=np.array([0, 2, 5]),
    true=np.array([1, 0]),
    predicted=np.array([0, 0]),
    class_names=("zero", "one"),
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, MeshLevel):
        return same(a.kept, b.kept) and same(a.faces, b.faces)
    return a == b


@pytest.mark.parametrize("samples", [MESHES, MATCHED, GRAPHS], ids=lambda samples: type(samples).__name__)
def test_written_and_read_again(tmp_path: Path, samples: Samples) -> None:
    write_samples(tmp_path / "samples.safetensors", samples)
    found = read_samples(tmp_path / "samples.safetensors")
    assert type(found) is type(samples)
    for entry in fields(samples):
        assert same(getattr(found, entry.name), getattr(samples, entry.name)), entry.name


def test_arrays_are_kept_small() -> None:
    assert MESHES.parts["input"].dtype == np.float32
    assert MESHES.faces.dtype == np.int32


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
        (MATCHED, {"predicted": MATCHED.predicted + 1}, "predicted must lie from 0 to 41"),
        (MATCHED, {"labels": MATCHED.error_pct}, "labels must be integers"),
        (MATCHED, {"labels": MATCHED.labels - 2}, "labels must lie from -1 to 41"),
        (MATCHED, {"error_pct": MATCHED.error_pct[:, :3]}, "error_pct must be of shape"),
        (GRAPHS, {"offsets": np.array([0, 3, 2, 5])}, "offsets must ascend"),
        (GRAPHS, {"offsets": np.array([0, 4])}, "offsets must ascend"),
        (GRAPHS, {"true": np.array([0, 2])}, "true must lie from 0 to 1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(samples: Samples, change: dict[str, Any], message: str) -> None:
    with pytest.raises(REFUSED) as raised:
        replace(samples, **change)
    assert isinstance(raised.value, TypeCheckError) or message in str(raised.value)


def test_files_that_are_something_else(tmp_path: Path) -> None:
    path = tmp_path / "samples.safetensors"
    with pytest.raises(RecordError, match=r"samples\.safetensors: no samples"):
        read_samples(path)
    path.write_bytes(b"what is this")
    with pytest.raises(RecordError, match=r"samples\.safetensors: no samples"):
        read_samples(path)
    save_file({"faces": SPHERE.faces}, path)
    with pytest.raises(RecordError, match="not a file of samples"):
        read_samples(path)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"format": "2"}, "format 2; this version reads 1"),
        ({"kind": "songs"}, "'songs' is missing"),
        ({"plain": "{"}, "no samples can be read"),
        ({"plain": "{}"}, "names"),
    ],
)
def test_files_of_another_kind(tmp_path: Path, metadata: dict[str, str], message: str) -> None:
    path = tmp_path / "samples.safetensors"
    known = {"geoskip": "samples", "format": "1", "kind": "meshes", "plain": '{"names": [], "unit_mm": 1}'}
    save_file({"faces": SPHERE.faces}, path, known | metadata)
    with pytest.raises(RecordError, match=message):
        read_samples(path)
