"""Programs that run without geoskip compute what geoskip does."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from geoskip.inference import programs
from geoskip.inference.predictors import Matcher, MeshCoder
from geoskip.inference.programs import export_onnx, export_program, program_of
from tests.training import sets
from tests.training.runs import untrained

pytestmark = pytest.mark.compiled

# One step of the hierarchy, which is all that the others repeat.
SMALL: dict[str, dict[str, Any]] = {
    "reconstruction": {"model": {"channels": [4]}},
    "correspondence": {"model": {"channels": [4]}},
}

LOADING = """
import sys, torch
program = torch.export.load(sys.argv[1]).module()
torch.save(program(torch.load(sys.argv[2])), sys.argv[3])
assert not [name for name in sys.modules if name.startswith("geoskip")]
"""


@pytest.fixture
def verts() -> torch.Tensor:
    """More items than the program was traced with."""
    data = sets.meshes()
    return data.verts(torch.arange(5))


@pytest.mark.parametrize(
    ("operator", "skip"),
    [
        ("cheb", "affine"),
        ("feast", "residual"),
        ("gcn", "none"),
        ("gin", "affine"),
        ("monet", "affine"),
        ("spiral", "polynomial"),
        ("spline", "affine"),
    ],
)
def test_every_operator_becomes_a_program(tmp_path: Path, verts: torch.Tensor, operator: str, skip: str) -> None:
    trained = untrained(tmp_path / "run", operator=operator, skip=skip, **SMALL["reconstruction"])[0].trained()
    exported = export_program(tmp_path / "model.pt2", trained)
    expected = MeshCoder(trained).reconstruct(verts)
    assert_close(exported.module()(verts), expected, rtol=1e-4, atol=1e-5)
    assert_close(exported.module()(verts[:1]), expected[:1], rtol=1e-4, atol=1e-5)
    targets = {str(node.target) for node in exported.graph.nodes}
    assert not [target for target in targets if "geoskip" in target or "sort" in target]


def test_a_program_runs_where_there_is_no_geoskip(tmp_path: Path, verts: torch.Tensor) -> None:
    trained = untrained(tmp_path / "run", **SMALL["reconstruction"])[0].trained()
    export_program(tmp_path / "new" / "model.pt2", trained)
    paths = [str(tmp_path / name) for name in ("new/model.pt2", "in.pt", "out.pt")]
    torch.save(verts, paths[1])
    told = subprocess.run([sys.executable, "-c", LOADING, *paths], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert_close(torch.load(paths[2]), MeshCoder(trained).reconstruct(verts), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("operator", ["monet", "feast"])
def test_matching_as_a_program(tmp_path: Path, operator: str) -> None:
    """Pseudo-coordinates follow from the positions, inside."""
    trained = untrained(tmp_path / "run", "correspondence", operator=operator, **SMALL["correspondence"])[0].trained()
    exported = export_program(tmp_path / "model.pt2", trained)
    mesh = sets.correspondences().meshes[-1]
    scores = exported.module()(torch.tensor(mesh.verts).float())
    assert scores.shape == (42, 42)
    assert (scores.argmax(-1).numpy() == Matcher(trained).match(mesh)).all()


@pytest.mark.parametrize(
    ("task", "given"),
    [
        ("reconstruction", {"operator": "monet", "skip": "affine"}),
        ("reconstruction", {"operator": "gcn"}),
        ("correspondence", {"operator": "feast", "skip": "affine"}),
    ],
)
def test_onnx(tmp_path: Path, verts: torch.Tensor, task: str, given: dict[str, Any]) -> None:
    trained = untrained(tmp_path / "run", task, **given, **SMALL[task])[0].trained()
    difference = export_onnx(tmp_path / "model.onnx", trained)
    assert difference is not None
    assert difference < 1e-5
    session = import_module("onnxruntime").InferenceSession(tmp_path / "model.onnx")
    if task == "reconstruction":
        found = session.run(None, {"verts": verts.numpy()})[0]
        assert np.allclose(found, MeshCoder(trained).reconstruct(verts).numpy(), rtol=1e-4, atol=1e-5)
    else:
        mesh = sets.correspondences().meshes[-1]
        found = session.run(None, {"verts": mesh.verts.astype(np.float32)})[0]
        assert (found.argmax(-1) == Matcher(trained).match(mesh)).all()


def test_a_classifier_is_refused_with_what_to_do_instead(tmp_path: Path) -> None:
    trained = untrained(tmp_path / "run", "classification")[0].trained()
    with pytest.raises(ValueError, match=r"cannot be exported as a program; share the folder"):
        program_of(trained)


def test_without_onnx_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = untrained(tmp_path / "run")[0].trained()
    monkeypatch.setattr(programs, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"geoskip\[export\]"):
        export_onnx(tmp_path / "model.onnx", trained)


def test_without_onnxruntime_nothing_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = program_of(untrained(tmp_path / "run")[0].trained())
    monkeypatch.setattr(programs, "find_spec", lambda name: None)
    assert programs._difference(tmp_path / "model.onnx", program) is None
