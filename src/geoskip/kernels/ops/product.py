"""The sparse product as an operator of torch."""

from torch import Tensor

from geoskip.kernels.ops.backend import backend
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
    x, weights, senders, receivers, _, by_sender, sender_offsets = inputs
    # The features are kept only for the gradient of the weights, which fixed matrices do not ask for.
    kept = x if weights.requires_grad else None
    ctx.save_for_backward(kept, weights, senders, receivers, by_sender, sender_offsets)


def _backward(ctx, grad_y):
    x, weights, senders, receivers, by_sender, sender_offsets = ctx.saved_tensors
    grad_y = grad_y.contiguous()
    grad_x = grad_weights = None
    if ctx.needs_input_grad[0]:
        grad_x = product_transposed(grad_y, weights, receivers, by_sender, sender_offsets)
    if ctx.needs_input_grad[1]:
        grad_weights = (grad_y[:, receivers] * x[:, senders]).sum((0, 2))
    return grad_x, grad_weights, None, None, None, None, None


product.differentiate(_context, _backward)
