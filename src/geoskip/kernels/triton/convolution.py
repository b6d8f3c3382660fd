"""The convolutions on CUDA, fused: neighbors are gathered, weighted and multiplied into the output at once.

Neither edge-sized messages nor z are ever stored. Each sum is computed by one program in one order, so results repeat
bitwise. :mod:`.items` has the kernels for batches on one graph, where the rows of a block are items; in
:mod:`.vertices` they are vertices.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from geoskip.kernels.branches import Beside, branches
from geoskip.kernels.pattern import Pattern
from geoskip.kernels.triton import items, vertices
from geoskip.kernels.triton.bases import (
    attention_scores,
    gaussian,
    gaussian_gradients,
    softmax,
    softmax_gradients,
)
from geoskip.kernels.triton.launch import forward_tiles, is_tf32, sender_tiles, theta_tiles, weight_tiles
from geoskip.kernels.triton.products import over_rows, own_gradients

Gradients = tuple[Tensor | None, ...]


def basis_convolution(
    x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern, skip: Tensor | None, bias: Tensor | None
) -> Tensor:
    """y [batch, receivers, out] of x [batch, senders, in] and weights [slots or 1, edges, batch or 1]."""
    return _convolve(x, weights, theta, pattern.senders, None, pattern.offsets, skip, bias)


def basis_convolution_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern,
    skip: Tensor | None, bias: Tensor | None,
) -> Gradients:  # fmt: skip
    grad_y = grad_y.contiguous()
    with branches(x) as beside:
        own = beside(lambda: own_gradients(grad_y, x, needs[4], needs[5]))
        grads = _neighbor_gradients(grad_y, needs[:3], x, weights, theta, pattern, skip, beside)
    return *grads, None, *own


def gaussian_convolution(
    x: Tensor, pseudo: Tensor, mean: Tensor, scale: Tensor, theta: Tensor, pattern: Pattern, skip: Tensor | None,
    bias: Tensor | None,
) -> Tensor:  # fmt: skip
    weights = gaussian(pseudo, mean, scale).unsqueeze(2)
    return _convolve(x, weights, theta, pattern.senders, None, pattern.offsets, skip, bias)


def gaussian_convolution_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, pseudo: Tensor, mean: Tensor, scale: Tensor, theta: Tensor,
    pattern: Pattern, skip: Tensor | None, bias: Tensor | None,
) -> Gradients:  # fmt: skip
    """The weights are cheap, so they are computed again instead of saved."""
    grad_y, needs_weights = grad_y.contiguous(), any(needs[1:4])
    grad_basis: Gradients = (None, None, None)
    with branches(x) as beside:
        own = beside(lambda: own_gradients(grad_y, x, needs[6], needs[7]))
        weights = gaussian(pseudo, mean, scale)
        grad_x, grad_weights, grad_theta = _neighbor_gradients(
            grad_y, (needs[0], needs_weights, needs[4]), x, weights.unsqueeze(2), theta, pattern, skip, beside
        )
        if grad_weights is not None:
            grad_basis = gaussian_gradients(grad_weights.squeeze(2), weights, pseudo, mean, scale, needs[1:4])
    return grad_x, *grad_basis, grad_theta, None, *own


def softmax_convolution(
    x: Tensor, attention: Tensor, receiver_attention: Tensor | None, offset: Tensor, edge_scale: Tensor,
    theta: Tensor, pattern: Pattern, skip: Tensor | None, bias: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """y, and the softmax weights."""
    at_senders = attention_scores(x, attention)
    at_receivers = None if receiver_attention is None else attention_scores(x, receiver_attention)
    weights = softmax(at_senders, at_receivers, offset, edge_scale, pattern)
    return _convolve(x, weights, theta, pattern.senders, None, pattern.offsets, skip, bias), weights


def softmax_convolution_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, attention: Tensor, receiver_attention: Tensor | None,
    offset: Tensor, edge_scale: Tensor, theta: Tensor, pattern: Pattern, skip: Tensor | None, bias: Tensor | None,
    weights: Tensor,
) -> Gradients:  # fmt: skip
    grad_y, flat, needs_weights = grad_y.contiguous(), x.flatten(0, 1), any(needs[:4])
    grad_attention: list[Tensor | None] = [None, None]
    grad_offset = None
    with branches(x) as beside:
        own = beside(lambda: own_gradients(grad_y, x, needs[7], needs[8]))
        grad_x, grad_weights, grad_theta = _neighbor_gradients(
            grad_y, (needs[0], needs_weights, needs[5]), x, weights, theta, pattern, skip, beside
        )
        if grad_weights is not None:
            scale = weights, edge_scale
            at_receivers = softmax_gradients(grad_weights, *scale, None, pattern.offsets)
            opposite = at_receivers if receiver_attention is None else None
            at_senders = softmax_gradients(grad_weights, *scale, pattern.by_sender, pattern.sender_offsets, opposite)
            ends = (at_senders, attention), (at_receivers, receiver_attention)
            score_gradients = [(end.flatten(0, 1).to(x.dtype), a) for end, a in ends if a is not None]
            for k, (of_scores, vectors) in enumerate(score_gradients):
                if needs[1 + k]:
                    product, _ = over_rows(of_scores, flat, True, False)
                    grad_attention[k] = None if product is None else product.to(vectors.dtype)
            if needs[3]:
                rows = at_receivers.flatten(0, 1)
                _, sums = over_rows(rows, rows, False, True)
                grad_offset = None if sums is None else sums.to(offset.dtype)
    if grad_x is not None:
        # The scores depend on x, too.
        for of_scores, vectors in score_gradients:
            grad_x.flatten(0, 1).addmm_(of_scores, vectors)
    return grad_x, *grad_attention, grad_offset, None, grad_theta, None, *own


def _convolve(
    x: Tensor, weights: Tensor, theta: Tensor, neighbors: Tensor, order: Tensor | None, offsets: Tensor,
    skip: Tensor | None, bias: Tensor | None,
) -> Tensor:  # fmt: skip
    """The convolution on the graph, or, with ``order``, on the reversed graph."""
    if x.shape[0] == 0 or offsets.shape[1] == 1:
        return x.new_zeros(x.shape[0], offsets.shape[1] - 1, theta.shape[2])
    if theta.stride(2) == 1:
        # The tensor cores want the summed axis to be contiguous.
        theta = theta.transpose(1, 2).contiguous().transpose(1, 2)
    slots, channels, out = theta.shape
    sizes = len(x), slots, channels, out, len(offsets) > 1, weights.shape[2] > 1
    tiles = forward_tiles(*sizes, offsets.shape[1] - 1, is_tf32())
    kernels = items if tiles.of_items else vertices
    return kernels.convolve(x, weights, theta, neighbors, order, offsets, skip, bias, tiles)


def _neighbor_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern,
    skip: Tensor | None, beside: Beside,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """The needed gradients of x, of the weights and of Θ. Those of the weights are computed at once, because other
    kernels wait for them; the others are branches, unless one kernel computes both."""
    offsets, (needs_x, needs_weights, needs_theta) = pattern.offsets, needs
    if x.shape[0] == 0 or x.shape[1] == 0 or offsets.shape[1] == 1:
        empty = [torch.zeros_like(t) if need else None for t, need in zip((x, weights, theta), needs, strict=True)]
        return empty[0], empty[1], empty[2]
    slots, channels, out = theta.shape
    sizes = len(x), slots, channels, out, len(offsets) > 1, weights.shape[2] > 1
    backwards = pattern.receivers, pattern.by_sender, pattern.sender_offsets
    grad_x = grad_weights = grad_theta = None
    if needs_theta:
        tiles = theta_tiles(*sizes)
        kernels = items if tiles.of_items else vertices
        forwards = grad_y, x, weights, slots, pattern.senders, offsets, tiles
        grad_theta = beside(lambda: kernels.theta_gradients(*forwards).to(theta.dtype))
    both = sender_tiles(*sizes) if needs_weights else None
    if both is not None:
        grad_x, grad_weights = items.sender_gradients(grad_y, x, weights, theta, *backwards, skip, needs_x, both)
    else:
        if needs_x:
            # The same operator on the reversed graph with each Θ_m transposed.
            reverse = grad_y, weights, theta.transpose(1, 2), *backwards, None if skip is None else skip.t(), None
            grad_x = beside(lambda: _convolve(*reverse))
        if needs_weights:
            tiles = weight_tiles(slots, channels, len(offsets) > 1, offsets.shape[1] - 1)
            grad_weights = vertices.weight_gradients(grad_y, x, weights, theta, pattern.senders, offsets, tiles)
    return grad_x, None if grad_weights is None else grad_weights.to(weights.dtype), grad_theta
