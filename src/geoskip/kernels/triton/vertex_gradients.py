"""Gradients of the basis convolution for single items and small batches: rows are vertices, as in :mod:`.vertices`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.triton.gathers import index_at, zeros_of
from geoskip.kernels.triton.launch import launch
from geoskip.kernels.triton.tensor_cores import in_layout_of_loads, product
from geoskip.kernels.triton.tiles import SIZES, VertexTiles, ceil_div, needs_wide, precision, shares
from geoskip.kernels.triton.vertices import rows_of, slot_offset, strides_of


@triton.jit(do_not_specialize=SIZES)
def _theta_gradients_kernel(
    grad_y, x, weights, grad_theta, senders, offsets,
    batch, num_receivers, C, O, M, num_tiles, num_parts,
    stride_xb, stride_yb, stride_wb, stride_wm, stride_we, stride_og,
    GROUPED: tl.constexpr, SLOTS: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr,
    PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    i_m, i_p, i_o = tl.program_id(0) * SLOTS, tl.program_id(1), tl.program_id(2)
    o_c = tl.arange(0, BLOCK_C)
    m_c = o_c < C
    o_o = i_o * BLOCK_O + tl.arange(0, BLOCK_O)
    m_o = o_o < O
    b_sum = zeros_of(SLOTS, BLOCK_C, BLOCK_O)
    if GROUPED:
        offsets += i_m * stride_og
    for i_t in range(i_p, num_tiles, num_parts):
        o_v = i_t * BLOCK_V + tl.arange(0, BLOCK_V)
        m_v = o_v < num_receivers
        b_start, b_degree, b_most = rows_of(offsets, o_v, m_v, WIDE)
        p_x, p_w = x, weights + slot_offset(i_m, stride_wm, WIDE)
        p_y = grad_y + o_v[:, None].to(tl.int64) * O + o_o[None, :]
        for i_b in range(batch):
            b_z = zeros_of(SLOTS, BLOCK_V, BLOCK_C)
            for k in range(b_most):
                m_e = k < b_degree
                o_e = b_start + k
                b_j = index_at(senders + o_e, m_e, WIDE)
                m_x = (k < b_degree[:, None]) & m_c[None, :]
                b_x = tl.load(p_x + b_j[:, None] * C + o_c[None, :], mask=m_x, other=0.0).to(tl.float32)
                b_more = ()
                for s in tl.static_range(SLOTS):
                    b_w = tl.load(p_w + slot_offset(s, stride_wm, WIDE) + o_e * stride_we, mask=m_e, other=0.0)
                    b_more = b_more + (b_z[s] + b_w.to(tl.float32)[:, None] * b_x,)
                b_z = b_more
            b_gy = tl.load(p_y, mask=m_v[:, None] & m_o[None, :], other=0.0)
            b_more = ()
            for s in tl.static_range(SLOTS):
                b_more = b_more + (b_sum[s] + product(tl.trans(b_z[s]).to(b_gy.dtype), b_gy, PRECISION),)
            b_sum = b_more
            p_x, p_y, p_w = p_x + stride_xb, p_y + stride_yb, p_w + stride_wb
    for s in tl.static_range(SLOTS):
        o_sum = ((i_p.to(tl.int64) * M + i_m + s) * C + o_c[:, None]) * O + o_o[None, :]
        tl.store(grad_theta + o_sum, b_sum[s], mask=m_c[:, None] & m_o[None, :])


def theta_gradients(
    grad_y: Tensor, x: Tensor, weights: Tensor, slots: int, senders: Tensor, offsets: Tensor, tiles: VertexTiles
) -> Tensor:
    """The gradient of Θ_m: zᵀ times that of y, a part of the vertices for each program, added in a fixed order."""
    (batch, _, channels), (_, num_receivers, out) = x.shape, grad_y.shape
    num_tiles, chunks = ceil_div(num_receivers, tiles.v), slots // tiles.slots
    parts = shares(num_tiles, tiles.programs, chunks)
    partial = torch.empty(parts, slots, channels, out, device=x.device, dtype=torch.float32)
    arguments = (
        grad_y, x, weights, partial, senders, offsets,
        batch, num_receivers, channels, out, slots, num_tiles, parts, x.stride(0), grad_y.stride(0),
        *strides_of(weights), offsets.stride(0),
        offsets.shape[0] > 1, tiles.slots, tiles.v, tiles.c, tiles.o,
        precision(), needs_wide(x, grad_y, weights),
    )  # fmt: skip
    grid = (chunks, parts, ceil_div(out, tiles.o))
    launch(_theta_gradients_kernel, grid, arguments, tiles.warps)
    return partial.sum(0)


@triton.jit(do_not_specialize=SIZES)
def _weight_gradients_kernel(
    grad_y, x, theta, grad_weights, senders, offsets,
    batch, num_receivers, C, O, stride_xb, stride_yb, stride_wb, stride_wm, stride_we, stride_og,
    GROUPED: tl.constexpr, ADDS: tl.constexpr, SLOTS: tl.constexpr,
    BLOCK_V: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr,
    PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    i_v, i_m = tl.program_id(0), tl.program_id(1) * SLOTS
    o_v = i_v * BLOCK_V + tl.arange(0, BLOCK_V)
    m_v = o_v < num_receivers
    o_c = tl.arange(0, BLOCK_C)
    m_c = o_c < C
    if GROUPED:
        offsets += i_m * stride_og
    b_start, b_degree, b_most = rows_of(offsets, o_v, m_v, WIDE)
    p_x, p_y, p_g = x, grad_y + o_v[:, None].to(tl.int64) * O, grad_weights + slot_offset(i_m, stride_wm, WIDE)
    for i_b in range(batch):
        b_gz = ()
        for s in tl.static_range(SLOTS):
            b_gs = tl.zeros([BLOCK_V, BLOCK_C], dtype=tl.float32)
            for i_o in range(0, O, BLOCK_O):
                o_o = i_o + tl.arange(0, BLOCK_O)
                m_o = o_o < O
                b_gy = tl.load(p_y + o_o[None, :], mask=m_v[:, None] & m_o[None, :], other=0.0)
                p_theta = theta + ((i_m + s) * C + o_c[None, :]) * O + o_o[:, None]
                b_theta = tl.load(p_theta, mask=m_c[None, :] & m_o[:, None], other=0.0)
                b_gs += product(b_gy, b_theta, PRECISION)
            b_gz = b_gz + (in_layout_of_loads(b_gs, BLOCK_V, BLOCK_C),)
        for k in range(b_most):
            m_e = k < b_degree
            o_e = b_start + k
            b_j = index_at(senders + o_e, m_e, WIDE)
            m_x = (k < b_degree[:, None]) & m_c[None, :]
            b_x = tl.load(p_x + b_j[:, None] * C + o_c[None, :], mask=m_x, other=0.0).to(tl.float32)
            for s in tl.static_range(SLOTS):
                b_gw = tl.sum(b_gz[s] * b_x, axis=1)
                if ADDS:
                    b_gw += tl.load(p_g + slot_offset(s, stride_wm, WIDE) + o_e * stride_we, mask=m_e, other=0.0)
                tl.store(p_g + slot_offset(s, stride_wm, WIDE) + o_e * stride_we, b_gw, mask=m_e)
        if ADDS:
            # The next item adds to what this one has written, perhaps from other threads of this program.
            tl.debug_barrier()
        p_x, p_y, p_g = p_x + stride_xb, p_y + stride_yb, p_g + stride_wb


def weight_gradients(
    grad_y: Tensor, x: Tensor, weights: Tensor, theta: Tensor, senders: Tensor, offsets: Tensor, tiles: VertexTiles
) -> Tensor:
    """The gradient of w_m(i,j): the product of x_j with the gradient of z_im."""
    (batch, _, channels), (slots, _, out), num_receivers = x.shape, theta.shape, offsets.shape[1] - 1
    # Items that share their weights add to the same gradients, one after the other.
    adds = batch > 1 and weights.shape[2] == 1
    grad_weights = (torch.zeros_like if adds else torch.empty_like)(weights, dtype=torch.float32)
    arguments = (
        grad_y, x, theta, grad_weights, senders, offsets,
        batch, num_receivers, channels, out, x.stride(0), grad_y.stride(0), *strides_of(weights), offsets.stride(0),
        offsets.shape[0] > 1, adds, tiles.slots,
        tiles.v, tiles.c, tiles.o,
        precision(), needs_wide(x, grad_y, weights),
    )  # fmt: skip
    grid = (ceil_div(num_receivers, tiles.v), slots // tiles.slots)
    launch(_weight_gradients_kernel, grid, arguments, tiles.warps)
    return grad_weights
