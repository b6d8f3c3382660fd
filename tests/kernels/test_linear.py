"""A linear layer on every path, against the reference."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch import Tensor

from geoskip import kernels
from geoskip.kernels import use_path
from geoskip.kernels.paths import recorded_launches
from tests.kernels.paths import EVERYWHERE, ON_TRITON, Sizes, Where, cases, compare, drawn, outputs, relative

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


@pytest.fixture
def none_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("geoskip.kernels.triton.linear_layers"), "SMALL", 0)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return kernels.linear(x, weight, bias)


@pytest.mark.usefixtures("in_halves", "none_are_small")
@pytest.mark.parametrize("where", ON_TRITON)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    ("shape", "out", "scales"),
    [
        ((5, 8), 3, (1.0, 1.0)),
        ((2, 35, 16), 65, (1.0, 1.0)),
        ((64, 24), 128, (1e-30, 1e30)),
        ((8,), 9, (1e25, 1e-26)),
        ((6, 64), 9, (1e-38, 1.0)),
    ],
)
def test_large_layers_in_halves(
    where: Where, biased: bool, shape: tuple[int, ...], out: int, scales: tuple[float, float]
) -> None:
    """Whatever the scales of x and of the weight; the rounding of the largest numbers bounds the error."""
    inputs = [drawn(*shape, seed=1) * scales[0], drawn(out, shape[-1], seed=2) * scales[1]]
    inputs += [drawn(out, seed=3)] if biased else []
    expected = outputs(_linear, inputs, None)
    found, again = outputs(_linear, inputs, where), outputs(_linear, inputs, where)
    for a, b, repeated in zip(found, expected, again, strict=True):
        assert a.shape == b.shape
        assert torch.equal(a, repeated)
        assert relative(a, b) < 2**-21


@pytest.mark.usefixtures("in_halves", "none_are_small")
@pytest.mark.parametrize("where", ON_TRITON)
def test_rows_in_halves_do_not_depend_on_each_other(where: Where) -> None:
    """A row that is not finite, or 10³⁰ times as large as the others, changes no other row."""
    x, weight = (drawn(size, 16, seed=size).to(where.device, where.dtype) for size in (70, 9))
    with kernels.use_path(where.path):
        expected = kernels.linear(x, weight)
        for value in (float("inf"), float("nan"), 1e30):
            other = x.clone()
            other[3, 4] = value
            found = kernels.linear(other, weight)
            assert torch.equal(found[torch.arange(70) != 3], expected[torch.arange(70) != 3])
            assert value == 1e30 or found[3].isnan().all()


def test_matrices_that_are_too_large_for_the_kernels_are_not_halved() -> None:
    """Their entries, those of the padding included, are numbered in 32 bits."""
    halves = importlib.import_module("geoskip.kernels.triton.halves")
    one = torch.zeros(1)
    for rows, expected in ((2**23 - 256, True), (2**23 - 255, False), (2**23, False)):
        assert halves.pays(one.expand(rows, 256), one.expand(512, 256)) is expected
        assert halves.pays(one.expand(512, 256), one.expand(rows, 256)) is expected


@pytest.mark.gpu
def test_the_classifier_alone_in_halves() -> None:
    """The sizes that halves are for, against float64: as accurate as torch computes them in float32."""
    halves = importlib.import_module("geoskip.kernels.triton.halves")
    inputs = [drawn(6890, 256, seed=1), drawn(6890, 256, seed=2) / 16, drawn(6890, seed=3)]
    assert halves.pays(*(tensor.float().cuda() for tensor in inputs[:2]))
    exact = outputs(_linear, inputs, Where("reference", "cuda", torch.float64))
    plain, found = (outputs(_linear, inputs, Where(path, "cuda")) for path in ("reference", "fast"))
    for a, b, by_torch in zip(found, exact, plain, strict=True):
        assert relative(a, b) <= max(1.2 * relative(by_torch, b), 2**-21)
