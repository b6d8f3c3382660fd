r"""Gradients of the basis convolution for a batch that shares one graph: rows are items, as in :mod:`.items`.

Over the edges out of a sender j, with :math:`h_m = \sum_i w_m(i,j)\, \bar y_i` and :math:`u_m = x_j \Theta_m`:

.. math:: \bar x_j = \sum_m h_m \Theta_m^\top, \qquad \bar w_m(i,j) = \langle u_m, \bar y_i \rangle,

so one pass over the gradients of y gives both. The gradient of Θ is a sum over the receivers, of their z again.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.triton.launch import launch
from geoskip.kernels.triton.products import in_layout_of_loads, product
from geoskip.kernels.triton.tiles import ItemTiles, ceil_div, precision


@triton.jit
def _sender_gradients_kernel(
    grad_y, x, weights, theta, skip, grad_x, grad_weights, receivers, order, offsets,
    batch, num_senders, num_receivers, C, O, M,
    stride_wm, stride_we, stride_gb, stride_og,
    GROUPED: tl.constexpr, HAS_SKIP: tl.constexpr, NEEDS_X: tl.constexpr, PER_ITEM: tl.constexpr, SLOTS: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    i_v, i_b = tl.program_id(0), tl.program_id(1)
    o_b = i_b * BLOCK_B + tl.arange(0, BLOCK_B)
    m_b = o_b < batch
    o_c = tl.arange(0, BLOCK_C)
    m_c = o_c < C
    o_o = tl.arange(0, BLOCK_O)
    m_o = o_o < O
    p_y = grad_y + o_b[:, None].to(tl.int64) * num_receivers * O + o_o[None, :]
    o_x = (o_b[:, None].to(tl.int64) * num_senders + i_v) * C + o_c[None, :]
    m_x, m_y = m_b[:, None] & m_c[None, :], m_b[:, None] & m_o[None, :]
    b_own = tl.load(x + o_x, mask=m_x, other=0.0)
    b_gx = tl.zeros([BLOCK_B, BLOCK_C], dtype=tl.float32)
    for i_m in range(0, M, SLOTS):
        o_row = i_v + (i_m * stride_og if GROUPED else 0)
        i_first, i_last = tl.load(offsets + o_row), tl.load(offsets + o_row + 1)
        b_h, b_u = (), ()
        for s in tl.static_range(SLOTS):
            p_theta = theta + ((i_m + s) * C + o_c[:, None]) * O + o_o[None, :]
            b_theta = tl.load(p_theta, mask=m_c[:, None] & m_o[None, :], other=0.0)
            b_u = b_u + (in_layout_of_loads(product(b_own, b_theta, PRECISION), BLOCK_B, BLOCK_O),)
            b_h = b_h + (tl.zeros([BLOCK_B, BLOCK_O], dtype=tl.float32),)
        for i_k in range(i_first, i_last):
            i_e = tl.load(order + i_k)
            i_i = tl.load(receivers + i_e)
            b_gy = tl.load(p_y + i_i * O, mask=m_y, other=0.0).to(tl.float32)
            b_more = ()
            for s in tl.static_range(SLOTS):
                o_w = tl.cast(i_m + s, tl.int64) * stride_wm + i_e * stride_we
                if PER_ITEM:
                    b_w = tl.load(weights + o_w + o_b, mask=m_b, other=0.0).to(tl.float32)[:, None]
                    tl.store(grad_weights + o_w + o_b, tl.sum(b_u[s] * b_gy, axis=1), mask=m_b)
                else:
                    b_w = tl.load(weights + o_w).to(tl.float32)
                    tl.store(grad_weights + o_w + i_b * stride_gb, tl.sum(b_u[s] * b_gy))
                b_more = b_more + (b_h[s] + b_w * b_gy,)
            b_h = b_more
        if NEEDS_X:
            for s in tl.static_range(SLOTS):
                p_theta = theta + ((i_m + s) * C + o_c[None, :]) * O + o_o[:, None]
                b_theta = tl.load(p_theta, mask=m_c[None, :] & m_o[:, None], other=0.0)
                b_gx += product(b_h[s].to(b_theta.dtype), b_theta, PRECISION)
    if NEEDS_X:
        if HAS_SKIP:
            b_gy = tl.load(p_y + i_v.to(tl.int64) * O, mask=m_y, other=0.0)
            p_skip = skip + o_c[None, :] * O + o_o[:, None]
            b_gx += product(b_gy, tl.load(p_skip, mask=m_c[None, :] & m_o[:, None], other=0.0), PRECISION)
        tl.store(grad_x + o_x, b_gx.to(grad_x.dtype.element_ty), mask=m_x)


def sender_gradients(
    grad_y: Tensor,
    x: Tensor,
    weights: Tensor,
    theta: Tensor,
    receivers: Tensor,
    order: Tensor,
    offsets: Tensor,
    skip: Tensor | None,
    needs_x: bool,
    tiles: ItemTiles,
) -> tuple[Tensor | None, Tensor]:
    """Gradients of x, if it is needed, and of the weights."""
    (batch, num_senders, channels), num_receivers = x.shape, grad_y.shape[1]
    slots, _, out = theta.shape
    grouped, per_item, blocks = offsets.shape[0] > 1, weights.shape[2] > 1, ceil_div(batch, tiles.b)
    grad_x = torch.empty_like(x if needs_x else x[:0])
    shape = weights.shape if per_item or blocks == 1 else (blocks, *weights.shape)
    grad_weights = x.new_empty(shape, dtype=torch.float32)
    arguments = (
        grad_y, x, weights, theta, skip, grad_x, grad_weights, receivers, order, offsets,
        batch, num_senders, num_receivers, channels, out, slots,
        0 if grouped else weights.stride(0), weights.stride(1), weights.numel(), offsets.stride(0),
        grouped, skip is not None, needs_x, per_item, tiles.slots,
        tiles.b, tiles.c, tiles.o, precision(),
    )  # fmt: skip
    launch(_sender_gradients_kernel, (num_senders, blocks), arguments, tiles.warps)
    return grad_x if needs_x else None, grad_weights if grad_weights.dim() == 3 else grad_weights.sum(0)


@triton.jit
def _theta_gradients_kernel(
    grad_y, x, weights, grad_theta, senders, offsets,
    batch, num_senders, num_receivers, C, O, M, num_parts,
    stride_wm, stride_we, stride_og,
    GROUPED: tl.constexpr, PER_ITEM: tl.constexpr, SLOTS: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    i_m, i_p, i_b = tl.program_id(0) * SLOTS, tl.program_id(1), tl.program_id(2)
    o_b = i_b * BLOCK_B + tl.arange(0, BLOCK_B)
    m_b = o_b < batch
    o_c = tl.arange(0, BLOCK_C)
    m_c = o_c < C
    o_o = tl.arange(0, BLOCK_O)
    m_o = o_o < O
    p_x = x + o_b[:, None].to(tl.int64) * num_senders * C + o_c[None, :]
    p_y = grad_y + o_b[:, None].to(tl.int64) * num_receivers * O + o_o[None, :]
    m_x, m_y = m_b[:, None] & m_c[None, :], m_b[:, None] & m_o[None, :]
    b_sum = ()
    for s in tl.static_range(SLOTS):
        b_sum = b_sum + (tl.zeros([BLOCK_C, BLOCK_O], dtype=tl.float32),)
    for i_v in range(i_p, num_receivers, num_parts):
        o_row = i_v + (i_m * stride_og if GROUPED else 0)
        i_first, i_last = tl.load(offsets + o_row), tl.load(offsets + o_row + 1)
        b_gy = tl.load(p_y + i_v * O, mask=m_y, other=0.0)
        b_z = ()
        for s in tl.static_range(SLOTS):
            b_z = b_z + (tl.zeros([BLOCK_B, BLOCK_C], dtype=tl.float32),)
        for i_e in range(i_first, i_last):
            i_j = tl.load(senders + i_e)
            b_x = tl.load(p_x + i_j * C, mask=m_x, other=0.0).to(tl.float32)
            b_more = ()
            for s in tl.static_range(SLOTS):
                p_w = weights + tl.cast(i_m + s, tl.int64) * stride_wm + i_e * stride_we
                if PER_ITEM:
                    b_w = tl.load(p_w + o_b, mask=m_b, other=0.0).to(tl.float32)[:, None]
                else:
                    b_w = tl.load(p_w).to(tl.float32)
                b_more = b_more + (b_z[s] + b_w * b_x,)
            b_z = b_more
        b_more = ()
        for s in tl.static_range(SLOTS):
            b_more = b_more + (b_sum[s] + product(tl.trans(b_z[s]).to(b_gy.dtype), b_gy, PRECISION),)
        b_sum = b_more
    o_part = (i_b * num_parts + i_p).to(tl.int64) * M + i_m
    for s in tl.static_range(SLOTS):
        o_sum = ((o_part + s) * C + o_c[:, None]) * O + o_o[None, :]
        tl.store(grad_theta + o_sum, b_sum[s], mask=m_c[:, None] & m_o[None, :])


def theta_gradients(
    grad_y: Tensor, x: Tensor, weights: Tensor, slots: int, senders: Tensor, offsets: Tensor, tiles: ItemTiles
) -> Tensor:
    (batch, num_senders, channels), (_, num_receivers, out) = x.shape, grad_y.shape
    grouped, blocks, chunks = offsets.shape[0] > 1, ceil_div(batch, tiles.b), slots // tiles.slots
    parts = max(1, min(num_receivers, ceil_div(tiles.programs, chunks * blocks)))
    partial = x.new_empty(blocks * parts, slots, channels, out, dtype=torch.float32)
    arguments = (
        grad_y, x, weights, partial, senders, offsets,
        batch, num_senders, num_receivers, channels, out, slots, parts,
        0 if grouped else weights.stride(0), weights.stride(1), offsets.stride(0),
        grouped, weights.shape[2] > 1, tiles.slots,
        tiles.b, tiles.c, tiles.o, precision(),
    )  # fmt: skip
    launch(_theta_gradients_kernel, (chunks, parts, blocks), arguments, tiles.warps)
    return partial.sum(0)
