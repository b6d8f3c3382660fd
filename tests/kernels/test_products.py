"""Sparse products, and ChebNet's recursion of them, on every fast path, against the reference."""

from __future__ import annotations

import importlib

import pytest

from geoskip import kernels
from tests.kernels.paths import Sizes, Where, cases, compare, drawn, edges, moved

pytestmark = pytest.mark.usefixtures("poisoned")


@pytest.mark.parametrize(("where", "sizes"), cases())
def test_sparse_product(where: Where, sizes: Sizes) -> None:
    pattern = edges(sizes)
    inputs = [drawn(*sizes.batch, sizes.vertices, sizes.channels, seed=1), drawn(pattern.num_edges, seed=2)]
    compare(lambda x, w, device: kernels.sparse_product(x, w, moved(pattern, device)), inputs, where)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(("where", "sizes"), cases())
def test_chebyshev_convolution(where: Where, sizes: Sizes, first: int) -> None:
    """L is scaled so that its polynomials stay of the order of 1."""
    pattern = edges(sizes)
    fixed = drawn(pattern.num_edges, seed=2) / (4 + sizes.hub)
    inputs = [
        drawn(*sizes.batch, sizes.vertices, sizes.channels, seed=1),
        drawn(sizes.slots, sizes.channels, sizes.out, seed=3),
        drawn(sizes.channels, sizes.out, seed=4),
        drawn(sizes.out, seed=5),
    ]

    def function(x, theta, skip, bias, device):
        weights = fixed.to(x.device, x.dtype)
        return kernels.chebyshev_convolution(x, weights, theta, moved(pattern, device), first, skip, bias)

    compare(function, inputs, where)


@pytest.mark.parametrize(("where", "sizes"), cases())
def test_chebyshev_convolution_with_a_gradient_of_its_weights(where: Where, sizes: Sizes) -> None:
    pattern = edges(sizes)
    inputs = [
        drawn(*sizes.batch, sizes.vertices, sizes.channels, seed=1),
        drawn(pattern.num_edges, seed=2) / (4 + sizes.hub),
        drawn(max(sizes.slots, 2), sizes.channels, sizes.out, seed=3),
        drawn(sizes.channels, sizes.out, seed=4),
        drawn(sizes.out, seed=5),
    ]

    def function(x, weights, theta, skip, bias, device):
        return kernels.chebyshev_convolution(x, weights, theta, moved(pattern, device), 0, skip, bias)

    compare(function, inputs, where)


@pytest.mark.compiled
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_chebyshev_convolution_with_a_few_terms_at_a_time(
    at_once: int, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Graphs too large to hold all terms in the memory that is set aside for them."""
    polynomials = importlib.import_module("geoskip.kernels.triton.polynomials")
    sizes = Sizes(4, 4, 6, (2,), 9)
    monkeypatch.setattr(polynomials, "TERMS_BYTES", at_once * 4 * 2 * sizes.vertices * sizes.channels)
    test_chebyshev_convolution(Where("interpreter"), sizes, first)
