"""Basis and convolution as one step of autograd, for eager CUDA: on the host a step costs more than some kernels.

While torch traces, the two remain operators of their own (:mod:`.bases`, :mod:`.convolve`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from geoskip.kernels.ops.backend import backend
from geoskip.kernels.ops.convolve import own_gradients


class GaussianConvolve(torch.autograd.Function):
    """Gaussian weights and their convolution; the weights are cheap, so backward makes them again."""

    @staticmethod
    def forward(ctx: Any, pseudo: Tensor, mean: Tensor, scale: Tensor, floor: float, *rest: Any) -> Tensor:
        x, theta, edges, skip, bias = rest[0], rest[1], rest[2:7], rest[7], rest[8]
        kernels = backend(x)
        weights = kernels.gaussian(pseudo, mean, scale, floor).unsqueeze(2)
        ctx.save_for_backward(pseudo, mean, scale, x, theta, *edges, skip)
        ctx.floor = floor
        return kernels.convolve(x, weights, theta, edges[0], None, edges[2], skip, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> Any:
        pseudo, mean, scale, x, theta, *edges, skip = ctx.saved_tensors
        kernels, needs, grad_y = backend(x), ctx.needs_input_grad, grad_y.contiguous()
        weights = kernels.gaussian(pseudo, mean, scale, ctx.floor)
        wanted = needs[4], any(needs[:3]), needs[5]
        grad_x, grad_weights, grad_theta = kernels.convolve_gradients(
            grad_y, x, weights.unsqueeze(2), theta, tuple(edges), skip, wanted
        )
        grads: tuple[Tensor | None, ...] = (None, None, None)
        if wanted[1]:
            grads = kernels.gaussian_gradients(
                grad_weights.squeeze(2), weights, pseudo, mean, scale, ctx.floor, needs[0]
            )
        own = own_gradients(grad_y, x, needs[11], needs[12])
        return grads[0] if needs[0] else None, *grads[1:], None, grad_x, grad_theta, *[None] * 5, *own


class SoftmaxConvolve(torch.autograd.Function):
    """Softmax weights and their convolution. Without scores of the receivers they are minus those of the senders."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, receiver_scores: Tensor | None, offset: Tensor, edge_scale: Tensor, *rest: Any
    ) -> Tensor:
        x, theta, edges, skip, bias = rest[0], rest[1], rest[2:7], rest[7], rest[8]
        kernels = backend(x)
        weights = kernels.softmax(scores, receiver_scores, offset, edge_scale, edges[0], edges[1])
        ctx.save_for_backward(weights, edge_scale, x, theta, *edges, skip)
        ctx.dtypes, ctx.opposite = (scores.dtype, offset.dtype), receiver_scores is None
        return kernels.convolve(x, weights, theta, edges[0], None, edges[2], skip, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> Any:
        weights, edge_scale, x, theta, *edges, skip = ctx.saved_tensors
        _, _, offsets, by_sender, sender_offsets = edges
        kernels, needs, grad_y = backend(x), ctx.needs_input_grad, grad_y.contiguous()
        wanted = needs[4], any(needs[:3]), needs[5]
        grad_x, grad, grad_theta = kernels.convolve_gradients(grad_y, x, weights, theta, tuple(edges), skip, wanted)
        grads: tuple[Tensor | None, ...] = (None, None, None)
        if wanted[1]:
            at_senders = kernels.softmax_gradients(grad, weights, edge_scale, by_sender, sender_offsets)
            at_receivers = kernels.softmax_gradients(grad, weights, edge_scale, None, offsets)
            grad_offset = at_receivers.sum((0, 1)).to(ctx.dtypes[1])
            if ctx.opposite:
                at_senders -= at_receivers
            scores = ctx.dtypes[0]
            grads = at_senders.to(scores), None if ctx.opposite else at_receivers.to(scores), grad_offset
        own = own_gradients(grad_y, x, needs[11], needs[12])
        return *grads, None, grad_x, grad_theta, *[None] * 5, *own
