"""Convolutions of features with one channel and no gradient, as in a first layer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from geoskip import kernels
from geoskip.kernels import use_path
from geoskip.kernels.paths import recorded_launches
from tests.kernels.paths import EVERYWHERE, Sizes, Where, compare, drawn, edges, moved

pytestmark = pytest.mark.usefixtures("poisoned")
# Several blocks of neighbors and of channels, vertices without neighbors, one item.
SIZES = [Sizes(1, 5, 17, (), 20, hub=70), Sizes(1, 70, 25, (1,), 9), Sizes(1, 1, 33, (), 5)]


def _matrices(sizes: Sizes) -> list[Tensor]:
    shapes = (sizes.slots, 1, sizes.out), (1, sizes.out), (sizes.out,)
    return [drawn(*shape, seed=seed) for seed, shape in enumerate(shapes, 5)]


def _features(sizes: Sizes) -> Tensor:
    return drawn(*sizes.batch, sizes.vertices, 1, seed=1)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("where", EVERYWHERE)
def test_basis_convolution(where: Where, sizes: Sizes) -> None:
    pattern, x = edges(sizes), _features(sizes)
    weights, (theta, skip, bias) = drawn(pattern.num_edges, sizes.slots, seed=2), _matrices(sizes)

    def function(weights, theta, *own, device):
        return kernels.basis_convolution(x.to(weights), weights, theta, moved(pattern, device), *own)

    compare(function, [weights, theta, skip, bias], where)
    compare(lambda weights, device: function(weights, theta.to(weights), device=device), [weights], where)
    compare(lambda theta, device: function(weights.to(theta), theta, device=device), [theta], where)
    compare(lambda bias, device: function(weights.to(bias), theta.to(bias), None, bias, device=device), [bias], where)


@pytest.mark.parametrize("dim", [1, 2, 4])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("where", EVERYWHERE)
def test_gaussian_convolution(where: Where, sizes: Sizes, dim: int) -> None:
    pattern, x = edges(sizes), _features(sizes)
    pseudo = drawn(pattern.num_edges, dim, seed=2).sigmoid()
    basis = [drawn(sizes.slots, dim, seed=3), drawn(sizes.slots, dim, seed=4).abs() + 0.3]

    def function(mean, scale, theta, *own, device):
        given = x.to(theta), pseudo.to(theta), mean, scale
        return kernels.gaussian_convolution(*given, theta, moved(pattern, device), *own)

    compare(function, [*basis, *_matrices(sizes)], where)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("where", EVERYWHERE)
def test_softmax_convolution(where: Where, sizes: Sizes) -> None:
    pattern, x = edges(sizes, loops=True), _features(sizes)
    share = drawn(pattern.num_edges, seed=4).abs()

    def function(attention, offset, theta, *own, device):
        given = x.to(theta), attention, None, offset, share.to(theta)
        return kernels.softmax_convolution(*given, theta, moved(pattern, device), *own)

    compare(function, [drawn(sizes.slots, 1, seed=2), drawn(sizes.slots, seed=3), *_matrices(sizes)], where)


@pytest.mark.compiled
def test_the_gradients_are_one_launch_and_one_for_the_sums_of_their_parts() -> None:
    sizes = SIZES[0]
    pattern, x = edges(sizes), _features(sizes).float()
    pseudo = drawn(pattern.num_edges, 2, seed=2).sigmoid().float()
    basis = [drawn(sizes.slots, 2, seed=3), drawn(sizes.slots, 2, seed=4).abs() + 0.3, *_matrices(sizes)]
    mean, scale, theta, skip, bias = inputs = [value.float().requires_grad_() for value in basis]
    with use_path("interpreter"), recorded_launches() as launches:
        y = kernels.gaussian_convolution(x, pseudo, mean, scale, theta, pattern, skip, bias)
        torch.autograd.grad(y.sum(), inputs)
    names = [kernel.__name__ for kernel, *_ in launches]
    assert names == ["_convolve_kernel", "_gradients_kernel", "_add_parts_kernel"]
