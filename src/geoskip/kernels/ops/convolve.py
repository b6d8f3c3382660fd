"""Basis convolution as an operator of torch. What it keeps for backward is its inputs, never z."""

import torch
from torch import Tensor

from geoskip.kernels import reference
from geoskip.kernels.branches import branches
from geoskip.kernels.ops.backend import backend
from geoskip.kernels.ops.formula import formula_gradients, must_be_differentiable, pattern_of
from geoskip.kernels.ops.kernel import kernel


def _convolve_shape(x, weights, theta, senders, receivers, offsets, by_sender, sender_offsets, skip, bias):
    return x.new_empty(x.shape[0], offsets.shape[1] - 1, theta.shape[2])


@kernel(_convolve_shape)
def convolve(
    x: Tensor,
    weights: Tensor,
    theta: Tensor,
    senders: Tensor,
    receivers: Tensor,
    offsets: Tensor,
    by_sender: Tensor,
    sender_offsets: Tensor,
    skip: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    """y = Σ_m (Σ_j w_m x_j) Θ_m + x A + b, of x [batch, senders, in] and weights [slots or 1, edges, batch or 1]."""
    return backend(x).convolve(x, weights, theta, senders, None, offsets, skip, bias)


def _convolve_gradients_shape(
    grad_y, x, weights, theta, senders, receivers, offsets, by_sender, sender_offsets, skip, needs
):
    return [torch.empty_like(tensor) for need, tensor in zip(needs, (x, weights, theta), strict=True) if need]


@kernel(_convolve_gradients_shape)
def convolve_gradients(
    grad_y: Tensor,
    x: Tensor,
    weights: Tensor,
    theta: Tensor,
    senders: Tensor,
    receivers: Tensor,
    offsets: Tensor,
    by_sender: Tensor,
    sender_offsets: Tensor,
    skip: Tensor | None,
    needs: list[bool],
) -> list[Tensor]:
    """Gradients of x, of the weights and of Θ: of these, the ones that are needed."""
    edges = senders, receivers, offsets, by_sender, sender_offsets
    with branches(x) as beside:
        found = backend(x).convolve_gradients(grad_y, x, weights, theta, edges, skip, needs, beside)
    return [tensor for tensor in found if tensor is not None]


def _convolve_context(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _convolve_formula(x, weights, theta, senders, receivers, offsets, by_sender, sender_offsets, skip, bias):
    pattern = pattern_of(senders, receivers, offsets, by_sender, sender_offsets)
    return reference.basis_convolution(x, weights.permute(2, 1, 0), theta, pattern, skip, bias)


def _convolve_backward(ctx, grad_y):
    needs = ctx.needs_input_grad
    if must_be_differentiable(grad_y):
        return formula_gradients(_convolve_formula, ctx.saved_tensors, needs, grad_y)
    x = ctx.saved_tensors[0]
    grad_y = grad_y.contiguous()
    grads: list[Tensor | None] = [None] * 10
    wanted = [place for place in range(3) if needs[place]]
    with branches(x) as beside:
        grads[8:] = beside(lambda: own_gradients(grad_y, x, needs[8], needs[9]))
        if wanted:
            found = convolve_gradients(grad_y, *ctx.saved_tensors[:9], list(needs[:3]))
            for place, grad in zip(wanted, found, strict=True):
                grads[place] = grad
    return tuple(grads)


def _own_gradients_shape(grad_y, x, needs):
    found = x.new_empty(x.shape[2], grad_y.shape[2]), grad_y.new_empty(grad_y.shape[2])
    return [tensor for need, tensor in zip(needs, found, strict=True) if need]


@kernel(_own_gradients_shape)
def _own_gradients(grad_y: Tensor, x: Tensor, needs: list[bool]) -> list[Tensor]:
    grad_skip, grad_bias = backend(x).over_rows(x.flatten(0, 1), grad_y.flatten(0, 1), *needs)
    found = (grad_skip, x.dtype), (grad_bias, grad_y.dtype)
    return [tensor.to(dtype) for tensor, dtype in found if tensor is not None]


def own_gradients(grad_y: Tensor, x: Tensor, needs_skip: bool, needs_bias: bool) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the skip's matrix and of the bias, which see no neighbors."""
    if not (needs_skip or needs_bias):
        return None, None
    found = iter(_own_gradients(grad_y, x, [needs_skip, needs_bias]))
    return next(found) if needs_skip else None, next(found) if needs_bias else None


convolve.differentiate(_convolve_context, _convolve_backward)
