"""The reference kernels, which the oracles of the operators check; the choice of a path."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from geoskip import kernels
from geoskip.kernels import Pattern, reference, sort_edges, use_path
from tests.specimens import features

NUM_SENDERS, NUM_RECEIVERS, EDGES, SLOTS, IN, OUT = 6, 4, 13, 3, 2, 5


def drawn(groups: int = 1) -> Pattern:
    random = torch.Generator().manual_seed(groups)
    senders = torch.randint(NUM_SENDERS, (EDGES,), generator=random)
    receivers = torch.randint(NUM_RECEIVERS, (EDGES,), generator=random)
    group = torch.randint(groups, (EDGES,), generator=random) if groups > 1 else None
    return sort_edges(senders, receivers, NUM_SENDERS, NUM_RECEIVERS, group, groups)[0]


def test_gaussian_basis_has_a_floor_under_the_variance() -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    weights = reference.gaussian_basis(one, 0 * one, 0 * one, floor=0.5)
    assert float(weights) == pytest.approx(math.exp(-0.5 / 0.5))


def test_softmax_of_large_scores_is_finite() -> None:
    huge = torch.full((6, SLOTS), 1e4)
    weights = reference.softmax_basis(huge, huge, torch.zeros(SLOTS), torch.ones(EDGES), drawn())
    assert_close(weights, torch.full((EDGES, SLOTS), 1 / SLOTS))


def test_use_path_holds_inside_and_ends_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the block is left by an error, and when blocks are nested."""
    calls, exact = [], reference.sparse_product

    def watched(*arguments: Any) -> Tensor:
        calls.append(arguments)
        return exact(*arguments)

    def on_reference() -> bool:
        calls.clear()
        kernels.sparse_product(features(NUM_SENDERS, IN), features(EDGES), drawn())
        return bool(calls)

    @use_path("reference")
    def fail() -> None:
        raise RuntimeError("out")

    monkeypatch.setattr(reference, "sparse_product", watched)
    assert not on_reference()
    with use_path("reference"):
        with use_path("reference"):
            assert on_reference()
        assert on_reference()
        with pytest.raises(RuntimeError, match="out"):
            fail()
        assert on_reference()
    with pytest.raises(RuntimeError, match="out"):
        fail()
    assert not on_reference()


def test_unknown_path_is_named() -> None:
    with (
        pytest.raises(ValueError, match=r"use_path: unknown path 'fastest'; choose from \[.*'reference'"),
        use_path("fastest"),
    ):
        pass
