"""A linear layer on every path, against the reference."""

from __future__ import annotations

import pytest
import torch

from geoskip import kernels
from geoskip.kernels import use_path
from geoskip.kernels.paths import recorded_launches
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


@pytest.mark.parametrize("where", EVERYWHERE)
@pytest.mark.parametrize("needed", [(0,), (1,), (2,), (1, 2), (0, 2)])
def test_some_of_the_gradients(where: Where, needed: tuple[int, ...]) -> None:
    inputs = [drawn(21, 35, seed=1), drawn(34, 35, seed=2), drawn(34, seed=3)]

    def function(*chosen, device):
        values = [value.to(chosen[0]) for value in inputs]
        for at, value in zip(needed, chosen, strict=True):
            values[at] = value
        return kernels.linear(*values)

    compare(function, [inputs[at] for at in needed], where)


@pytest.mark.compiled
@pytest.mark.parametrize(("shape", "count"), [((64, 64), 1), ((257, 64), 0), ((64, 257), 0)])
def test_a_small_layer_is_one_launch_each_way(shape: tuple[int, int], count: int) -> None:
    inputs = [drawn(*shape, seed=1), drawn(10, shape[1], seed=2), drawn(10, seed=3)]
    x, weight, bias = (value.float().requires_grad_() for value in inputs)
    with use_path("interpreter"), recorded_launches() as launches:
        y = kernels.linear(x, weight, bias)
        assert len(launches) == count
        torch.autograd.grad(y.sum(), [x, weight, bias])
    assert [kernel.__name__ for kernel, *_ in launches][count:][:count] == ["_linear_gradients_kernel"] * count
