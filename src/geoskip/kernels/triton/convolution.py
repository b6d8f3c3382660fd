r"""Basis convolution on CUDA, fused: neighbours are gathered, weighted and multiplied into the output at once.

Nothing of the size of the edges times channels, or of z, is ever stored. Each sum is made by one program in one
order, so results repeat bitwise. Two kernels share the work: :mod:`.items` for batches on one graph, where the rows
of a block are items, and :mod:`.vertices`, where they are vertices. Dialect of the kernels: ``i_`` indices and
program ids, ``o_`` offsets, ``m_`` masks, ``p_`` pointers, ``b_`` blocks of values.
"""

from __future__ import annotations

import torch
from torch import Tensor

from geoskip.kernels.triton.items import convolve_items, item_gradients
from geoskip.kernels.triton.tiles import ItemTiles, forward_tiles, gradient_tiles
from geoskip.kernels.triton.vertices import convolve_vertices, vertex_gradients


def convolve(
    x: Tensor,
    weights: Tensor,
    theta: Tensor,
    neighbours: Tensor,
    order: Tensor | None,
    offsets: Tensor,
    skip: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    """y [batch, receivers, out] of x [batch, senders, in] and weights [slots or 1, edges, batch or 1]."""
    if x.shape[0] == 0 or offsets.shape[1] == 1:
        return x.new_zeros(x.shape[0], offsets.shape[1] - 1, theta.shape[2])
    if theta.stride(2) == 1:
        # The tensor cores want the summed axis to be contiguous.
        theta = theta.transpose(1, 2).contiguous().transpose(1, 2)
    slots, channels, out = theta.shape
    tiles = forward_tiles(len(x), slots, channels, out, len(offsets) > 1)
    inputs = x, weights, theta, neighbours, order, offsets, skip, bias
    return convolve_items(*inputs, tiles) if isinstance(tiles, ItemTiles) else convolve_vertices(*inputs, tiles)


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
    """Gradients of Θ and of the weights; that of the weights is empty if it is not needed."""
    if x.shape[0] == 0 or x.shape[1] == 0 or offsets.shape[1] == 1:
        return torch.zeros_like(theta), torch.zeros_like(weights if needs_weights else weights[:, :0])
    slots, channels, out = theta.shape
    tiles = gradient_tiles(len(x), slots, channels, out, len(offsets) > 1)
    inputs = grad_y, x, weights, theta, senders, offsets, needs_theta, needs_weights
    if isinstance(tiles, ItemTiles):
        grad_theta, grad_weights = item_gradients(*inputs, tiles)
    else:
        grad_theta, grad_weights = vertex_gradients(*inputs, tiles)
    if not needs_weights:
        grad_weights = torch.empty_like(weights[:, :0])
    return grad_theta.to(theta.dtype), grad_weights.to(weights.dtype)
