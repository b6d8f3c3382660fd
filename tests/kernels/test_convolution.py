"""The basis convolution on every fast path, against the reference: at odd sizes, on poisoned memory."""

from __future__ import annotations

import importlib

import pytest
import torch

from geoskip import kernels
from geoskip.kernels import sort_edges, use_path
from geoskip.kernels.paths import recorded_launches
from tests.kernels import test_bases
from tests.kernels.paths import EVERYWHERE, LARGE, SMALL, Sizes, Where, cases, compare, drawn, edges, moved

pytestmark = pytest.mark.usefixtures("poisoned")


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


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("sizes", [Sizes(3, 5, 1, (2,), 9), Sizes(20, 70, 1, (), 40), Sizes(3, 2, 1, (13,), 5)])
@pytest.mark.parametrize("where", EVERYWHERE)
def test_one_matrix(where: Where, sizes: Sizes, is_transposed: bool) -> None:
    """Of one slot, as in GCN: the gradients of the skip and of the bias are summed with that of Θ."""
    pattern = edges(sizes)
    shape = (sizes.out, sizes.channels) if is_transposed else (sizes.channels, sizes.out)
    inputs = [
        drawn(*sizes.batch, sizes.vertices, sizes.channels, seed=1),
        drawn(pattern.num_edges, seed=2),
        drawn(*shape, seed=3),
        drawn(*shape, seed=4),
        drawn(sizes.out, seed=5),
    ]

    def function(x, weights, theta, skip, bias, device):
        matrices = (theta.t(), skip.t()) if is_transposed else (theta, skip)
        return kernels.basis_convolution(x, weights, matrices[0], moved(pattern, device), matrices[1], bias)

    compare(function, inputs, where)
    skip, bias = drawn(*shape, seed=6), drawn(sizes.out, seed=7)
    # The kernel sums less if the skip, or the bias, needs no gradient.
    without_skip = [*inputs[:3], inputs[4]]
    compare(lambda x, w, theta, b, device: function(x, w, theta, skip.to(x), b, device), without_skip, where)
    compare(lambda x, w, theta, a, device: function(x, w, theta, a, bias.to(x), device), inputs[:4], where)
    # So it does if x needs none, as in a first layer.
    x = inputs[0]
    compare(lambda w, theta, a, b, device: function(x.to(w), w, theta, a, b, device), inputs[1:], where)


@pytest.mark.parametrize("sizes", [Sizes(3, 6, 2, (2,), 9), Sizes(4, 6, 2, (13,), 5)])
@pytest.mark.parametrize("where", EVERYWHERE)
def test_matrices_in_any_order(where: Where, sizes: Sizes) -> None:
    """Slots between the other axes, as in PyTorch Geometric's GMMConv, and every second column of wider matrices."""
    pattern = edges(sizes)
    inputs = [
        drawn(*sizes.batch, sizes.vertices, sizes.channels, seed=1),
        drawn(pattern.num_edges, sizes.slots, seed=2),
        drawn(sizes.channels, sizes.slots, sizes.out, seed=3),
        drawn(sizes.slots, sizes.channels, 2 * sizes.out, seed=4),
    ]

    def function(x, weights, between, wide, device):
        edges_there = moved(pattern, device)
        y = kernels.basis_convolution(x, weights, between.transpose(0, 1), edges_there)
        return y + kernels.basis_convolution(x, weights, wide[..., ::2], edges_there)

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


@pytest.mark.usefixtures("fresh_plans")
@pytest.mark.parametrize(
    ("where", "sizes"),
    [
        *[pytest.param(Where("interpreter"), SMALL[i], marks=pytest.mark.compiled) for i in (1, 3)],
        *[pytest.param(Where("fast", "cuda"), sizes, marks=pytest.mark.gpu) for sizes in LARGE],
    ],
)
def test_offsets_of_64_bits(where: Where, sizes: Sizes, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for tensors of more than 2³¹ numbers."""
    launch = importlib.import_module("geoskip.kernels.triton.launch")
    monkeypatch.setattr(launch.ConvolutionSizes, "wide", True)
    monkeypatch.setattr(importlib.import_module("geoskip.kernels.triton.attention"), "MAX_NARROW", 0)
    test_bases.test_softmax_convolution(where, sizes, opposite=True)
    test_basis_convolution(where, sizes, per_item=False)
    test_one_set_of_edges_per_slot(where, sizes)


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


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("sizes", "is_dense"),
    [
        (Sizes(3, 5, 25, (), 9), True),
        (Sizes(3, 5, 25, (1,), 9), True),
        (Sizes(3, 5, 25, (2,), 9), False),
        (Sizes(3, 5, 16, (), 9), False),
        (Sizes(3, 5, 65, (), 9), False),
    ],
)
def test_one_small_graph_with_many_slots_has_dense_neighborhoods(sizes: Sizes, is_dense: bool) -> None:
    pattern = edges(sizes)
    x = drawn(*sizes.batch, sizes.vertices, sizes.channels, seed=1).float()
    weights = drawn(pattern.num_edges, sizes.slots, seed=2).float()
    theta = drawn(sizes.slots, sizes.channels, sizes.out, seed=3).float()
    with use_path("interpreter"), recorded_launches() as launches:
        kernels.basis_convolution(x, weights, theta, pattern)
    names = [kernel.__name__ for kernel, *_ in launches]
    assert names == (["_gather_kernel", "_multiply_kernel"] if is_dense else ["_convolve_kernel"])
