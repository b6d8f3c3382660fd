"""The sparse product as an operator of torch."""

import torch
from torch import Tensor

from geoskip.kernels import reference
from geoskip.kernels.ops.backend import backend
from geoskip.kernels.ops.formula import formula_gradients, must_be_differentiable, pattern_of
from geoskip.kernels.ops.kernel import kernel


def _product_shape(x, weights, senders, receivers, offsets, by_sender, sender_offsets):
    return x.new_empty(x.shape[0], offsets.shape[1] - 1, x.shape[2])


@kernel(_product_shape)
def product(
    x: Tensor,
    weights: Tensor,
    senders: Tensor,
    receivers: Tensor,
    offsets: Tensor,
    by_sender: Tensor,
    sender_offsets: Tensor,
) -> Tensor:
    """W x for every item of x [batch, senders, channels], W given by its weights [edges]."""
    return backend(x).product(x, weights, senders, None, offsets)


def _product_transposed_shape(grad_y, weights, receivers, by_sender, sender_offsets):
    return grad_y.new_empty(grad_y.shape[0], sender_offsets.shape[1] - 1, grad_y.shape[2])


@kernel(_product_transposed_shape)
def product_transposed(
    grad_y: Tensor, weights: Tensor, receivers: Tensor, by_sender: Tensor, sender_offsets: Tensor
) -> Tensor:
    """W^T times the gradient of y."""
    return backend(grad_y).product(grad_y, weights, receivers, by_sender, sender_offsets)


def _context(ctx, inputs, output):
    x, weights, *edges = inputs
    # The features are kept only for the gradient of the weights, which fixed matrices do not ask for.
    ctx.save_for_backward(x if weights.requires_grad else None, weights, *edges)


def _formula(x, weights, *edges):
    return reference.sparse_product(x, weights, pattern_of(*edges))


def _backward(ctx, grad_y):
    x, weights, senders, receivers, _, by_sender, sender_offsets = ctx.saved_tensors
    if must_be_differentiable(grad_y):
        # Without its features the product is linear in them: their values do not matter.
        shape = grad_y.shape[0], sender_offsets.shape[1] - 1, grad_y.shape[2]
        features = torch.zeros(shape, dtype=grad_y.dtype, device=grad_y.device, requires_grad=True) if x is None else x
        return formula_gradients(_formula, (features, *ctx.saved_tensors[1:]), ctx.needs_input_grad, grad_y)
    grad_y = grad_y.contiguous()
    grad_x = grad_weights = None
    if ctx.needs_input_grad[0]:
        grad_x = product_transposed(grad_y, weights, receivers, by_sender, sender_offsets)
    if ctx.needs_input_grad[1]:
        grad_weights = (grad_y[:, receivers] * x[:, senders]).sum((0, 2), dtype=weights.dtype)
    return grad_x, grad_weights, None, None, None, None, None


product.differentiate(_context, _backward)
