"""Convolutions with a Gaussian and with a softmax basis, on every fast path, against the reference."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch import Tensor

from geoskip import kernels
from geoskip.kernels import use_path
from tests.kernels.paths import EVERYWHERE, Sizes, Where, cases, compare, drawn, edges, moved

pytestmark = pytest.mark.usefixtures("poisoned")


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


@pytest.mark.parametrize("dim", [1, 3, 4])
@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(3, 5, 2, (), 20, hub=70),
        Sizes(5, 2, 4, (2,), 9),
        Sizes(2, 3, 3, (13,), 4),
        Sizes(3, 5, 17, (), 9, hub=19),
    ],
)
@pytest.mark.parametrize("where", EVERYWHERE)
def test_gaussian_convolution_of_fixed_coordinates(
    where: Where, sizes: Sizes, dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel of the weights' gradients then sums those of μ and σ, if there are few coordinates and few items."""
    if where.path == "interpreter":
        from geoskip.kernels.triton import neighborhoods

        # Each program has several vertices, as on large graphs.
        monkeypatch.setattr(neighborhoods, "PROGRAMS", 4)
    pattern = edges(sizes)
    pseudo = drawn(pattern.num_edges, dim, seed=2).sigmoid()
    inputs = [
        drawn(*sizes.batch, sizes.vertices, sizes.channels, seed=1),
        drawn(sizes.slots, dim, seed=3),
        drawn(sizes.slots, dim, seed=4).abs() + 0.3,
        drawn(sizes.slots, sizes.channels, sizes.out, seed=5),
    ]

    def function(x, mean, scale, theta, device):
        return kernels.gaussian_convolution(x, pseudo.to(x), mean, scale, theta, moved(pattern, device))

    compare(function, inputs, where)
    if dim == 1:
        x, mean, scale, theta = inputs
        compare(lambda x, mean, device: function(x, mean, scale.to(x), theta.to(x), device), [x, mean], where)
        compare(lambda x, scale, device: function(x, mean.to(x), scale, theta.to(x), device), [x, scale], where)


@pytest.mark.parametrize("opposite", [False, True])
@pytest.mark.parametrize(("where", "sizes"), cases())
def test_softmax_convolution(where: Where, sizes: Sizes, opposite: bool) -> None:
    pattern = edges(sizes, loops=True)
    share = drawn(pattern.num_edges, seed=4).abs()
    share[0] = 0
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


@pytest.mark.usefixtures("fresh_plans")
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
        monkeypatch.setattr(importlib.import_module("geoskip.kernels.triton.attention"), "MAX_HELD", 2)
    test_softmax_convolution(where, Sizes(3, 4, slots, batch, 6, hub=5), opposite=True)


@pytest.mark.compiled
@pytest.mark.usefixtures("fresh_plans")
@pytest.mark.parametrize("opposite", [False, True])
@pytest.mark.parametrize("batch", [(), (13,)])
def test_blocks_of_channels_and_rows_of_attention(
    opposite: bool, batch: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More channels than a block has, and more rows than all programs take at a time."""
    module = importlib.import_module("geoskip.kernels.triton.attention")
    monkeypatch.setattr(module, "MAX_PRODUCT", 16)
    monkeypatch.setattr(module, "PROGRAMS", 2)
    test_softmax_convolution(Where("interpreter"), Sizes(18, 3, 2, batch, 7 if batch else 70), opposite)


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
