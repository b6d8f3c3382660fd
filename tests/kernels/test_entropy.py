"""A linear layer with its cross-entropy on every fast path, against the reference."""

from __future__ import annotations

import importlib

import pytest
import torch

from geoskip import kernels
from tests.kernels.paths import EVERYWHERE, ON_TRITON, Sizes, Where, cases, compare, drawn, outputs, relative

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
        monkeypatch.setattr(importlib.import_module("geoskip.kernels.triton.training_step"), "ENTROPY_BLOCK", 16)
        monkeypatch.setattr(importlib.import_module("geoskip.kernels.triton.training_step"), "ENTROPY_PROGRAMS", 3)
    rows = 7 if where.device == "cpu" else 600
    labels = torch.randint(-1, classes, (rows,), generator=torch.Generator().manual_seed(1))
    inputs = [drawn(rows, 5, seed=3), drawn(classes, 5, seed=4), drawn(classes, seed=5)]

    def function(x, weight, bias, device):
        return kernels.linear_cross_entropy(x, weight, bias, labels.to(device), torch.ones(rows).to(x))

    compare(function, inputs, where)


def _entropy_of(labels: torch.Tensor, shares: torch.Tensor):
    def function(x, weight, bias=None, *, device):
        return kernels.linear_cross_entropy(x, weight, bias, labels.to(device), shares.to(x.device, x.dtype))

    return function


@pytest.mark.usefixtures("in_halves")
@pytest.mark.parametrize("where", ON_TRITON)
@pytest.mark.parametrize(
    ("rows", "channels", "classes", "scales"),
    [
        (5, 8, 3, (1.0, 1.0)),
        (70, 16, 65, (1.0, 1.0)),
        (64, 24, 128, (1e-30, 1e30)),
        (7, 8, 9, (1e25, 1e-26)),
        (6, 8, 9, (1e-38, 1.0)),
    ],
)
def test_large_products_in_halves(
    where: Where, rows: int, channels: int, classes: int, scales: tuple[float, float]
) -> None:
    """Whatever the scales of x and of the weight; the rounding of the largest numbers bounds the error."""
    labels = torch.randint(-1, classes, (rows,), generator=torch.Generator().manual_seed(1))
    function = _entropy_of(labels, drawn(rows, seed=2).abs())
    inputs = [drawn(rows, channels, seed=3), drawn(classes, channels, seed=4), drawn(classes, seed=5)]
    inputs = [inputs[0] * scales[0], inputs[1] * scales[1], inputs[2]]
    expected = outputs(lambda *a: function(*a, device="cpu"), inputs, None)
    found = outputs(lambda *a: function(*a, device=where.device), inputs, where)
    again = outputs(lambda *a: function(*a, device=where.device), inputs, where)
    for a, b, repeated in zip(found, expected, again, strict=True):
        assert torch.equal(a, repeated)
        assert relative(a, b) < 2**-21


@pytest.mark.usefixtures("in_halves")
@pytest.mark.parametrize("where", ON_TRITON)
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("of", [0, 1])
def test_halves_of_numbers_that_are_not_finite(where: Where, value: float, of: int) -> None:
    function = _entropy_of(torch.arange(5), torch.ones(5))
    inputs = [drawn(5, 8, seed=3), drawn(9, 8, seed=4), drawn(9, seed=5)]
    inputs[of][2, 3] = value
    for found in outputs(lambda *a: function(*a, device=where.device), inputs, where):
        assert found.isnan().all()


@pytest.mark.usefixtures("in_halves")
@pytest.mark.parametrize("where", ON_TRITON)
def test_halves_hold_numbers_far_below_the_largest(where: Where) -> None:
    """22 bits of numbers down to 2⁻¹⁸ of the largest, then 2⁻⁴⁰ of the largest."""
    halves = importlib.import_module("geoskip.kernels.triton.halves")
    x = (drawn(64, 8, seed=1) * 2.0 ** -torch.arange(64)[:, None].double()).to(where.device, torch.float32)
    (top,) = halves.largest(x)
    with kernels.use_path(where.path):
        rest, lead, again = halves.halves(x, top, True).double().chunk(3, 1)
    assert torch.equal(lead, again)
    scale = 2.0 ** (14 - torch.frexp(top.cpu()).exponent.item() + 1)
    error = ((lead + rest) / scale - x.double()).abs()
    assert (error <= torch.maximum(x.abs().double() * 2**-22, top.double() * 2**-39)).all()
    assert 2**14 <= float(lead.abs().max()) <= 2**15


def _rounded_down(exact: torch.Tensor) -> torch.Tensor:
    """Float64 to float32, towards zero."""
    nearest = exact.float()
    too_far = nearest.double().abs() > exact.abs()
    return (nearest.view(torch.int32) - too_far.int()).view(torch.float32)


def _on_tensor_cores(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product of batches of float16 matrices, as tensor cores add it up: 16 terms at a time, each sum rounded
    towards zero."""
    total = torch.zeros(*a.shape[:-1], b.shape[-1])
    for k in range(0, a.shape[-1], 16):
        total = _rounded_down(total.double() + a[..., k : k + 16].double() @ b[..., k : k + 16, :].double())
    return total


@pytest.mark.compiled
@pytest.mark.parametrize(("chunk", "least", "most"), [(None, 0.0, 5.6e-7), (6912, 5e-6, 2e-5)], ids=["some", "one"])
def test_long_sums_are_accurate_in_chunks(
    chunk: int | None, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum over 6,890 classes, one of them far larger than the others: with the chunks in use, the error is at most
    that of float32 in cuBLAS; without chunks it is ten times as large."""
    halves = importlib.import_module("geoskip.kernels.triton.halves")
    monkeypatch.setattr(halves, "_bmm", _on_tensor_cores)
    monkeypatch.setattr(halves, "CHUNK", chunk or halves.CHUNK)
    rows, classes, channels = 64, 6890, 8
    gradient = torch.softmax(2**0.5 * drawn(rows, classes, seed=1), 1)
    gradient[torch.arange(rows), torch.randint(classes, (rows,), generator=torch.Generator().manual_seed(2))] -= 1
    gradient, weight = gradient.float(), drawn(classes, channels, seed=3).float()
    padded = torch.nn.functional.pad(gradient, (0, -classes % halves.CHUNK)) * 2**14
    stored = torch.cat([padded.half(), (padded - padded.half()).half()], 1)
    tops = torch.ones(()), *halves.largest(weight)
    with kernels.use_path("interpreter"):
        right = halves.halves(weight, tops[1], False)
        found = halves.gradient_of_left(stored, right, tops, torch.ones(()), rows)
    assert least < relative(found, gradient.double() @ weight.double()) < most


@pytest.mark.compiled
@pytest.mark.parametrize("channels", [256, 1032])
def test_sums_of_scores_are_short_enough(channels: int) -> None:
    """On tensor cores, x Wᵀ is accurate wherever it is computed in halves; with more channels it would not be."""
    halves = importlib.import_module("geoskip.kernels.triton.halves")
    x, weight = drawn(2048, channels, seed=1).float(), drawn(2048, channels, seed=2).float()
    assert halves.pays(x, weight) == (channels <= halves.CHUNK)
    tops = halves.largest(x, weight)
    with kernels.use_path("interpreter"):
        left, right = halves.halves(x[:64], tops[0], True), halves.halves(weight[:64], tops[1], False)
    scales = [2.0 ** (15 - torch.frexp(top).exponent.item()) for top in tops]
    scores = _on_tensor_cores(left[:64], right[:64].t()).double() / (scales[0] * scales[1])
    error = relative(scores, x[:64].double() @ weight[:64].double().t())
    assert (error < 2**-21) == (channels <= halves.CHUNK)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [6890, 1030])
def test_the_correspondence_classifier_in_halves(rows: int) -> None:
    """The sizes that halves are for, against float64: as accurate as torch computes them in float32."""
    halves = importlib.import_module("geoskip.kernels.triton.halves")
    classes = 6890
    x, weight = drawn(rows, 256, seed=3).cuda(), drawn(classes, 256, seed=4).cuda() / 16
    assert halves.pays(x.float(), weight.float())
    function = _entropy_of(torch.arange(rows).cuda(), torch.full((rows,), 1 / rows))
    inputs = [x, weight, drawn(classes, seed=5).cuda()]

    def computed(where: Where) -> list[torch.Tensor]:
        return outputs(lambda *a: function(*a, device="cuda"), inputs, where)

    exact = computed(Where("reference", "cuda", torch.float64))
    by_torch, found, again = computed(Where("reference", "cuda")), *(computed(Where("fast", "cuda")) for _ in range(2))
    for a, b, plain, repeated in zip(found, exact, by_torch, again, strict=True):
        assert torch.equal(a, repeated)
        assert relative(a, b) <= max(1.2 * relative(plain, b), 2**-21)
