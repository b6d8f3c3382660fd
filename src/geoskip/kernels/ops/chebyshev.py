r"""ChebNet's recursion as an operator of torch, in both directions without keeping its terms.

Forward, :math:`y = \sum_k T_k(L)\, x\, \Theta_k`: each term is made of the last two, multiplied into y and dropped.
Backward, with :math:`G_k = T_k(L^\top)\, \partial y`, the same recursion gives both gradients:

.. math:: \partial x = \sum_k G_k \Theta_k^\top, \qquad \partial \Theta_k = x^\top G_k
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from geoskip.kernels import reference
from geoskip.kernels.ops.backend import backend
from geoskip.kernels.ops.convolve import own_gradients
from geoskip.kernels.ops.formula import formula_gradients, must_be_differentiable, pattern_of
from geoskip.kernels.ops.kernel import kernel


def _terms(
    x: Tensor, weights: Tensor, neighbors: Tensor, order: Tensor | None, offsets: Tensor, first: int, count: int
) -> Iterator[Tensor]:
    """T_first(L) x, T_{first+1}(L) x, … as matrices [batch · vertices, channels]."""
    before, term = x, x
    for k in range(first + count):
        if k == 1:
            term = backend(x).product(x, weights, neighbors, order, offsets)
        elif k > 1:
            before, term = term, backend(x).product(term, weights, neighbors, order, offsets, 2.0, before)
        if k >= first:
            yield term.flatten(0, 1)


def _chebyshev_shape(x, weights, theta, senders, receivers, offsets, by_sender, sender_offsets, first, skip, bias):
    return x.new_empty(x.shape[0], x.shape[1], theta.shape[2])


@kernel(_chebyshev_shape)
def chebyshev(
    x: Tensor,
    weights: Tensor,
    theta: Tensor,
    senders: Tensor,
    receivers: Tensor,
    offsets: Tensor,
    by_sender: Tensor,
    sender_offsets: Tensor,
    first: int,
    skip: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    """y = Σ_m T_{m+first}(L) x Θ_m + x A + b, of x [batch, vertices, in] and L given by its weights [edges]."""
    batch, vertices, _ = x.shape
    out = theta.shape[2]
    y = x.new_zeros(batch * vertices, out) if bias is None else bias.to(x.dtype).repeat(batch * vertices, 1)
    if skip is not None:
        y.addmm_(x.flatten(0, 1), skip)
    terms = _terms(x, weights, senders, None, offsets, first, len(theta))
    for term, matrix in zip(terms, theta, strict=True):
        y.addmm_(term, matrix)
    return y.view(batch, vertices, out)


def _chebyshev_gradients_shape(grad_y, x, weights, theta, receivers, by_sender, sender_offsets, first, skip):
    return torch.empty_like(x), torch.empty_like(theta)


@kernel(_chebyshev_gradients_shape)
def chebyshev_gradients(
    grad_y: Tensor,
    x: Tensor,
    weights: Tensor,
    theta: Tensor,
    receivers: Tensor,
    by_sender: Tensor,
    sender_offsets: Tensor,
    first: int,
    skip: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Gradients of x and of Θ from one recursion."""
    flat = x.flatten(0, 1)
    grad_x = torch.zeros_like(flat) if skip is None else grad_y.flatten(0, 1) @ skip.t()
    grad_theta = torch.empty_like(theta)
    terms = _terms(grad_y, weights, receivers, by_sender, sender_offsets, first, len(theta))
    for m, term in enumerate(terms):
        grad_x.addmm_(term, theta[m].t())
        grad_theta[m] = backend(x).over_rows(flat, term, True, False)[0]
    return grad_x.view_as(x), grad_theta


def _context(ctx, inputs, output):
    *tensors, ctx.first, skip, bias = inputs
    ctx.save_for_backward(*tensors, skip, bias)


def _formula(x, weights, theta, senders, receivers, offsets, by_sender, sender_offsets, first, skip, bias):
    pattern = pattern_of(senders, receivers, offsets, by_sender, sender_offsets)
    return reference.chebyshev_convolution(x, weights, theta, pattern, first, skip, bias)


def _backward(ctx, grad_y):
    *tensors, skip, bias = ctx.saved_tensors
    if must_be_differentiable(grad_y):
        return formula_gradients(_formula, (*tensors, ctx.first, skip, bias), ctx.needs_input_grad, grad_y)
    x, weights, theta, _, receivers, _, by_sender, sender_offsets = tensors
    grad_y = grad_y.contiguous()
    grad_x, grad_theta = chebyshev_gradients(
        grad_y, x, weights, theta, receivers, by_sender, sender_offsets, ctx.first, skip
    )
    return grad_x, None, grad_theta, *[None] * 6, *own_gradients(grad_y, x, *ctx.needs_input_grad[9:])


chebyshev.differentiate(_context, _backward)
