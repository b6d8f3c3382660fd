"""Gradients of gradients of every kernel, against those of the reference in float64."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from geoskip import kernels
from geoskip.graphs import move
from geoskip.kernels import functional, use_path
from tests.kernels.paths import EVERYWHERE, Sizes, Where, drawn, edges

ROOMY = Sizes(3, 4, 3, (2,), 9)


def labels(device: str) -> Tensor:
    return torch.tensor([0, 3, -1, 2, 1, 3, 0, 2, 1], device=device)


def kernel(name: str) -> tuple[Callable[..., Tensor], list[Tensor]]:
    """A function of tensors and a device, and what to call it with."""
    sizes = ROOMY
    x = drawn(*sizes.batch, sizes.vertices, sizes.channels, seed=1)
    theta = drawn(sizes.slots, sizes.channels, sizes.out, seed=2)
    skip, bias = drawn(sizes.channels, sizes.out, seed=3), drawn(sizes.out, seed=4)
    pattern, grouped = edges(sizes), edges(sizes, groups=sizes.slots)
    count = pattern.num_edges

    def at(which: Any, device: str) -> Any:
        return move(which, device)

    if name == "basis":
        weights = drawn(count, sizes.slots, seed=5)
        return lambda x, w, t, s, b, device: kernels.basis_convolution(x, w, t, at(pattern, device), s, b), [
            *(x, weights, theta, skip, bias)
        ]
    if name == "groups":
        weights = drawn(grouped.num_edges, 1, seed=5)
        return lambda x, w, t, device: kernels.basis_convolution(x, w, t, at(grouped, device)), [x, weights, theta]
    if name == "product":
        return lambda x, w, device: kernels.sparse_product(x, w, at(pattern, device)), [x, drawn(count, seed=5)]
    if name == "fixed product":
        weights = drawn(count, seed=5)

        def product(x, device):
            return kernels.sparse_product(x, weights.to(device, x.dtype), at(pattern, device)).square()

        return product, [x]
    if name == "chebyshev":
        weights = 0.3 * drawn(count, seed=5)

        def chebyshev(x, t, s, b, device):
            return kernels.chebyshev_convolution(x, weights.to(device, x.dtype), t, at(pattern, device), 0, s, b)

        return chebyshev, [x, theta, skip, bias]
    if name == "gaussian":
        basis = drawn(count, 2, seed=5), drawn(sizes.slots, 2, seed=6), 1 + drawn(sizes.slots, 2, seed=7).square()
        return lambda x, u, m, v, t, s, b, device: kernels.gaussian_convolution(
            x, u, m, v, t, at(pattern, device), s, b
        ), [x, *basis, theta, skip, bias]
    if name == "softmax":
        attention, receiver = (drawn(sizes.slots, sizes.channels, seed=seed) for seed in (5, 6))
        scale = drawn(count, seed=8)

        def softmax(x, a, r, o, t, s, b, device):
            basis = a, r, o, scale.to(device, x.dtype)
            return kernels.softmax_convolution(x, *basis, t, at(pattern, device), s, b)

        return softmax, [x, attention, receiver, drawn(sizes.slots, seed=7), theta, skip, bias]
    if name == "perceptron":
        weights, epsilon = drawn(count, seed=5), torch.tensor(0.3, dtype=torch.float64)
        layers = 0.2 * theta[0], 2 * drawn(sizes.out, seed=6).sign(), 0.2 * drawn(sizes.out, sizes.out, seed=7)

        def perceptron(x, w, t, h, o, s, b, device):
            network = t, at(pattern, device), h, o, s, b
            return kernels.perceptron_convolution(x, w, epsilon.to(device, x.dtype), *network)

        return perceptron, [x, weights, *layers, skip, bias]
    if name in ("max pool", "mean pool"):
        pool = functional.max_pool if name == "max pool" else functional.mean_pool
        return lambda x, device: pool(x, at(pattern, device))[..., : sizes.vertices - 1, :], [x]
    if name == "segment mean":
        return lambda x, device: functional.segment_mean(x, torch.tensor([0, 2, 2, 7], device=device)), [x]
    if name == "linear":
        return lambda x, w, b, device: kernels.linear(x, w, b), [x, skip.t(), bias]
    assert name == "cross-entropy"
    shares = drawn(sizes.vertices, seed=8).abs()

    def entropy(x, w, b, device):
        return kernels.linear_cross_entropy(x, w, b, labels(device), shares.to(device, x.dtype))

    return entropy, [x[0], drawn(5, sizes.channels, seed=3), drawn(5, seed=4)]


NAMES = [
    *("basis", "groups", "product", "fixed product", "chebyshev", "gaussian", "softmax", "perceptron", "linear"),
    *("cross-entropy", "max pool", "mean pool", "segment mean"),
]


def second(name: str, where: Where) -> list[Tensor]:
    function, inputs = kernel(name)
    leaves = [tensor.to(where.device, where.dtype).requires_grad_() for tensor in inputs]
    with use_path(where.path):
        y = function(*leaves, device=where.device)
        # Not the sum: its gradient, a constant, would hide how gradients depend on that of y.
        grads = torch.autograd.grad((y * y.detach().sin()).sum() + y.sin().sum(), leaves, create_graph=True)
        total = sum((grad * grad.detach().cos()).sum() for grad in grads)
        assert isinstance(total, Tensor)
        found = torch.autograd.grad(total, leaves, materialize_grads=True)
    return [tensor.cpu().double() for tensor in found]


@pytest.mark.parametrize("where", EVERYWHERE)
@pytest.mark.parametrize("name", NAMES)
def test_second_derivatives(name: str, where: Where) -> None:
    expected = second(name, Where("reference", dtype=torch.float64))
    assert any(float(tensor.norm()) > 1e-2 for tensor in expected)
    for found, tensor in zip(second(name, where), expected, strict=True):
        assert float((found - tensor).norm()) <= 10 * where.tolerance * max(float(tensor.norm()), 1.0)


@pytest.mark.parametrize("where", EVERYWHERE)
@pytest.mark.parametrize("name", NAMES)
def test_many_gradients_at_once(name: str, where: Where) -> None:
    """As in ``torch.autograd.functional.jacobian(…, vectorize=True)``."""
    function, inputs = kernel(name)
    leaves = [tensor.to(where.device, where.dtype).requires_grad_() for tensor in inputs]
    with use_path(where.path):
        y = function(*leaves, device=where.device)
        seeds = torch.randn(3, *y.shape, dtype=y.dtype, device=y.device)
        single = [torch.autograd.grad(y, leaves, seed, retain_graph=True, materialize_grads=True) for seed in seeds]
        batch = torch.autograd.grad(y, leaves, seeds, is_grads_batched=True, materialize_grads=True)
    for found, expected in zip(batch, map(torch.stack, zip(*single, strict=True)), strict=True):
        assert float((found - expected).norm()) <= 10 * where.tolerance * max(float(expected.norm()), 1.0)


@pytest.mark.parametrize("where", EVERYWHERE)
@pytest.mark.parametrize("batch", [(), (1,), (2,)])
@pytest.mark.parametrize("out", [1, 4])
def test_outputs_may_change_in_place(batch: tuple[int, ...], out: int, where: Where) -> None:
    """As in ``relu_(conv(x, graph))``."""
    sizes = Sizes(3, out, 1, batch, 9)
    pattern, weights = edges(sizes), drawn(edges(sizes).num_edges, seed=5)
    x, theta = drawn(*batch, sizes.vertices, 3, seed=1), drawn(3, out, seed=2)
    gradients = []
    for factor, inplace in ((2.0, True), (1.0, False)):
        leaf = x.to(where.device, where.dtype).requires_grad_()
        basis, matrix = (value.to(where.device, where.dtype) for value in (weights, theta))
        with use_path(where.path):
            y = kernels.basis_convolution(leaf, basis, matrix, move(pattern, where.device))
            y = y.mul_(factor) if inplace else 2 * y
            gradients.append(torch.autograd.grad(y.sum(), leaf)[0])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=where.tolerance, atol=where.tolerance)


@pytest.mark.parametrize("where", EVERYWHERE)
@pytest.mark.parametrize("is_batch", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_no_change_in_place_goes_unnoticed(name: str, is_batch: bool, where: Where) -> None:
    """If the gradients need what was changed, autograd raises an error."""
    function, (x, *others) = kernel(name)
    inputs = [x if is_batch or x.dim() == 2 else x[0], *others]
    leaves = [tensor.to(where.device, where.dtype).requires_grad_() for tensor in inputs]
    with use_path(where.path):
        expected = torch.autograd.grad((3 * function(*leaves, device=where.device)).sum(), leaves)
        y = function(*leaves, device=where.device).mul_(3)
        try:
            found = torch.autograd.grad(y.sum(), leaves)
        except RuntimeError as error:
            if "modified by an inplace operation" not in str(error):
                raise
        else:
            torch.testing.assert_close(found, expected, rtol=where.tolerance, atol=where.tolerance)


@pytest.mark.parametrize("where", EVERYWHERE)
@pytest.mark.parametrize("name", NAMES)
def test_inputs_need_not_be_contiguous(name: str, where: Where, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a column of a matrix that holds all biases."""

    def results() -> list[Tensor]:
        function, inputs = kernel(name)
        leaves = [tensor.to(where.device, where.dtype).requires_grad_() for tensor in inputs]
        with use_path(where.path):
            y = function(*leaves, device=where.device)
            return [y.detach(), *torch.autograd.grad((y * y.detach().sin()).sum(), leaves)]

    def spread(value: Any) -> Any:
        return torch.stack([value, value], dim=-1)[..., 0] if isinstance(value, Tensor) else value

    expected = results()
    for module, function in product((kernels, functional), (*kernels.__all__, "max_pool", "mean_pool", "segment_mean")):
        if hasattr(functional, function) and hasattr(module, function):
            run = getattr(module, function)
            monkeypatch.setattr(module, function, lambda *values, run=run: run(*map(spread, values)))
    tolerance = 10 * where.tolerance
    torch.testing.assert_close(results(), expected, rtol=tolerance, atol=tolerance)


def test_weights_of_edges_that_only_the_reference_differentiates() -> None:
    """Fixed factors of the fast kernels (softmax's scale, the shares of a loss) have gradients nevertheless."""
    _, inputs = kernel("softmax")
    pattern = edges(ROOMY)
    scale = drawn(pattern.num_edges, seed=8).requires_grad_()

    def gradient() -> Tensor:
        x, a, r, o, t, s, b = inputs
        y = kernels.softmax_convolution(x, a, r, o, scale, t, pattern, s, b)
        return torch.autograd.grad(y.sin().sum(), scale)[0]

    with use_path("reference"):
        expected = gradient()
    with use_path("fast"):
        assert torch.allclose(gradient(), expected)
