"""A linear layer on every path, against the reference."""

from __future__ import annotations

import pytest

from geoskip import kernels
from tests.kernels.paths import EVERYWHERE, Sizes, Where, cases, compare, drawn

pytestmark = pytest.mark.usefixtures("poisoned")


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("where", "sizes"), cases())
def test_linear(where: Where, sizes: Sizes, biased: bool) -> None:
    inputs = [drawn(2, sizes.vertices, sizes.channels, seed=1), drawn(sizes.out, sizes.channels, seed=2)]

    def function(x, weight, bias=None, *, device):
        return kernels.linear(x, weight, bias)

    compare(function, [*inputs, drawn(sizes.out, seed=3)] if biased else inputs, where)


@pytest.mark.parametrize("where", EVERYWHERE)
@pytest.mark.parametrize("shape", [(3,), (0, 3), (3, 0, 3), (2, 0)])
def test_a_single_row_none_and_no_channels(where: Where, shape: tuple[int, ...]) -> None:
    def function(x, weight, bias, device):
        return kernels.linear(x, weight, bias)

    compare(function, [drawn(*shape, seed=1), drawn(4, shape[-1], seed=2), drawn(4, seed=3)], where)


@pytest.mark.parametrize("where", EVERYWHERE)
def test_a_gradient_that_is_one_number_seen_often(where: Where) -> None:
    """As that of a sum: it has no rows of its own in memory."""

    def function(x, weight, bias, device):
        return kernels.linear(x, weight, bias).sum()

    compare(function, [drawn(5, 3, seed=1), drawn(4, 3, seed=2), drawn(4, seed=3)], where)
