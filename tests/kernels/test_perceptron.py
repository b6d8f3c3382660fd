"""GIN's convolution and its two layers on every fast path, against the reference: at odd sizes, on poisoned memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from geoskip import kernels
from geoskip.kernels import use_path
from tests.kernels.paths import EVERYWHERE, Sizes, Where, compare, drawn, edges, moved, outputs

pytestmark = pytest.mark.usefixtures("poisoned")

# Vertices as rows and items as rows, more channels than a kernel sums the gradients of all parameters for, and none.
SIZES = [
    Sizes(3, 5, 1, (), 9, hub=7),
    Sizes(5, 2, 1, (2, 2), 6),
    Sizes(18, 19, 1, (13,), 5),
    Sizes(130, 3, 1, (), 40),
    Sizes(3, 2, 1, (0,), 5),
]
HIDDEN = 7


def inputs_of(sizes: Sizes, num_edges: int) -> list[Tensor]:
    return [
        drawn(*sizes.batch, sizes.vertices, sizes.channels, seed=1),
        drawn(num_edges, seed=2),
        drawn(sizes.channels, HIDDEN, seed=3),
        # Far from the kink of the ReLU, where rounding would decide which gradients there are.
        30 * drawn(HIDDEN, seed=4).sign(),
        drawn(HIDDEN, sizes.out, seed=5),
        drawn(sizes.channels, sizes.out, seed=6),
        drawn(sizes.out, seed=7),
    ]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("where", EVERYWHERE)
def test_perceptron_convolution(where: Where, sizes: Sizes) -> None:
    pattern = edges(sizes, loops=True)
    inputs, epsilon = inputs_of(sizes, pattern.num_edges), torch.tensor(0.3, dtype=torch.float64)

    def function(x, weights, theta, hidden_bias, theta_out, skip, bias, device):
        network = theta, moved(pattern, device), hidden_bias, theta_out, skip, bias
        return kernels.perceptron_convolution(x, weights, epsilon.to(x), *network)

    compare(function, inputs, where)

    def without_skip(x, weights, theta, hidden_bias, theta_out, bias, device):
        return function(x, weights, theta, hidden_bias, theta_out, None, bias, device)

    compare(without_skip, [*inputs[:5], inputs[6]], where)


@pytest.mark.parametrize("where", EVERYWHERE)
def test_epsilon_has_a_gradient(where: Where) -> None:
    pattern = edges(SIZES[0])
    inputs = [*inputs_of(SIZES[0], pattern.num_edges), torch.tensor(0.3, dtype=torch.float64)]

    def function(x, weights, theta, hidden_bias, theta_out, skip, bias, epsilon, device):
        network = theta, moved(pattern, device), hidden_bias, theta_out, skip, bias
        return kernels.perceptron_convolution(x, weights, epsilon, *network)

    compare(function, inputs, where)


@pytest.mark.parametrize("batch", [(), (13,)])
@pytest.mark.parametrize("where", EVERYWHERE)
def test_only_the_needed_gradients(where: Where, batch: tuple[int, ...]) -> None:
    """Of each input alone, as of all."""
    sizes = Sizes(3, 5, 1, batch, 9)
    pattern = edges(sizes)
    inputs, epsilon = inputs_of(sizes, pattern.num_edges), torch.tensor(0.3)

    def function(*given: Tensor) -> Tensor:
        x, weights, theta, hidden_bias, theta_out, skip, bias = given
        network = theta, moved(pattern, where.device), hidden_bias, theta_out, skip, bias
        return kernels.perceptron_convolution(x, weights, epsilon.to(x), *network)

    _, *expected = outputs(function, inputs, where)
    with use_path(where.path):
        for at in range(len(inputs)):
            ready = [tensor.to(where.device, where.dtype) for tensor in inputs]
            ready[at].requires_grad_()
            y = function(*ready)
            (found,) = torch.autograd.grad(y, ready[at], drawn(*y.shape, seed=99).to(y))
            torch.testing.assert_close(found, expected[at])


@pytest.mark.compiled
def test_nan_stays_nan() -> None:
    sizes = Sizes(3, 5, 1, (), 9)
    pattern = edges(sizes)
    x, *others = (tensor.float() for tensor in inputs_of(sizes, pattern.num_edges))
    x[0, 0] = torch.nan
    weights, theta, *rest = others
    with use_path("interpreter"):
        y = kernels.perceptron_convolution(x, weights, torch.tensor(0.0), theta, pattern, *rest)
    assert y[0].isnan().all()
