"""docs/make_samples.py: small copies of samples that give the same page."""

from pathlib import Path

import numpy as np
from docs.make_samples import GRAPHS, main, rounded

from geoskip.paper.experiments import EXPERIMENTS
from geoskip.records import CorrespondenceSamples, GraphSamples, MeshSamples, read_samples, write_record, write_samples
from geoskip.records.reading import read_arrays
from geoskip.report.picture_grids import errors_mm
from tests.report.made_runs import digit_samples, made_run, matched, mesh_samples, spheres

MESHES, BODIES = mesh_samples(spheres(2), "affine", 0, 0.5), matched(spheres(2), 0.3, 0)


def test_meshes_differ_by_a_few_micrometers(tmp_path: Path) -> None:
    small = rounded(MESHES)
    assert isinstance(small, MeshSamples)
    for name, part in MESHES.parts.items():
        assert np.abs(small.parts[name] * small.unit_mm - part).max() <= small.unit_mm / 2 + 1e-4 < 0.003
    assert np.allclose(errors_mm(small).mean(axis=1), errors_mm(MESHES).mean(axis=1), rtol=1e-3)
    write_samples(tmp_path / "small", small)
    stored = read_arrays(tmp_path / "small")
    assert {str(stored[f"parts.{name}"].dtype) for name in ("input", "full", "affine")} == {"int16"}


def test_bodies_keep_their_matches() -> None:
    small = rounded(BODIES)
    assert isinstance(small, CorrespondenceSamples)
    for body, original in zip(small.meshes, BODIES.meshes, strict=True):
        assert body.exact_pct == original.exact_pct
        assert np.allclose(body.error_pct, original.error_pct, rtol=1e-3)


def test_graphs_are_as_many_as_the_page_shows() -> None:
    many = digit_samples(0.5, 0, count=GRAPHS + 6)
    small = rounded(many)
    assert isinstance(small, GraphSamples)
    assert small.count == GRAPHS
    assert (small.predicted == many.predicted[:GRAPHS]).all()
    inside = many.edges[:, (many.edges < small.offsets[-1]).all(axis=0)]
    assert 2 * small.edges.shape[1] == inside.shape[1]


def test_samples_of_the_first_seed_are_put_next_to_their_records(tmp_path: Path) -> None:
    row = EXPERIMENTS["table1"].rows[0]
    for seed in (0, 1, 10):
        stem = f"table1/{row.slug}/faces-short-{seed}"
        write_record(tmp_path / "runs" / f"{stem}.json", made_run(row, "faces", seed).record)
        write_samples(tmp_path / "work" / f"{stem}-0a1b2c3d" / "samples.safetensors", MESHES)
    written = main(tmp_path)
    assert written == [tmp_path / "runs" / "table1" / row.slug / "faces-short-0.samples.safetensors"]
    assert isinstance(read_samples(written[0]), MeshSamples)
