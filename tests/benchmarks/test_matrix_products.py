"""The products of a classifier, each way."""

from __future__ import annotations

import importlib

import pytest
import torch

from benchmarks import matrix_products
from geoskip.kernels import use_path


@pytest.mark.compiled
def test_each_way_computes_the_products(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"ROWS": 40, "CLASSES": 50, "CHANNELS": 16}.items():
        monkeypatch.setattr(matrix_products, name, size)
    monkeypatch.setattr(importlib.import_module("geoskip.kernels.triton.halves"), "CHUNK", 32)
    with use_path("interpreter"):
        rows = list(matrix_products.measure_products(torch.device("cpu"), 0.0))
        x, weight = torch.randn(40, 16), torch.randn(50, 16)
        gradient = torch.nn.functional.pad(torch.rand(40, 50) / 40, (0, -50 % 32, 0, -40 % 32))
        _, grad_x, grad_weight = matrix_products._split_float16(x, weight, gradient)()
    assert [row.way.split(",")[0] for row in rows] == ["float32", "TF32", "two of TF32", "two of float16 (geoskip)"]
    assert all(error < 1e-6 for row in rows for error in row.errors)
    torch.testing.assert_close(grad_x, gradient[:40, :50] @ weight)
    torch.testing.assert_close(grad_weight, gradient[:40, :50].t() @ x)
