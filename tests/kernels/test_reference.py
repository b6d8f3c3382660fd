"""The reference kernels against loops over edges; the choice of a path."""

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


def looped(x: Tensor, weights: Tensor, pattern: Pattern) -> Tensor:
    """z[i, m] = Σ w_m(i, j) x_j, edge by edge."""
    slots = weights.shape[-1] if pattern.groups == 1 else pattern.groups
    z = torch.zeros(pattern.num_receivers, slots, x.shape[-1], dtype=x.dtype)
    for e in range(pattern.num_edges):
        for k in range(weights.shape[-1]):
            m = k if pattern.groups_of is None else int(pattern.groups_of[e])
            z[pattern.receivers[e], m] += weights[e, k] * x[pattern.senders[e]]
    return z


@pytest.mark.parametrize("groups", [1, SLOTS])
def test_basis_aggregation(groups: int) -> None:
    pattern, x = drawn(groups), features(NUM_SENDERS, IN)
    weights = features(EDGES, SLOTS if groups == 1 else 1, seed=2)
    assert_close(reference.basis_aggregation(x, weights, pattern), looped(x, weights, pattern))


@pytest.mark.parametrize("shared", [True, False])
def test_basis_aggregation_of_a_batch(shared: bool) -> None:
    """Weights are one set for all items, or one for each."""
    pattern, x = drawn(), features(2, 3, NUM_SENDERS, IN)
    weights = features(EDGES, SLOTS, seed=2) if shared else features(2, 3, EDGES, SLOTS, seed=2)
    z = reference.basis_aggregation(x, weights, pattern)
    for a in range(2):
        for b in range(3):
            assert_close(z[a, b], looped(x[a, b], weights if shared else weights[a, b], pattern))


@pytest.mark.parametrize("groups", [1, SLOTS])
def test_basis_convolution(groups: int) -> None:
    """On as many receivers as senders, so that a skip has a meaning."""
    square = drawn(groups)
    pattern, _ = sort_edges(square.senders, square.receivers, 6, 6, square.groups_of, groups)
    x, theta = features(6, IN), features(SLOTS, IN, OUT, seed=3)
    weights = features(EDGES, SLOTS if groups == 1 else 1, seed=2)
    skip, bias = features(IN, OUT, seed=4), features(OUT, seed=5)
    z = looped(x, weights, pattern)
    y = sum((z[:, m] @ theta[m] for m in range(SLOTS)), torch.zeros(6, OUT, dtype=x.dtype))
    assert_close(reference.basis_convolution(x, weights, theta, pattern), y)
    assert_close(reference.basis_convolution(x, weights, theta, pattern, skip), y + x @ skip)
    assert_close(reference.basis_convolution(x, weights, theta, pattern, None, bias), y + bias)
    assert_close(reference.basis_convolution(x, weights, theta, pattern, skip, bias), y + x @ skip + bias)


def test_sparse_product() -> None:
    pattern, x, weights = drawn(), features(2, NUM_SENDERS, IN), features(EDGES, seed=2)
    dense = torch.zeros(NUM_RECEIVERS, NUM_SENDERS, dtype=x.dtype)
    dense = dense.index_put((pattern.receivers, pattern.senders), weights, accumulate=True)
    assert_close(reference.sparse_product(x, weights, pattern), dense @ x)


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("slots", [1, 2, 4])
def test_chebyshev_convolution(first: int, slots: int) -> None:
    """T_k(cos φ) = cos kφ on a diagonal matrix."""
    loops = torch.arange(NUM_SENDERS)
    pattern, _ = sort_edges(loops, loops, NUM_SENDERS, NUM_SENDERS)
    angles = torch.linspace(0.1, 3, NUM_SENDERS, dtype=torch.float64)
    x, theta = features(NUM_SENDERS, IN), features(slots, IN, OUT, seed=3)
    skip, bias = features(IN, OUT, seed=4), features(OUT, seed=5)
    y = x @ skip + bias
    for m in range(slots):
        y = y + ((m + first) * angles).cos().unsqueeze(1) * x @ theta[m]
    assert_close(reference.chebyshev_convolution(x, angles.cos(), theta, pattern, first, skip, bias), y)


def test_gaussian_basis() -> None:
    pseudo, mean, scale = features(EDGES, 2), features(SLOTS, 2, seed=2), features(SLOTS, 2, seed=3)
    weights = reference.gaussian_basis(pseudo, mean, scale)
    for e in range(EDGES):
        for m in range(SLOTS):
            distance = sum(float((pseudo[e, d] - mean[m, d]) / scale[m, d]) ** 2 for d in range(2))
            assert float(weights[e, m]) == pytest.approx(math.exp(-distance / 2), rel=1e-9)


def test_gaussian_basis_has_a_floor_under_the_variance() -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    weights = reference.gaussian_basis(one, 0 * one, 0 * one, floor=0.5)
    assert float(weights) == pytest.approx(math.exp(-0.5 / 0.5))


def test_softmax_basis() -> None:
    pattern, offset, scale = drawn(), features(SLOTS, seed=4), features(EDGES, seed=5)
    senders, receivers = features(6, SLOTS), features(6, SLOTS, seed=2)
    weights = reference.softmax_basis(senders, receivers, offset, scale, pattern)
    for e in range(EDGES):
        j, i = int(pattern.senders[e]), int(pattern.receivers[e])
        logits = [float(senders[j, m] + receivers[i, m] + offset[m]) for m in range(SLOTS)]
        total = sum(math.exp(logit) for logit in logits)
        wanted = [float(scale[e]) * math.exp(logit) / total for logit in logits]
        assert weights[e].tolist() == pytest.approx(wanted)


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
