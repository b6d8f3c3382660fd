"""Fixtures for the tests of accelerated layers."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def small_graphs_are_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers are tested with small graphs, for which users get PyTorch Geometric's code on the CPU."""
    pytest.importorskip("torch_geometric")
    monkeypatch.setattr("geoskip.pyg.fast_layer.NARROW", 0)
    monkeypatch.setattr("geoskip.pyg.fast_layer.SMALL", 0)
