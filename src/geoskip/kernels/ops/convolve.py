"""Basis convolution as an operator of torch. What it keeps for backward is its inputs, never z."""

import torch
from torch import Tensor

from geoskip.kernels.ops.backend import backend
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


def _convolve_transposed_shape(grad_y, weights, theta, receivers, by_sender, sender_offsets, skip):
    return grad_y.new_empty(grad_y.shape[0], sender_offsets.shape[1] - 1, theta.shape[1])


@kernel(_convolve_transposed_shape)
def convolve_transposed(
    grad_y: Tensor,
    weights: Tensor,
    theta: Tensor,
    receivers: Tensor,
    by_sender: Tensor,
    sender_offsets: Tensor,
    skip: Tensor | None,
) -> Tensor:
    """The gradient of x: the same operator on the reversed graph with each Θ_m transposed."""
    skip = None if skip is None else skip.t()
    weight = theta.transpose(1, 2)
    return backend(grad_y).convolve(grad_y, weights, weight, receivers, by_sender, sender_offsets, skip, None)


def _convolve_gradients_shape(grad_y, x, weights, theta, senders, offsets, needs_theta, needs_weights):
    return torch.empty_like(theta), torch.empty_like(weights if needs_weights else weights[:, :0])


@kernel(_convolve_gradients_shape)
def convolve_gradients(
    grad_y: Tensor,
    x: Tensor,
    weights: Tensor,
    theta: Tensor,
    senders: Tensor,
    offsets: Tensor,
    needs_theta: bool,
    needs_weights: bool,
) -> tuple[Tensor, Tensor]:
    """Gradients of Θ and of the weights; what is not needed comes back empty."""
    return backend(x).convolve_gradients(grad_y, x, weights, theta, senders, offsets, needs_theta, needs_weights)


def _convolve_context(ctx, inputs, output):
    x, weights, theta, senders, receivers, offsets, by_sender, sender_offsets, skip, _ = inputs
    ctx.save_for_backward(x, weights, theta, senders, receivers, offsets, by_sender, sender_offsets, skip)


def _convolve_backward(ctx, grad_y):
    x, weights, theta, senders, receivers, offsets, by_sender, sender_offsets, skip = ctx.saved_tensors
    needs = ctx.needs_input_grad
    grad_y = grad_y.contiguous()
    grad_x = grad_weights = grad_theta = grad_skip = grad_bias = None
    if needs[0]:
        grad_x = convolve_transposed(grad_y, weights, theta, receivers, by_sender, sender_offsets, skip)
    if needs[1] or needs[2]:
        grad_theta, grad_weights = convolve_gradients(grad_y, x, weights, theta, senders, offsets, needs[2], needs[1])
    if needs[8]:
        grad_skip = x.flatten(0, 1).t() @ grad_y.flatten(0, 1)
    if needs[9]:
        grad_bias = grad_y.sum((0, 1))
    wanted = grad_weights if needs[1] else None, grad_theta if needs[2] else None
    return grad_x, *wanted, None, None, None, None, None, grad_skip, grad_bias


convolve.differentiate(_convolve_context, _convolve_backward)
