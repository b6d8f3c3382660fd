"""Figures of meshes, drawn from the samples of runs."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from geoskip.meshes import icosphere
from geoskip.paper.experiments import EXPERIMENTS
from geoskip.paper.reproduction import draw
from geoskip.paper.running import Job
from geoskip.records import CorrespondenceSamples, MatchedMesh, MeshSamples, RunRecord, write_samples
from tests.paper.runs import job_of, record_of

SPHERE = icosphere(1)
SIZE = 16


def runs_with(name: str, out: Path, samples: MeshSamples | CorrespondenceSamples) -> dict[Job, RunRecord]:
    jobs = [job_of(row) for row in EXPERIMENTS[name].rows]
    for job in jobs:
        job.folder(out).mkdir(parents=True)
        write_samples(job.folder(out) / "samples.safetensors", samples)
    return {job: record_of(job, {}) for job in jobs}


def meshes(error: float, count: int = 2) -> MeshSamples:
    """Spheres of 100 mm that are reconstructed ``error`` mm off along z, and flattened ones as the affine part."""
    true = np.tile(SPHERE.verts.astype(np.float32), (count, 1, 1))
    full = true + np.array([0, 0, error / 100], dtype=np.float32)
    parts = {"input": true, "full": full, "affine": true * np.array([1, 1, 0.5], dtype=np.float32)}
    return MeshSamples(tuple(map(str, range(count))), SPHERE.faces, 100.0, parts)


def drawn(name: str, out: Path, samples: MeshSamples | CorrespondenceSamples) -> tuple[np.ndarray, list[str]]:
    png, legend = draw(EXPERIMENTS[name], runs_with(name, out, samples), out, size=SIZE)
    with Image.open(BytesIO(png.read_bytes())) as image:
        return np.asarray(image).astype(int), json.loads(legend.read_text())["rows"]


def test_errors_are_colored(tmp_path: Path) -> None:
    """No error is violet, 5 mm and more yellow."""
    found = [drawn("error_maps", tmp_path / str(error), meshes(error)) for error in (0.0, 5.0, 50.0)]
    small, large, larger = (image[SIZE // 2, SIZE // 2] for image, _ in found)
    assert small[2] > small[1]
    assert large[0] > 3 * large[2]
    assert np.abs(large - larger).max() <= 2, "saturated"
    image, rows = found[0]
    assert rows == [row.label for row in EXPERIMENTS["error_maps"].rows]
    assert image.shape == (8 * SIZE, 2 * SIZE, 3)


def test_geodesic_errors_are_colored(tmp_path: Path) -> None:
    verts, labels = SPHERE.verts.astype(np.float32), np.arange(len(SPHERE.verts))
    meshes = tuple(
        MatchedMesh("", verts, SPHERE.faces, labels, true, np.full(len(labels), error, dtype=np.float32))
        for true, error in ((labels, 0.0), (labels, 10.0), (np.full_like(labels, -1), np.nan))
    )
    image, rows = drawn("matching_maps", tmp_path, CorrespondenceSamples(meshes, verts, SPHERE.faces))
    assert rows[-3:] == ["GCN", "Res-GCN", "Aff-GCN"]
    right, wrong, unknown = (image[SIZE // 2, SIZE // 2 + SIZE * column] for column in range(3))
    assert right[2] > right[1]
    assert wrong[0] > 3 * wrong[2]
    assert unknown[2] > unknown[1] > unknown[0] > right[0], "blue-grey, which is no error"


def test_reconstructions_stand_under_their_inputs(tmp_path: Path) -> None:
    image, rows = drawn("reconstructions", tmp_path, meshes(0.0))
    assert rows == ["input", *(row.label for row in EXPERIMENTS["reconstructions"].rows)]
    assert np.array_equal(image[:SIZE], image[SIZE : 2 * SIZE]), "reconstructed without error"


def test_affine_only(tmp_path: Path) -> None:
    image, rows = drawn("affine_only", tmp_path, meshes(0.0))
    assert [row.split(": ")[1] for row in rows] == ["input", "full", "affine"]
    assert not np.array_equal(image[:SIZE], image[2 * SIZE :])


def test_records_alone_cannot_be_drawn(tmp_path: Path) -> None:
    job = job_of(EXPERIMENTS["affine_only"].rows[0])
    with pytest.raises(ValueError, match=r"figure: no samples of affine_only in .*work; records alone cannot be drawn"):
        draw(EXPERIMENTS["affine_only"], {job: record_of(job, {})}, tmp_path)
