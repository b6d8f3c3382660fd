"""Gradients that are differentiated again, and the transforms of ``torch.func``."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradgradcheck
from torch.func import functional_call
from torch.testing import assert_close

from geoskip.graphs import move
from geoskip.kernels import use_path
from tests.kernels.paths import Where
from tests.operators.cases import FIRST, IN, OUT, WEIGHTED, Case
from tests.operators.test_gradients import leaves_and_function
from tests.specimens import features

pytestmark = pytest.mark.usefixtures("unchecked")
each_operator = pytest.mark.parametrize("case", FIRST + WEIGHTED[1::2], ids=lambda case: case.name)


def test_gradgradcheck(case: Case) -> None:
    """Of the reference they are torch's own."""
    leaves, function = leaves_and_function(case)
    assert gradgradcheck(lambda *given: function(*given).sigmoid(), tuple(leaves), fast_mode=True)


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(Where("interpreter"), id="interpreter", marks=pytest.mark.compiled),
        pytest.param(Where("fast", "cuda"), id="cuda", marks=pytest.mark.gpu),
    ],
)
@each_operator
def test_second_derivatives_of_the_kernels_of_cuda(case: Case, where: Where) -> None:
    """They are in float32: compared with the reference in float64."""

    def second(where: Where) -> list[Tensor]:
        leaves, function = leaves_and_function(case)
        leaves = [leaf.detach().to(where.device, where.dtype).requires_grad_() for leaf in leaves]
        with use_path(where.path):
            first = torch.autograd.grad(function(*leaves).sigmoid().square().sum(), leaves, create_graph=True)
            total = torch.stack([g.square().sum() for g in first]).sum()
            found = torch.autograd.grad(total, leaves, materialize_grads=True)
        return [tensor.cpu().double() for tensor in found]

    for one, other in zip(second(where), second(Where("reference", dtype=torch.float64)), strict=True):
        assert float((one - other).norm()) < 1e-4 * max(float(other.norm()), 1.0)


@each_operator
def test_hessians_of_autograd(case: Case) -> None:
    """As in a gradient penalty: zeros would be a wrong answer without a word."""
    conv, graph, x = case.make(), case.specimen().graph(), features(7, IN)

    def function(x: Tensor) -> Tensor:
        return conv(x, graph).sigmoid().sum()

    hessian = torch.autograd.functional.hessian
    with use_path("reference"):
        expected = hessian(function, x)
    assert float(expected.abs().max()) > 1e-3
    assert_close(hessian(function, x), expected)
    assert_close(hessian(function, x, vectorize=True), expected)


@each_operator
def test_inputs_that_depend_on_each_other(case: Case) -> None:
    """A skip matrix made from x: its part of the gradient is counted once."""
    conv, graph, x = case.make(), case.specimen().graph(), features(7, IN).requires_grad_()

    def penalty() -> Tensor:
        y = conv(x, graph, skip=x[:IN, :OUT].sin()).sigmoid().sum()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    with use_path("reference"):
        expected = penalty()
    assert_close(penalty(), expected)


@each_operator
def test_transforms_of_torch_func(case: Case) -> None:
    """Traced before the graph has remembered anything: what a transform makes is not kept."""
    conv, graph, x = case.make(), case.specimen().graph(), features(7, IN)

    def function(x: Tensor) -> Tensor:
        return conv(x, graph).sigmoid().sum()

    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(leaf), leaf)
    fresh = case.specimen().graph()
    assert_close(torch.func.grad(lambda x: conv(x, fresh).sigmoid().sum())(x), gradient)
    assert_close(function(x), conv(x, fresh).sigmoid().sum())
    assert_close(torch.func.jacrev(function)(x), gradient)
    assert_close(torch.func.jvp(function, (x,), (x,))[1], (gradient * x).sum())
    assert_close(torch.func.hessian(function)(x), torch.autograd.functional.hessian(function, x))
    several = features(3, 7, IN, seed=4)
    # Equal to rounding: a transform uses the reference.
    assert_close(torch.func.vmap(lambda x: conv(x, graph))(several), conv(several, graph))


@each_operator
def test_gradients_per_item(case: Case) -> None:
    """The usual recipe: grad of a functional call, vectorized over a batch."""
    conv, graph, several = case.make(), case.specimen().graph(), features(3, 7, IN, seed=4)
    parameters = {name: value.detach() for name, value in conv.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(conv, parameters, (x, graph)).sigmoid().sum()

    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, several)
    for k, x in enumerate(several):
        gradients = torch.autograd.grad(conv(x, graph).sigmoid().sum(), list(conv.parameters()))
        assert_close([found[name][k] for name in parameters], list(gradients))


@each_operator
def test_forward_mode(case: Case) -> None:
    conv, graph, x = case.make(), case.specimen().graph(), features(7, IN)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(conv(leaf, graph).sigmoid().sum(), leaf)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        tangent = torch.autograd.forward_ad.unpack_dual(conv(dual, graph).sigmoid().sum()).tangent
    assert_close(tangent, (gradient * x).sum())


@pytest.mark.gpu
@each_operator
def test_transforms_on_cuda(case: Case) -> None:
    conv, graph, x = case.make(torch.float32), case.specimen().graph(torch.float32), features(7, IN).float()
    expected = torch.autograd.functional.hessian(lambda x: conv(x, graph).sigmoid().sum(), x)
    conv, graph, x = conv.cuda(), move(graph, "cuda"), x.cuda()
    function = lambda x: conv(x, graph).sigmoid().sum()  # noqa: E731
    assert_close(torch.func.hessian(function)(x).cpu(), expected, rtol=1e-3, atol=1e-4)
    assert_close(torch.autograd.functional.hessian(function, x).cpu(), expected, rtol=1e-3, atol=1e-4)
