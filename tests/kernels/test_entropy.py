"""A linear layer with its cross-entropy on every fast path, against the reference."""

from __future__ import annotations

import importlib

import pytest
import torch

from geoskip import kernels
from tests.kernels.paths import EVERYWHERE, Sizes, Where, cases, compare, drawn

pytestmark = pytest.mark.usefixtures("poisoned")


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("where", "sizes"), cases())
def test_linear_cross_entropy(where: Where, sizes: Sizes, biased: bool) -> None:
    """Rows without a label have no loss, rows weigh differently, and classes need not fill whole steps."""
    rows, classes = sizes.vertices, sizes.out + 1
    labels = torch.randint(classes, (rows,), generator=torch.Generator().manual_seed(1))
    labels[::3] = -1
    shares = drawn(rows, seed=2).abs()
    inputs = [drawn(rows, sizes.channels, seed=3), drawn(classes, sizes.channels, seed=4), drawn(classes, seed=5)]

    def function(x, weight, bias=None, *, device):
        share = shares.to(x.device, x.dtype)
        return kernels.linear_cross_entropy(x, weight, bias, labels.to(device), share)

    compare(function, inputs if biased else inputs[:2], where)


@pytest.mark.parametrize("where", EVERYWHERE)
def test_cross_entropy_of_no_rows(where: Where) -> None:
    def function(x, weight, bias, device):
        none = torch.zeros(0, dtype=torch.long, device=device)
        return kernels.linear_cross_entropy(x, weight, bias, none, none.to(x.dtype))

    compare(function, [drawn(0, 3, seed=1), drawn(10, 3, seed=2), drawn(10, seed=3)], where)


@pytest.mark.parametrize(
    ("where", "classes"),
    [
        pytest.param(Where("interpreter"), 40, marks=pytest.mark.compiled),
        pytest.param(Where("fast", "cuda"), 2500, marks=pytest.mark.gpu),
        pytest.param(Where("fast", "cuda"), 9000, marks=pytest.mark.gpu),
    ],
)
def test_scores_in_several_blocks(where: Where, classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are longer than a block of the kernel, and more rows than programs."""
    if where.device == "cpu":
        monkeypatch.setattr(importlib.import_module("geoskip.kernels.triton.training"), "ENTROPY_BLOCK", 16)
        monkeypatch.setattr(importlib.import_module("geoskip.kernels.triton.training"), "ENTROPY_PROGRAMS", 3)
    rows = 7 if where.device == "cpu" else 600
    labels = torch.randint(-1, classes, (rows,), generator=torch.Generator().manual_seed(1))
    inputs = [drawn(rows, 5, seed=3), drawn(classes, 5, seed=4), drawn(classes, seed=5)]

    def function(x, weight, bias, device):
        return kernels.linear_cross_entropy(x, weight, bias, labels.to(device), torch.ones(rows).to(x))

    compare(function, inputs, where)
