"""Plain loops: every way trains the same, and the page shows what each costs."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from benchmarks.measurements import PATHS, Row
from benchmarks.training.measure_steps import LOSS_TOLERANCE
from benchmarks.training.networks import PeerCorrespondence
from benchmarks.training.plain_loop import LOOPS, TF32_LOSS_TOLERANCE, chosen_loops, chosen_paths, measure_loop
from benchmarks.training.sections import loop_section
from torch import Tensor, nn

from benchmarks.training import plain_loop
from tests.benchmarks.training.test_training import BODIES, CPU, MESHES, POINTS, QUICK

TINY = {training.name: training for training in (MESHES, BODIES, POINTS)}
COMPILED = ["geoskip", "compiled", "reduce-overhead", "PyG", "PyG compiled", "PyG reduce-overhead"]


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modes that models are compiled in, without compiling them."""
    used: list[str] = []

    def compile_model(model: nn.Module, mode: str) -> nn.Module:
        used.append(mode)
        return model

    monkeypatch.setattr(torch, "compile", compile_model)
    return used


@pytest.mark.parametrize(("name", "operator"), [*((name, "monet") for name in sorted(TINY)), ("superpixels", "feast")])
def test_every_way_trains_the_same(name: str, operator: str, modes: list[str]) -> None:
    rows = list(measure_loop(TINY[name], [operator], [True], COMPILED, QUICK))
    assert [row.path for row in rows] == COMPILED
    assert modes == ["default", "reduce-overhead"] * 2
    eager, peer = rows[0], rows[3]
    assert eager.milliseconds is not None
    assert peer.milliseconds is not None
    assert eager.error is None
    assert eager.time_ratio == pytest.approx(peer.milliseconds / eager.milliseconds)
    assert peer.tried is not None
    for row in rows[1:]:
        assert row.problem is None
        assert row.error is not None
        assert row.error < 1e-4
        assert row.first_seconds is not None
        assert row.first_seconds > 0
    assert [row.call.rpartition(", ")[2] for row in rows[1:3]] == ["torch.compile(model)", "mode='reduce-overhead')"]


@pytest.mark.gpu
# torch's own warnings, of an empty graph that it records to begin with
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(TINY))
def test_compiled_and_captured_loops_train_the_same(name: str) -> None:
    paths = ["geoskip", "compiled", "reduce-overhead", "captured"]
    settings = replace(QUICK, device=torch.device("cuda"), steps=12)
    rows = list(measure_loop(replace(TINY[name], tf32=False), ["monet"], [True], paths, settings))
    assert [(row.path, row.problem) for row in rows] == [(path, None) for path in paths]
    assert all(row.peak_bytes for row in rows)


@pytest.mark.parametrize(("factor", "tf32"), [(1.001, True), (1.1, True), (1.003, False)])
def test_other_losses_are_refused(factor: float, tf32: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    right = plain_loop.peer_loop

    def other(*args: Any) -> plain_loop.Loop:
        loop = right(*args)
        return replace(loop, loss=lambda *batch: factor * loop.loss(*batch))

    monkeypatch.setattr(plain_loop, "peer_loop", other)
    _, theirs = measure_loop(replace(BODIES, tf32=tf32), ["monet"], [False], ["geoskip", "PyG"], QUICK)
    assert theirs.error == pytest.approx(factor - 1, rel=0.5)
    accepted = factor - 1 < (TF32_LOSS_TOLERANCE if tf32 else LOSS_TOLERANCE)
    assert (theirs.problem is None) == accepted
    assert accepted == (factor == 1.001)


def test_failing_peer_keeps_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> Tensor:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(PeerCorrespondence, "forward", fail)
    mine, theirs = measure_loop(BODIES, ["gcn"], [False], ["geoskip", "PyG"], QUICK)
    assert mine.milliseconds is not None
    assert theirs.problem == "failed: RuntimeError: no such kernel"


def test_choices() -> None:
    assert [training.name for training in chosen_loops(["superpixels", "autoencoder"])] == [
        "autoencoder",
        "superpixels",
    ]
    assert (LOOPS["correspondence"].tf32, LOOPS["correspondence-float32"].tf32) == (True, False)
    assert LOOPS["correspondence-float32"].about == "batch 1, 6,890 vertices and classes, float32"
    assert chosen_paths(None, CPU) == ["geoskip", "compiled", "PyG", "PyG compiled"]
    assert chosen_paths(None, torch.device("cuda")) == [path for path in PATHS if path != "reference"]
    with pytest.raises(ValueError, match="path: unknown name 'captured'"):
        chosen_paths(["captured"], CPU)


def test_section_of_the_page() -> None:
    common: dict[str, Any] = {"workload": "autoencoder", "operator": "monet", "slots": 9, "skip": True}
    mine = Row(**common, path="compiled", call="torch.compile(model)", milliseconds=2.0, time_ratio=15.0, error=1e-7)
    mine = replace(mine, first_seconds=7.25, peak_bytes=250_000_000)
    theirs = Row(**common, path="PyG compiled", call="", problem="failed: RuntimeError: no such kernel")
    record = {"steps": 20, "tasks": {"autoencoder": "batch 32"}, "rows": [asdict(row) for row in (mine, theirs)]}
    page = "\n".join(loop_section(record))
    assert "### autoencoder: batch 32" in page
    assert "| Aff-MoNet, M=9 | compiled | 2.00 | 7.25 | 250 | 15.0 | – | 1e-07 |" in page
    assert "| Aff-MoNet, M=9 | PyG compiled | failed | – | – | – | – | – |" in page
    assert "- Aff-MoNet, M=9, PyG compiled: failed: RuntimeError: no such kernel" in page
