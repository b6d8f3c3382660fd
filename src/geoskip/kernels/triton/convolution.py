"""The convolutions on CUDA, fused: neighbors are gathered, weighted and multiplied into the output at once.

Neither edge-sized messages nor z are ever stored. Each sum is computed by one program in one order, so results repeat
bitwise. :mod:`.items` has the kernels for batches on one graph, where the rows of a block are items; in
:mod:`.vertices` they are vertices.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from geoskip.kernels.branches import Fork, branches
from geoskip.kernels.pattern import Pattern, sizes_of
from geoskip.kernels.triton import items, vertices
from geoskip.kernels.triton.bases import (
    attention_gradients,
    attention_scores,
    gaussian,
    gaussian_gradients,
    softmax,
    softmax_gradients,
)
from geoskip.kernels.triton.launch import forward_tiles, is_tf32, sender_tiles, theta_tiles, weight_tiles
from geoskip.kernels.triton.products import add_parts, over_rows

Gradients = tuple[Tensor | None, ...]


def basis_convolution(
    x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern, skip: Tensor | None, bias: Tensor | None
) -> Tensor:
    """y [*batch, receivers, out] of x [*batch, senders, in], weights [slots or 1, edges, batch or 1] and Θ [slots, in,
    out], or [in, out] if there is one slot."""
    return _convolve(x, weights, theta, pattern.senders, None, pattern.offsets, skip, bias)


def basis_convolution_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern,
    skip: Tensor | None, bias: Tensor | None,
) -> Gradients:  # fmt: skip
    grad_y = grad_y.contiguous()
    with branches(x) as fork:
        own = fork(lambda: over_rows(x, grad_y, needs[4], needs[5]))
        grad_x, grad_weights, theta_parts = _neighbor_gradients(
            grad_y, needs[:3], x, weights, theta, pattern, skip, fork
        )
    grad_theta, *grad_own = add_parts((theta_parts, *own), (theta, skip, bias))
    return grad_x, grad_weights, grad_theta, None, *grad_own


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
    grad_pseudo = mean_parts = scale_parts = None
    with branches(x) as fork:
        own = fork(lambda: over_rows(x, grad_y, needs[6], needs[7]))
        weights = gaussian(pseudo, mean, scale)
        grad_x, grad_weights, theta_parts = _neighbor_gradients(
            grad_y, (needs[0], needs_weights, needs[4]), x, weights.unsqueeze(2), theta, pattern, skip, fork
        )
        if grad_weights is not None:
            grad_pseudo, mean_parts, scale_parts = gaussian_gradients(
                grad_weights, weights, pseudo, mean, scale, needs[1:4]
            )
    parts = mean_parts, scale_parts, theta_parts, *own
    grad_mean, grad_scale, grad_theta, *grad_own = add_parts(parts, (mean, scale, theta, skip, bias))
    return grad_x, grad_pseudo, grad_mean, grad_scale, grad_theta, None, *grad_own


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
    grad_y, needs_weights = grad_y.contiguous(), any(needs[:4])
    basis_parts: Gradients = (None, None, None)
    with branches(x) as fork:
        own = fork(lambda: over_rows(x, grad_y, needs[7], needs[8]))
        with branches(x) as fork_x:
            grad_x, grad_weights, theta_parts = _neighbor_gradients(
                grad_y, (needs[0], needs_weights, needs[5]), x, weights, theta, pattern, skip, fork, fork_x
            )
            if grad_weights is not None:
                ends = softmax_gradients(grad_weights, weights, edge_scale, pattern, receiver_attention is None)
        if grad_weights is not None:
            # The scores depend on x, too.
            basis_parts = attention_gradients(x, *ends, attention, receiver_attention, grad_x)
    basis = attention, receiver_attention, offset
    like = (tensor if need else None for tensor, need in zip(basis, needs[1:4], strict=True))
    *grad_basis, grad_theta, grad_skip, grad_bias = add_parts(
        (*basis_parts, theta_parts, *own), (*like, theta, skip, bias)
    )
    return grad_x, *grad_basis, None, grad_theta, None, grad_skip, grad_bias


def _convolve(
    x: Tensor, weights: Tensor, theta: Tensor, neighbors: Tensor, order: Tensor | None, offsets: Tensor,
    skip: Tensor | None, bias: Tensor | None,
) -> Tensor:  # fmt: skip
    """The convolution on the graph, or, with ``order``, on the reversed graph."""
    (batch, _, channels), (slots, _, out), num_receivers = sizes_of(x), sizes_of(theta), offsets.shape[1] - 1
    if batch == 0 or num_receivers == 0:
        return x.new_zeros(*x.shape[:-2], num_receivers, out)
    if theta.stride(-1) == 1:
        # The tensor cores want the summed axis to be contiguous.
        theta = theta.mT.contiguous().mT
    sizes = batch, slots, channels, out, offsets.shape[0] > 1, weights.shape[2] > 1
    tiles = forward_tiles(*sizes, num_receivers, is_tf32())
    kernels = items if tiles.of_items else vertices
    return kernels.convolve(x, weights, theta, neighbors, order, offsets, skip, bias, tiles)


def _neighbor_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern,
    skip: Tensor | None, fork: Fork, fork_x: Fork | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """The needed gradients of x and of the weights, and that of Θ in parts. Those of the weights are computed at once,
    because other kernels wait for them; the others are branches, unless one kernel computes both. ``fork_x`` is for
    the branch of x, if it ends before the others."""
    offsets, (needs_x, needs_weights, needs_theta) = pattern.offsets, needs
    (batch, num_senders, channels), (slots, _, out), num_receivers = sizes_of(x), sizes_of(theta), offsets.shape[1] - 1
    if batch == 0 or num_senders == 0 or num_receivers == 0:
        zeros = [torch.zeros_like(t) if need else None for t, need in zip((x, weights, theta), needs, strict=True)]
        return zeros[0], zeros[1], None if zeros[2] is None else zeros[2].unsqueeze(0)
    sizes = batch, slots, channels, out, offsets.shape[0] > 1, weights.shape[2] > 1
    backwards = pattern.receivers, pattern.by_sender, pattern.sender_offsets
    grad_x = grad_weights = theta_parts = None
    if needs_theta:
        tiles = theta_tiles(*sizes)
        kernels = items if tiles.of_items else vertices
        forwards = grad_y, x, weights, slots, pattern.senders, offsets, tiles
        theta_parts = fork(lambda: kernels.theta_gradients(*forwards))
    both = sender_tiles(*sizes) if needs_weights else None
    if both is not None:
        grad_x, grad_weights = items.sender_gradients(grad_y, x, weights, theta, *backwards, skip, needs_x, both)
    else:
        if needs_x:
            # The same operator on the reversed graph with each Θ_m transposed.
            reverse = grad_y, weights, theta.mT, *backwards, None if skip is None else skip.t(), None
            grad_x = (fork_x or fork)(lambda: _convolve(*reverse))
        if needs_weights:
            tiles = weight_tiles(slots, channels, sizes[4], num_receivers)
            grad_weights = vertices.weight_gradients(grad_y, x, weights, theta, pattern.senders, offsets, tiles)
    return grad_x, None if grad_weights is None else grad_weights.to(weights.dtype), theta_parts
