"""Rows: ours and the peers side by side, ratios, failures."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from benchmarks.measure_blocks import Settings, chosen_device, measure_workload, with_ratios
from benchmarks.measurements import Row
from benchmarks.roofline import Ceilings
from torch import nn

from tests.benchmarks.tiny import CPU, MESHES, PACKED, plant

CEILINGS = Ceilings(1e9, 1e9, 0.1)


def rows_of(operator: str, peers: bool = True, workload: Any = MESHES) -> list[Row]:
    return list(measure_workload(workload, [operator], Settings(CPU, seconds=0.0, peers=peers), CEILINGS))


def test_ours_beside_the_peer() -> None:
    rows = rows_of("gcn")
    assert [(row.path, row.skip) for row in rows] == [
        ("geoskip", False),
        ("PyG", False),
        ("geoskip", True),
        ("PyG", True),
    ]
    for ours, peer in (rows[:2], rows[2:]):
        assert ours.problem is peer.problem is None
        assert ours.milliseconds is not None
        assert peer.milliseconds is not None
        assert ours.time_ratio == pytest.approx(peer.milliseconds / ours.milliseconds)
        assert ours.against == "PyG"
        assert not ours.peer_does_more
        assert ours.roofline_share == pytest.approx((ours.floor_milliseconds or 0) / ours.milliseconds)
        assert peer.tried is not None
        assert set(peer.tried) >= {peer.call}
        assert len(peer.tried) == 3
        assert ours.repeats


def test_plain_monet_is_compared_with_the_peer_that_does_more() -> None:
    rows = rows_of("monet", workload=PACKED)
    assert [(row.path, row.skip) for row in rows] == [("geoskip", False), ("geoskip", True), ("PyG", True)]
    assert [row.peer_does_more for row in rows] == [True, False, False]
    assert rows[0].time_ratio is not None


def test_reference_stands_in_where_there_is_no_peer() -> None:
    rows = rows_of("spline")
    assert [row.path for row in rows] == ["geoskip", "reference"] * 2
    assert rows[0].against == "reference"
    assert rows[1].error is not None
    assert rows[1].error < 1e-5


def test_peers_can_be_left_out() -> None:
    rows = rows_of("feast", peers=False)
    assert [row.path for row in rows] == ["geoskip"] * 2
    assert rows[0].time_ratio is None


def test_wrong_result_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    ours, peer = rows_of("gcn")[:2]
    assert ours.milliseconds is None
    assert ours.time_ratio is None
    assert ours.problem == "wrong result: theta is off by 1.0e-04"
    assert peer.milliseconds is not None


def test_failing_peer_keeps_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_geometric.nn import GCNConv

    def fail(*args: object) -> None:
        raise RuntimeError("no\nsuch kernel")

    monkeypatch.setattr(GCNConv, "forward", fail)
    ours, peer = rows_of("gcn")[:2]
    assert ours.problem is None
    assert ours.milliseconds is not None
    assert ours.time_ratio is None
    assert peer.problem == "failed: RuntimeError: no such kernel"
    assert peer.tried is not None
    assert set(peer.tried.values()) == {None}


def test_without_pytorch_geometric_ours_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch_geometric.nn", None)
    ours, peer = rows_of("gcn")[:2]
    assert ours.milliseconds is not None
    assert peer.problem is not None
    assert peer.problem.startswith("failed: ModuleNotFoundError")


def test_ratios_of_memory() -> None:
    common: dict[str, Any] = {"workload": "w", "operator": "gcn", "slots": 1, "skip": False, "call": ""}
    ours = Row(**common, path="captured", milliseconds=2.0, peak_bytes=10)
    peer = Row(**common, path="PyG", milliseconds=30.0, peak_bytes=400)
    compared, same = with_ratios([ours, peer])
    assert (compared.time_ratio, compared.memory_ratio) == (15, 40)
    assert same == peer


def test_device_is_checked() -> None:
    assert chosen_device("cpu") == CPU
    assert chosen_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ValueError, match="device: the benchmark knows cpu and cuda, got meta"):
        chosen_device("meta")


def test_missing_cuda_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="device: torch sees no CUDA device here"):
        chosen_device("cuda")


@pytest.mark.compiled
def test_compiled_paths_of_blocks_with_a_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced as in earnest; the compiler of C++ is left out, which takes long."""
    right = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda module, **_: right(module, backend="aot_eager", dynamic=False))
    rows = list(measure_workload(MESHES, ["gcn"], Settings(CPU, seconds=0.0, compiled=True), CEILINGS))
    assert [row.path for row in rows if row.skip] == ["geoskip", "compiled", "PyG", "PyG compiled"]
    assert [row.path for row in rows if not row.skip] == ["geoskip", "PyG"]
    assert all(row.problem is None for row in rows)
