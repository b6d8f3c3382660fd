"""The study of bodies with a connectivity each, on tiny data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from docs.analyze_connectivity import CHANGES, changed, main
from docs.make_tables import connectivity_table

from geoskip.data import CorrespondenceSet
from geoskip.paper.findings import read_analysis
from geoskip.paper.rows import TINY
from tests.training import sets


@pytest.fixture
def bodies() -> CorrespondenceSet:
    return sets.data("correspondence")


def test_each_change_is_what_its_name_says(bodies: CorrespondenceSet) -> None:
    for before, after in zip(bodies.meshes, changed(bodies, CHANGES["one connectivity"]).meshes, strict=True):
        assert np.array_equal(before.verts, after.verts)
    for before, after in zip(bodies.meshes, changed(bodies, CHANGES["turned"]).meshes, strict=True):
        assert np.array_equal(before.faces, after.faces)
        assert np.allclose(before.verts[:, 1], after.verts[:, 1]), "y points up"
        lengths = [np.linalg.norm(np.diff(mesh.verts[mesh.faces], axis=1), axis=2) for mesh in (before, after)]
        assert np.allclose(*lengths)
    for before, after in zip(bodies.meshes, changed(bodies, CHANGES["edges flipped"]).meshes, strict=True):
        assert np.array_equal(before.verts, after.verts)
        assert not np.array_equal(before.faces, after.faces)
    for before, after in zip(bodies.meshes, changed(bodies, CHANGES["vertices slid"]).meshes, strict=True):
        assert np.array_equal(before.faces, after.faces)
        assert not np.array_equal(before.verts, after.verts)
    turned, everything = changed(bodies, CHANGES["turned"]), changed(bodies, CHANGES["all three"])
    assert len({mesh.verts.tobytes() for mesh in turned.meshes}) == len(bodies)
    assert not np.array_equal(turned.meshes[0].faces, everything.meshes[0].faces)


def test_record(tmp_path: Path) -> None:
    words = ["--data", TINY, "--schedule", "first2", "--method", "MoNet", "--device", "cpu"]
    main([*words, "-o", str(tmp_path / "connectivity.json")])
    record = read_analysis(tmp_path / "connectivity.json")
    assert [row["change"] for row in record.rows] == list(CHANGES)
    assert len({row["loss"] for row in record.rows}) == len(CHANGES)
    table = connectivity_table(record)
    assert "| bodies | MoNet |" in table
    assert "schedule `first2`, 1 seed." in table
    row = record.rows[-1]
    assert f"| all three | {row['accuracy_pct']:.2f} ({row['loss']:.2f}) |" in table
