"""Basis and convolution as one step of autograd, for eager CUDA: on the host a step costs more than some kernels.

The edges are one argument, a tuple: autograd asks about every tensor that it is given, and these have no gradients.

While torch traces, the two remain operators of their own (:mod:`.bases`, :mod:`.convolve`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from geoskip.kernels import reference
from geoskip.kernels.branches import branches
from geoskip.kernels.ops.backend import backend
from geoskip.kernels.ops.convolve import own_gradients
from geoskip.kernels.ops.formula import formula_gradients, must_be_differentiable, pattern_of


class GaussianConvolve(torch.autograd.Function):
    """Gaussian weights and their convolution; the weights are cheap, so backward makes them again."""

    @staticmethod
    def forward(ctx: Any, pseudo: Tensor, mean: Tensor, scale: Tensor, floor: float, *rest: Any) -> Tensor:
        x, theta, edges, skip, bias = rest
        kernels = backend(x)
        weights = kernels.gaussian(pseudo, mean, scale, floor).unsqueeze(2)
        ctx.save_for_backward(pseudo, mean, scale, x, theta, skip, bias)
        ctx.floor, ctx.edges = floor, edges
        return kernels.convolve(x, weights, theta, edges[0], None, edges[2], skip, bias)

    @staticmethod
    def formula(pseudo: Tensor, mean: Tensor, scale: Tensor, floor: float, *rest: Any) -> Tensor:
        x, theta, edges, skip, bias = rest
        weights = reference.gaussian_basis(pseudo, mean, scale, floor)
        return reference.basis_convolution(x, weights, theta, pattern_of(*edges), skip, bias)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> Any:
        pseudo, mean, scale, x, theta, skip, bias = ctx.saved_tensors
        if must_be_differentiable(grad_y):
            inputs = pseudo, mean, scale, ctx.floor, x, theta, ctx.edges, skip, bias
            return formula_gradients(GaussianConvolve.formula, inputs, ctx.needs_input_grad, grad_y)
        kernels, needs, grad_y = backend(x), ctx.needs_input_grad, grad_y.contiguous()
        wanted = needs[4], any(needs[:3]), needs[5]
        grads: tuple[Tensor | None, ...] = (None, None, None)
        with branches(x) as beside:
            own = beside(lambda: own_gradients(grad_y, x, needs[7], needs[8]))
            weights = kernels.gaussian(pseudo, mean, scale, ctx.floor)
            grad_x, grad_weights, grad_theta = kernels.convolve_gradients(
                grad_y, x, weights.unsqueeze(2), theta, ctx.edges, skip, wanted, beside
            )
            if wanted[1]:
                grads = kernels.gaussian_gradients(
                    grad_weights.squeeze(2), weights, pseudo, mean, scale, ctx.floor, needs[0]
                )
        return grads[0] if needs[0] else None, *grads[1:], None, grad_x, grad_theta, None, *own


class SoftmaxConvolve(torch.autograd.Function):
    """Scores of the features, softmax weights and their convolution. Without an attention of the receivers their
    scores are minus those of the senders."""

    @staticmethod
    def forward(
        ctx: Any,
        attention: Tensor,
        receiver_attention: Tensor | None,
        offset: Tensor,
        edge_scale: Tensor,
        x: Tensor,
        *rest: Any,
    ) -> Tensor:
        theta, edges, skip, bias = rest
        kernels = backend(x)
        weights = kernels.softmax_of_scores(
            kernels.attention_scores(x, attention),
            None if receiver_attention is None else kernels.attention_scores(x, receiver_attention),
            *(offset, edge_scale, edges[0], edges[1]),
        )
        ctx.save_for_backward(weights, attention, receiver_attention, offset, edge_scale, x, theta, skip, bias)
        ctx.edges = edges
        return kernels.convolve(x, weights, theta, edges[0], None, edges[2], skip, bias)

    @staticmethod
    def formula(
        attention: Tensor,
        receiver_attention: Tensor | None,
        offset: Tensor,
        edge_scale: Tensor,
        x: Tensor,
        *rest: Any,
    ) -> Tensor:
        theta, edges, skip, bias = rest
        basis = attention, receiver_attention, offset, edge_scale
        return reference.softmax_convolution(x, *basis, theta, pattern_of(*edges), skip, bias)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> Any:
        weights, *inputs = ctx.saved_tensors
        attention, receiver_attention, offset, edge_scale, x, theta, skip, bias = inputs
        if must_be_differentiable(grad_y):
            inputs = [*inputs[:6], ctx.edges, skip, bias]
            return formula_gradients(SoftmaxConvolve.formula, inputs, ctx.needs_input_grad, grad_y)
        _, _, offsets, by_sender, sender_offsets = ctx.edges
        kernels, needs, grad_y = backend(x), ctx.needs_input_grad, grad_y.contiguous()
        wanted = needs[4], any(needs[:3]) or needs[4], needs[5]
        grads: list[Tensor | None] = [None, None, None]
        with branches(x) as beside:
            own = beside(lambda: own_gradients(grad_y, x, needs[7], needs[8]))
            grad_x, grad, grad_theta = kernels.convolve_gradients(
                grad_y, x, weights, theta, ctx.edges, skip, wanted, beside
            )
            if wanted[1]:
                at_receivers = kernels.softmax_gradients(grad, weights, edge_scale, None, offsets)
                opposite = at_receivers if receiver_attention is None else None
                at_senders = kernels.softmax_gradients(grad, weights, edge_scale, by_sender, sender_offsets, opposite)
                ends = (at_senders, attention), (at_receivers, receiver_attention)
                steering = [(end.flatten(0, 1).to(x.dtype), a) for end, a in ends if a is not None]
                for place, (of_scores, vectors) in enumerate(steering):
                    if needs[place]:
                        found, _ = kernels.over_rows(of_scores, x.flatten(0, 1), True, False)
                        grads[place] = found.to(vectors.dtype)
                if needs[2]:
                    flat = at_receivers.flatten(0, 1)
                    grads[2] = kernels.over_rows(flat, flat, False, True)[1].to(offset.dtype)
        if grad_x is not None:
            # What the scores add to it.
            for of_scores, vectors in steering:
                grad_x.flatten(0, 1).addmm_(of_scores, vectors)
        return *grads, None, grad_x, grad_theta, None, *own
