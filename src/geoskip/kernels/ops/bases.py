"""Gaussian and softmax bases as operators of torch. On the CPU the Gaussian is plain enough to be left to autograd."""

import torch
from torch import Tensor

from geoskip.kernels import reference
from geoskip.kernels.ops.backend import backend
from geoskip.kernels.ops.formula import formula_gradients, must_be_differentiable, pattern_of
from geoskip.kernels.ops.kernel import kernel


def _gaussian_shape(pseudo, mean, scale, floor):
    return pseudo.new_empty(mean.shape[0], pseudo.shape[0], dtype=torch.float32)


@kernel(_gaussian_shape)
def gaussian(pseudo: Tensor, mean: Tensor, scale: Tensor, floor: float) -> Tensor:
    """w [slots, edges] of pseudo-coordinates [edges, dim], in float32."""
    return backend(pseudo).gaussian(pseudo, mean, scale, floor)


def _gaussian_gradients_shape(grad, weights, pseudo, mean, scale, floor, needs_pseudo):
    return torch.empty_like(pseudo if needs_pseudo else pseudo[:0]), torch.empty_like(mean), torch.empty_like(scale)


@kernel(_gaussian_gradients_shape)
def gaussian_gradients(
    grad: Tensor, weights: Tensor, pseudo: Tensor, mean: Tensor, scale: Tensor, floor: float, needs_pseudo: bool
) -> tuple[Tensor, Tensor, Tensor]:
    return backend(pseudo).gaussian_gradients(grad, weights, pseudo, mean, scale, floor, needs_pseudo)


def _gaussian_context(ctx, inputs, output):
    pseudo, mean, scale, ctx.floor = inputs
    ctx.save_for_backward(output, pseudo, mean, scale)


def _gaussian_formula(pseudo, mean, scale, floor):
    return reference.gaussian_basis(pseudo, mean, scale, floor).t()


def _gaussian_backward(ctx, grad):
    if must_be_differentiable(grad):
        inputs = *ctx.saved_tensors[1:], ctx.floor
        return formula_gradients(_gaussian_formula, inputs, ctx.needs_input_grad, grad)
    needs_pseudo = ctx.needs_input_grad[0]
    grad_pseudo, grad_mean, grad_scale = gaussian_gradients(
        grad.contiguous(), *ctx.saved_tensors, ctx.floor, needs_pseudo
    )
    return grad_pseudo if needs_pseudo else None, grad_mean, grad_scale, None


gaussian.differentiate(_gaussian_context, _gaussian_backward)


def _softmax_shape(
    sender_scores, receiver_scores, offset, edge_scale, senders, receivers, offsets, by_sender, sender_offsets
):
    batch, _, slots = sender_scores.shape
    if sender_scores.is_cuda:
        return sender_scores.new_empty(slots, senders.shape[0], batch, dtype=torch.float32)
    dtype = torch.promote_types(sender_scores.dtype, torch.float32)
    return sender_scores.new_empty(batch, senders.shape[0], slots, dtype=dtype).permute(2, 1, 0)


@kernel(_softmax_shape)
def softmax(
    sender_scores: Tensor,
    receiver_scores: Tensor,
    offset: Tensor,
    edge_scale: Tensor,
    senders: Tensor,
    receivers: Tensor,
    offsets: Tensor,
    by_sender: Tensor,
    sender_offsets: Tensor,
) -> Tensor:
    """q [slots, edges, batch] of scores [batch, vertices, slots], in float32 at least."""
    kernels = backend(sender_scores)
    return kernels.softmax(sender_scores, receiver_scores, offset, edge_scale, senders, receivers)


def _softmax_gradients_shape(grad, weights, edge_scale, order, offsets):
    return grad.new_empty(grad.shape[2], offsets.shape[1] - 1, grad.shape[0], dtype=weights.dtype)


@kernel(_softmax_gradients_shape)
def softmax_gradients(
    grad: Tensor, weights: Tensor, edge_scale: Tensor, order: Tensor | None, offsets: Tensor
) -> Tensor:
    """Gradient of the scores at the receivers, or with ``order`` at the senders."""
    return backend(grad).softmax_gradients(grad, weights, edge_scale, order, offsets)


def _softmax_context(ctx, inputs, output):
    ctx.save_for_backward(output, *inputs)


def _softmax_formula(sender_scores, receiver_scores, offset, edge_scale, *edges):
    pattern = pattern_of(*edges)
    return reference.softmax_basis(sender_scores, receiver_scores, offset, edge_scale, pattern).permute(2, 1, 0)


def _softmax_backward(ctx, grad):
    weights, *inputs = ctx.saved_tensors
    if must_be_differentiable(grad):
        return formula_gradients(_softmax_formula, inputs, ctx.needs_input_grad, grad)
    scores, _, offset, edge_scale, _, _, offsets, by_sender, sender_offsets = inputs
    if weights.is_contiguous():
        grad = grad.contiguous()
    at_senders = softmax_gradients(grad, weights, edge_scale, by_sender, sender_offsets)
    at_receivers = softmax_gradients(grad, weights, edge_scale, None, offsets)
    grad_offset = at_receivers.sum((0, 1)).to(offset)
    return at_senders.to(scores), at_receivers.to(scores), grad_offset, *[None] * 6


softmax.differentiate(_softmax_context, _softmax_backward)
