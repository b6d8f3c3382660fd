"""The fast paths against the reference in float64: values and all gradients, at odd sizes, on poisoned memory.

The same checks run the CPU path, Triton's kernels in its interpreter, and, marked ``gpu``, on a device.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from geoskip import kernels
from geoskip.kernels import Pattern, sort_edges, use_path


class Sizes(NamedTuple):
    channels: int
    out: int
    slots: int
    batch: tuple[int, ...]
    vertices: int
    hub: int = 0


# Ones, primes, blocks that do not divide, more channels than a block, items as rows and vertices as rows.
SMALL = [
    Sizes(1, 1, 1, (), 5),
    Sizes(3, 5, 2, (2,), 9),
    Sizes(5, 2, 4, (13,), 6, hub=11),
    Sizes(2, 3, 3, (17,), 4),
    Sizes(18, 19, 3, (12,), 4),
]
LARGE = [
    Sizes(33, 17, 5, (3,), 71, hub=300),
    Sizes(3, 130, 9, (2, 7), 50),
    Sizes(64, 128, 10, (), 200),
    Sizes(32, 32, 14, (32,), 90, hub=70),
    Sizes(129, 64, 7, (12,), 40),
    Sizes(1, 257, 25, (1,), 33),
]


@dataclass(frozen=True)
class Where:
    """A path, and the device and precision it is tried in."""

    path: str
    device: str = "cpu"
    dtype: torch.dtype = torch.float32

    @property
    def tolerance(self) -> float:
        return 1e-12 if self.dtype == torch.float64 else 1e-5

    def __str__(self) -> str:
        return f"{self.path}-{self.device}-{str(self.dtype).removeprefix('torch.')}"


CPU = [Where("fast"), Where("fast", dtype=torch.float64)]
EVERYWHERE = [
    *[pytest.param(where, id=str(where)) for where in CPU],
    pytest.param(Where("interpreter"), id="interpreter", marks=pytest.mark.compiled),
    pytest.param(Where("fast", "cuda"), id="cuda", marks=pytest.mark.gpu),
]


def cases(least_slots: int = 1) -> list[Any]:
    def chosen(sizes: list[Sizes]) -> list[tuple[int, Sizes]]:
        return [(i, one) for i, one in enumerate(sizes) if one.slots >= least_slots]

    return [
        *[pytest.param(where, sizes, id=f"{where}-{i}") for where in CPU for i, sizes in chosen(SMALL + LARGE)],
        *[
            pytest.param(Where("interpreter"), sizes, id=f"interpreter-{i}", marks=pytest.mark.compiled)
            for i, sizes in chosen(SMALL)
        ],
        *[
            pytest.param(Where("fast", "cuda"), sizes, id=f"cuda-{i}", marks=pytest.mark.gpu)
            for i, sizes in chosen(SMALL + LARGE)
        ],
    ]


@pytest.fixture(autouse=True)
def _poisoned() -> Iterator[None]:
    """Memory that nobody has written holds NaN."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def edges(sizes: Sizes, groups: int = 1, loops: bool = False) -> Pattern:
    """Random edges; a hub that hears many; the last vertex is isolated unless every vertex hears itself."""
    random = torch.Generator().manual_seed(sizes.vertices)
    count = 4 * sizes.vertices
    senders = torch.randint(sizes.vertices, (count + sizes.hub,), generator=random)
    receivers = torch.randint(max(sizes.vertices - 1, 1), (count + sizes.hub,), generator=random)
    receivers[count:] = 0
    if loops:
        own = torch.arange(sizes.vertices)
        senders, receivers = torch.cat([senders, own]), torch.cat([receivers, own])
    group = torch.randint(groups, senders.shape, generator=random) if groups > 1 else None
    return sort_edges(senders, receivers, sizes.vertices, sizes.vertices, group, groups)[0]


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def outputs(function, inputs: list[Tensor], where: Where | None) -> list[Tensor]:
    """The value and the gradient of every input, under a fixed gradient of the value."""
    dtype, device = (torch.float64, "cpu") if where is None else (where.dtype, where.device)
    ready = [tensor.to(device, dtype).requires_grad_() for tensor in inputs]
    with use_path("reference" if where is None else where.path):
        y = function(*ready)
        grads = torch.autograd.grad(y, ready, drawn(*y.shape, seed=99).to(device, y.dtype))
    return [y.detach(), *grads]


def compare(function, inputs: list[Tensor], where: Where) -> None:
    expected = outputs(lambda *a: function(*a, device="cpu"), inputs, None)
    found = outputs(lambda *a: function(*a, device=where.device), inputs, where)
    again = outputs(lambda *a: function(*a, device=where.device), inputs, where)
    for a, b, repeated in zip(found, expected, again, strict=True):
        assert torch.equal(a, repeated)
        # Inputs are of the order of 1; where the true gradient is 0 there is nothing to be relative to.
        error = (a.cpu().double() - b).norm() / b.norm().clamp(min=0.1)
        assert float(error) < where.tolerance


@pytest.mark.parametrize("per_item", [False, True])
@pytest.mark.parametrize(("where", "sizes"), cases())
def test_basis_convolution(where: Where, sizes: Sizes, per_item: bool) -> None:
    pattern = edges(sizes)
    shape = (*sizes.batch, pattern.num_edges, sizes.slots) if per_item else (pattern.num_edges, sizes.slots)
    inputs = [
        drawn(*sizes.batch, sizes.vertices, sizes.channels, seed=1),
        drawn(*shape, seed=2),
        drawn(sizes.slots, sizes.channels, sizes.out, seed=3),
        drawn(sizes.channels, sizes.out, seed=4),
        drawn(sizes.out, seed=5),
    ]

    def function(x, weights, theta, skip, bias, device):
        return kernels.basis_convolution(x, weights, theta, moved(pattern, device), skip, bias)

    compare(function, inputs, where)


@pytest.mark.parametrize(("where", "sizes"), cases())
def test_matrices_that_lie_column_by_column(where: Where, sizes: Sizes) -> None:
    pattern = edges(sizes)
    inputs = [
        drawn(*sizes.batch, sizes.vertices, sizes.channels, seed=1),
        drawn(pattern.num_edges, sizes.slots, seed=2),
        drawn(sizes.slots, sizes.out, sizes.channels, seed=3),
        drawn(sizes.out, sizes.channels, seed=4),
    ]

    def function(x, weights, theta, skip, device):
        return kernels.basis_convolution(x, weights, theta.mT, moved(pattern, device), skip.t())

    compare(function, inputs, where)


@pytest.mark.parametrize(("where", "sizes"), cases(least_slots=2))
def test_one_set_of_edges_per_slot(where: Where, sizes: Sizes) -> None:
    pattern = edges(sizes, groups=sizes.slots)
    inputs = [
        drawn(*sizes.batch, sizes.vertices, sizes.channels, seed=1),
        drawn(pattern.num_edges, 1, seed=2),
        drawn(sizes.slots, sizes.channels, sizes.out, seed=3),
    ]

    def function(x, weights, theta, device):
        return kernels.basis_convolution(x, weights, theta, moved(pattern, device))

    compare(function, inputs, where)


@pytest.mark.parametrize(("senders", "receivers"), [(7, 3), (3, 7), (5, 0)])
@pytest.mark.parametrize("batch", [2, 13])
@pytest.mark.parametrize("where", EVERYWHERE)
def test_receivers_that_are_no_senders(where: Where, batch: int, senders: int, receivers: int) -> None:
    """More of them, fewer, or none: the gradient of the bias sums over the receivers."""
    random = torch.Generator().manual_seed(1)
    count = 9 * min(receivers, 1)
    first = torch.randint(senders, (count,), generator=random)
    last = torch.randint(max(receivers, 1), (count,), generator=random)
    pattern, _ = sort_edges(first, last, senders, receivers)
    inputs = [
        drawn(batch, senders, 2, seed=1),
        drawn(pattern.num_edges, 3, seed=2),
        drawn(3, 2, 5, seed=3),
        drawn(5, seed=4),
    ]

    def function(x, weights, theta, bias, device):
        return kernels.basis_convolution(x, weights, theta, moved(pattern, device), None, bias)

    compare(function, inputs, where)


@pytest.mark.parametrize(
    ("where", "sizes"),
    [
        *[pytest.param(Where("interpreter"), SMALL[i], marks=pytest.mark.compiled) for i in (1, 3)],
        *[pytest.param(Where("fast", "cuda"), sizes, marks=pytest.mark.gpu) for sizes in LARGE],
    ],
)
def test_offsets_of_64_bits(where: Where, sizes: Sizes, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for tensors of more than 2³¹ numbers."""
    for name in ("items", "item_gradients", "vertices", "vertex_gradients"):
        monkeypatch.setattr(importlib.import_module(f"geoskip.kernels.triton.{name}"), "needs_wide", lambda *_: True)
    monkeypatch.setattr(importlib.import_module("geoskip.kernels.triton.softmax"), "NARROW", 0)
    test_softmax_convolution(where, sizes, opposite=True)
    test_basis_convolution(where, sizes, per_item=False)
    test_one_set_of_edges_per_slot(where, sizes)


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
def test_gaussian_basis(where: Where, sizes: Sizes) -> None:
    inputs = [
        drawn(5 * sizes.vertices, 3, seed=1).sigmoid(),
        drawn(sizes.slots, 3, seed=2),
        drawn(sizes.slots, 3, seed=3).abs() + 0.3,
    ]
    compare(lambda u, mean, scale, device: kernels.gaussian_basis(u, mean, scale), inputs, where)


@pytest.mark.parametrize(("where", "sizes"), cases())
def test_softmax_basis(where: Where, sizes: Sizes) -> None:
    pattern = edges(sizes, loops=True)
    share = drawn(pattern.num_edges, seed=4).abs()
    share[0] = 0
    inputs = [
        drawn(*sizes.batch, sizes.vertices, sizes.slots, seed=1),
        drawn(*sizes.batch, sizes.vertices, sizes.slots, seed=2),
        drawn(sizes.slots, seed=3),
    ]

    def function(senders, receivers, offset, device):
        scale = share.to(senders.device, senders.dtype)
        return kernels.softmax_basis(senders, receivers, offset, scale, moved(pattern, device))

    compare(function, inputs, where)


@pytest.mark.parametrize(("where", "sizes"), cases())
def test_gaussian_convolution(where: Where, sizes: Sizes) -> None:
    pattern = edges(sizes)
    inputs = [
        drawn(*sizes.batch, sizes.vertices, sizes.channels, seed=1),
        drawn(pattern.num_edges, 2, seed=2).sigmoid(),
        drawn(sizes.slots, 2, seed=3),
        drawn(sizes.slots, 2, seed=4).abs() + 0.3,
        drawn(sizes.slots, sizes.channels, sizes.out, seed=5),
        drawn(sizes.channels, sizes.out, seed=6),
        drawn(sizes.out, seed=7),
    ]

    def function(x, u, mean, scale, theta, skip, bias, device):
        return kernels.gaussian_convolution(x, u, mean, scale, theta, moved(pattern, device), skip, bias)

    compare(function, inputs, where)


@pytest.mark.parametrize("opposite", [False, True])
@pytest.mark.parametrize(("where", "sizes"), cases())
def test_softmax_convolution(where: Where, sizes: Sizes, opposite: bool) -> None:
    pattern = edges(sizes, loops=True)
    share = drawn(pattern.num_edges, seed=4).abs()
    inputs = [
        drawn(*sizes.batch, sizes.vertices, sizes.channels, seed=1),
        drawn(sizes.slots, sizes.channels, seed=2) / sizes.channels**0.5,
        drawn(sizes.slots, seed=3),
        drawn(sizes.slots, sizes.channels, sizes.out, seed=5),
        drawn(sizes.channels, sizes.out, seed=6),
        drawn(sizes.out, seed=7),
    ]
    if not opposite:
        inputs.append(drawn(sizes.slots, sizes.channels, seed=8) / sizes.channels**0.5)

    def function(x, senders, offset, theta, skip, bias, receivers=None, *, device):
        scale = share.to(x.device, x.dtype)
        edged = moved(pattern, device)
        return kernels.softmax_convolution(x, senders, receivers, offset, scale, theta, edged, skip, bias)

    compare(function, inputs, where)


@pytest.mark.parametrize("batch", [(), (13,)])
@pytest.mark.parametrize(
    ("where", "slots"),
    [
        pytest.param(Where("interpreter"), 5, marks=pytest.mark.compiled),
        pytest.param(Where("fast", "cuda"), 70, marks=pytest.mark.gpu),
    ],
)
def test_more_slots_than_a_thread_holds(
    where: Where, slots: int, batch: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if where.device == "cpu":
        monkeypatch.setattr(importlib.import_module("geoskip.kernels.triton.softmax"), "MOST_HELD", 2)
    test_softmax_convolution(where, Sizes(3, 4, slots, batch, 6, hub=5), opposite=True)


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
        monkeypatch.setattr(importlib.import_module("geoskip.kernels.triton.entropy"), "BLOCK", 16)
        monkeypatch.setattr(importlib.import_module("geoskip.kernels.triton.entropy"), "PROGRAMS", 3)
    rows = 7 if where.device == "cpu" else 600
    labels = torch.randint(-1, classes, (rows,), generator=torch.Generator().manual_seed(1))
    inputs = [drawn(rows, 5, seed=3), drawn(classes, 5, seed=4), drawn(classes, seed=5)]

    def function(x, weight, bias, device):
        return kernels.linear_cross_entropy(x, weight, bias, labels.to(device), torch.ones(rows).to(x))

    compare(function, inputs, where)


@pytest.mark.parametrize("path", ["fast", pytest.param("interpreter", marks=pytest.mark.compiled)])
def test_what_needs_no_gradient_gets_none(path: str) -> None:
    """Features without a gradient, as in a first layer, and frozen matrices."""
    sizes = Sizes(2, 3, 2, (13,), 6)
    pattern = edges(sizes)
    x, theta = drawn(13, 6, 2, seed=1).float(), drawn(2, 2, 3, seed=2).float()
    weights = drawn(pattern.num_edges, 2, seed=3).float().requires_grad_()
    with use_path("reference"):
        (expected,) = torch.autograd.grad(kernels.basis_convolution(x, weights, theta, pattern).square().sum(), weights)
    with use_path(path):
        (found,) = torch.autograd.grad(kernels.basis_convolution(x, weights, theta, pattern).square().sum(), weights)
    assert float((found - expected).norm() / expected.norm()) < 1e-5


@pytest.mark.parametrize("frozen", [{0}, {1}, {2}, {0, 1, 2}, {1, 2, 3, 4}])
@pytest.mark.parametrize("path", ["fast", pytest.param("interpreter", marks=pytest.mark.compiled)])
def test_softmax_convolution_with_frozen_inputs(path: str, frozen: set[int]) -> None:
    """What the others add to each other through the scores does not depend on what is frozen."""
    sizes = Sizes(2, 3, 2, (13,), 6)
    pattern = edges(sizes, loops=True)
    shapes = [(13, 6, 2), (2, 2), (2, 2), (2,), (2, 2, 3)]
    x, senders, receivers, offset, theta = inputs = [drawn(*shape, seed=i).float() for i, shape in enumerate(shapes)]
    free = [tensor.requires_grad_() for i, tensor in enumerate(inputs) if i not in frozen]

    def gradients(name: str) -> tuple[Tensor, ...]:
        with use_path(name):
            ends = senders, receivers, offset, torch.ones(pattern.num_edges)
            return torch.autograd.grad(kernels.softmax_convolution(x, *ends, theta, pattern).square().sum(), free)

    for found, expected in zip(gradients(path), gradients("reference"), strict=True):
        assert float((found - expected).norm() / expected.norm()) < 1e-5


def moved(pattern: Pattern, device: str) -> Pattern:
    from geoskip.graphs import move

    return move(pattern, device)


def test_a_fast_path_has_no_second_derivative() -> None:
    """It says so; the reference has one."""
    pattern = edges(Sizes(2, 2, 2, (), 5))
    x, theta = drawn(5, 2, seed=1).requires_grad_(), drawn(2, 2, 2, seed=2)
    weights = drawn(pattern.num_edges, 2, seed=3).requires_grad_()

    def second(path: str) -> Tensor | None:
        with use_path(path):
            y = kernels.basis_convolution(x, weights, theta, pattern)
            (grad,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
            grad.sum().backward()
            return weights.grad

    found = second("reference")
    assert found is not None
    assert found.abs().sum() > 0
    with pytest.raises(RuntimeError, match="once_differentiable"):
        second("fast")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_low_precision_sums_in_float32(device: str) -> None:
    """A thousand neighbours of 1/1024 in bfloat16 sum to 1 only if the sum is kept in more than bfloat16."""
    count = 1024
    pattern, _ = sort_edges(torch.arange(count), torch.zeros(count, dtype=torch.long), count, count)
    x, theta = torch.ones(count, 1, dtype=torch.bfloat16), torch.ones(1, 1, 1, dtype=torch.bfloat16)
    weights = torch.full((count, 1), 1 / count)
    y = kernels.basis_convolution(x.to(device), weights.to(device), theta.to(device), moved(pattern, device))
    assert y.dtype == torch.bfloat16
    assert float(y[0]) == 1.0
