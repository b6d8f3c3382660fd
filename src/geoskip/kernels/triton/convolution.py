r"""Basis convolution on CUDA, fused: neighbors are gathered, weighted and multiplied into the output at once.

Nothing of the size of the edges times channels, or of z, is ever stored. Each sum is made by one program in one
order, so results repeat bitwise. Two kernels share the work: :mod:`.items` for batches on one graph, where the rows
of a block are items, and :mod:`.vertices`, where they are vertices. Dialect of the kernels: ``i_`` indices and
program ids, ``o_`` offsets, ``m_`` masks, ``p_`` pointers, ``b_`` blocks of values.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from geoskip.kernels.branches import Beside, in_turn
from geoskip.kernels.cpu import Edges, Gradients
from geoskip.kernels.triton import item_gradients, vertex_gradients
from geoskip.kernels.triton.item_gradients import sender_gradients
from geoskip.kernels.triton.items import convolve_items
from geoskip.kernels.triton.tiles import (
    ItemTiles,
    VertexTiles,
    forward_tiles,
    is_tf32,
    sender_tiles,
    theta_tiles,
    weight_tiles,
)
from geoskip.kernels.triton.vertex_gradients import weight_gradients
from geoskip.kernels.triton.vertices import convolve_vertices


def convolve(
    x: Tensor,
    weights: Tensor,
    theta: Tensor,
    neighbors: Tensor,
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
    sizes = len(x), slots, channels, out, len(offsets) > 1, weights.shape[2] > 1
    tiles = forward_tiles(*sizes, offsets.shape[1] - 1, is_tf32())
    inputs = x, weights, theta, neighbors, order, offsets, skip, bias
    return convolve_items(*inputs, tiles) if isinstance(tiles, ItemTiles) else convolve_vertices(*inputs, tiles)


def convolve_gradients(
    grad_y: Tensor,
    x: Tensor,
    weights: Tensor,
    theta: Tensor,
    edges: Edges,
    skip: Tensor | None,
    needs: Sequence[bool],
    beside: Beside = in_turn,
) -> Gradients:
    """Gradients of x, of the weights and of Θ, where ``needs`` asks for them: those of the weights now, the others
    as branches, where the kernels that make them are not the same."""
    senders, receivers, offsets, by_sender, sender_offsets = edges
    needs_x, needs_weights, needs_theta = needs
    if x.shape[0] == 0 or x.shape[1] == 0 or offsets.shape[1] == 1:
        return (
            torch.zeros_like(x) if needs_x else None,
            torch.zeros_like(weights) if needs_weights else None,
            torch.zeros_like(theta) if needs_theta else None,
        )
    slots, channels, out = theta.shape
    sizes = len(x), slots, channels, out, len(offsets) > 1, weights.shape[2] > 1
    grad_x = grad_weights = grad_theta = None
    backwards = receivers, by_sender, sender_offsets
    if needs_theta:
        forwards = grad_y, x, weights, slots, senders, offsets, theta_tiles(*sizes)
        grad_theta = beside(lambda: _theta_gradients(*forwards).to(theta.dtype))
    tiles = sender_tiles(*sizes) if needs_weights else None
    if tiles is not None:
        grad_x, grad_weights = sender_gradients(grad_y, x, weights, theta, *backwards, skip, needs_x, tiles)
    else:
        if needs_x:
            # The same operator on the reversed graph with each Θ_m transposed.
            reverse = grad_y, weights, theta.transpose(1, 2), *backwards, None if skip is None else skip.t(), None
            grad_x = beside(lambda: convolve(*reverse))
        if needs_weights:
            own = weight_tiles(slots, channels, out, len(offsets) > 1, offsets.shape[1] - 1)
            grad_weights = weight_gradients(grad_y, x, weights, theta, senders, offsets, own)
    return grad_x, None if grad_weights is None else grad_weights.to(weights.dtype), grad_theta


def _theta_gradients(
    grad_y: Tensor,
    x: Tensor,
    weights: Tensor,
    slots: int,
    senders: Tensor,
    offsets: Tensor,
    tiles: ItemTiles | VertexTiles,
) -> Tensor:
    if isinstance(tiles, ItemTiles):
        return item_gradients.theta_gradients(grad_y, x, weights, slots, senders, offsets, tiles)
    return vertex_gradients.theta_gradients(grad_y, x, weights, slots, senders, offsets, tiles)
