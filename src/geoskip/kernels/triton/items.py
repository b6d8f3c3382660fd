r"""Basis convolution on CUDA for a batch that shares one graph: a program owns one vertex of many items.

The rows of a program's blocks are the items, so the edge, its neighbour and its weight are the same for all of
them: they are read once, there is nothing to pad, and no row waits for another with more neighbours.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.triton.launch import launch
from geoskip.kernels.triton.tiles import ItemTiles, ceil_div, precision
from geoskip.kernels.triton.vertices import in_layout_of_loads


@triton.jit
def _convolve_items_kernel(
    x, weights, theta, skip, bias, y, neighbours, order, offsets,
    batch, num_senders, num_receivers, C, O, M,
    stride_wm, stride_we, stride_og, stride_tm, stride_tc, stride_to, stride_sc, stride_so,
    HAS_ORDER: tl.constexpr, GROUPED: tl.constexpr, HAS_SKIP: tl.constexpr, HAS_BIAS: tl.constexpr,
    PER_ITEM: tl.constexpr, SLOTS: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    i_v, i_b, i_o = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    o_b = i_b * BLOCK_B + tl.arange(0, BLOCK_B)
    m_b = o_b < batch
    o_o = i_o * BLOCK_O + tl.arange(0, BLOCK_O)
    m_o = o_o < O
    p_b = x + o_b[:, None].to(tl.int64) * num_senders * C
    b_y = tl.zeros([BLOCK_B, BLOCK_O], dtype=tl.float32)
    for i_c in range(0, C, BLOCK_C):
        o_c = i_c + tl.arange(0, BLOCK_C)
        m_c = o_c < C
        m_x = m_b[:, None] & m_c[None, :]
        for i_m in range(0, M, SLOTS):
            o_row = i_v + (i_m * stride_og if GROUPED else 0)
            i_first, i_last = tl.load(offsets + o_row), tl.load(offsets + o_row + 1)
            b_z = ()
            for s in tl.static_range(SLOTS):
                b_z = b_z + (tl.zeros([BLOCK_B, BLOCK_C], dtype=tl.float32),)
            for i_k in range(i_first, i_last):
                i_e = tl.load(order + i_k) if HAS_ORDER else i_k
                i_j = tl.load(neighbours + i_e)
                b_x = tl.load(p_b + i_j * C + o_c[None, :], mask=m_x, other=0.0).to(tl.float32)
                b_more = ()
                for s in tl.static_range(SLOTS):
                    p_w = weights + (i_m + s) * stride_wm + i_e * stride_we
                    if PER_ITEM:
                        b_w = tl.load(p_w + o_b, mask=m_b, other=0.0).to(tl.float32)[:, None]
                    else:
                        b_w = tl.load(p_w).to(tl.float32)
                    b_more = b_more + (b_z[s] + b_w * b_x,)
                b_z = b_more
            for s in tl.static_range(SLOTS):
                p_theta = theta + (i_m + s) * stride_tm + o_c[:, None] * stride_tc + o_o[None, :] * stride_to
                b_theta = tl.load(p_theta, mask=m_c[:, None] & m_o[None, :], other=0.0)
                b_y += tl.dot(b_z[s].to(b_theta.dtype), b_theta, input_precision=PRECISION)
        if HAS_SKIP:
            b_own = tl.load(p_b + i_v.to(tl.int64) * C + o_c[None, :], mask=m_x, other=0.0)
            p_skip = skip + o_c[:, None] * stride_sc + o_o[None, :] * stride_so
            b_skip = tl.load(p_skip, mask=m_c[:, None] & m_o[None, :], other=0.0)
            b_y += tl.dot(b_own, b_skip, input_precision=PRECISION)
    if HAS_BIAS:
        b_y += tl.load(bias + o_o, mask=m_o, other=0.0).to(tl.float32)[None, :]
    o_y = (o_b[:, None].to(tl.int64) * num_receivers + i_v) * O + o_o[None, :]
    tl.store(y + o_y, b_y.to(y.dtype.element_ty), mask=m_b[:, None] & m_o[None, :])


def convolve_items(
    x: Tensor,
    weights: Tensor,
    theta: Tensor,
    neighbours: Tensor,
    order: Tensor | None,
    offsets: Tensor,
    skip: Tensor | None,
    bias: Tensor | None,
    tiles: ItemTiles,
) -> Tensor:
    batch, num_senders, channels = x.shape
    slots, _, out = theta.shape
    num_receivers, grouped = offsets.shape[1] - 1, offsets.shape[0] > 1
    y = x.new_empty(batch, num_receivers, out)
    grid = (num_receivers, ceil_div(batch, tiles.b), ceil_div(out, tiles.o))
    arguments = (
        x, weights, theta, skip, bias, y, neighbours, order, offsets,
        batch, num_senders, num_receivers, channels, out, slots,
        0 if grouped else weights.stride(0), weights.stride(1), offsets.stride(0), *theta.stride(),
        *(skip.stride() if skip is not None else (0, 0)),
        order is not None, grouped, skip is not None, bias is not None,
        weights.shape[2] > 1, tiles.slots,
        tiles.b, tiles.c, tiles.o, precision(),
    )  # fmt: skip
    launch(_convolve_items_kernel, grid, arguments, tiles.warps)
    return y


@triton.jit
def _item_gradients_kernel(
    grad_y, x, weights, theta, grad_theta, grad_weights, senders, offsets,
    batch, num_senders, num_receivers, C, O, M, num_parts,
    stride_wm, stride_we, stride_gb, stride_og,
    GROUPED: tl.constexpr, NEEDS_THETA: tl.constexpr, NEEDS_WEIGHTS: tl.constexpr, PER_ITEM: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    i_m, i_p, i_b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    o_b = i_b * BLOCK_B + tl.arange(0, BLOCK_B)
    m_b = o_b < batch
    o_c = tl.arange(0, BLOCK_C)
    m_c = o_c < C
    o_o = tl.arange(0, BLOCK_O)
    m_o = o_o < O
    p_x = x + o_b[:, None].to(tl.int64) * num_senders * C + o_c[None, :]
    p_y = grad_y + o_b[:, None].to(tl.int64) * num_receivers * O + o_o[None, :]
    m_x, m_y = m_b[:, None] & m_c[None, :], m_b[:, None] & m_o[None, :]
    p_theta = theta + (i_m * C + o_c[None, :]) * O + o_o[:, None]
    b_theta = tl.load(p_theta, mask=m_c[None, :] & m_o[:, None], other=0.0)
    b_sum = tl.zeros([BLOCK_C, BLOCK_O], dtype=tl.float32)
    for i_v in range(i_p, num_receivers, num_parts):
        o_row = i_v + (i_m * stride_og if GROUPED else 0)
        i_first, i_last = tl.load(offsets + o_row), tl.load(offsets + o_row + 1)
        b_gy = tl.load(p_y + i_v * O, mask=m_y, other=0.0)
        b_gz = tl.zeros([BLOCK_B, BLOCK_C], dtype=tl.float32)
        if NEEDS_WEIGHTS:
            b_gz = in_layout_of_loads(tl.dot(b_gy, b_theta, input_precision=PRECISION), BLOCK_B, BLOCK_C)
        b_z = tl.zeros([BLOCK_B, BLOCK_C], dtype=tl.float32)
        for i_e in range(i_first, i_last):
            i_j = tl.load(senders + i_e)
            b_x = tl.load(p_x + i_j * C, mask=m_x, other=0.0).to(tl.float32)
            if NEEDS_THETA:
                p_w = weights + i_m * stride_wm + i_e * stride_we
                if PER_ITEM:
                    b_z += tl.load(p_w + o_b, mask=m_b, other=0.0).to(tl.float32)[:, None] * b_x
                else:
                    b_z += tl.load(p_w).to(tl.float32) * b_x
            if NEEDS_WEIGHTS:
                p_g = grad_weights + i_m * stride_wm + i_e * stride_we
                if PER_ITEM:
                    tl.store(p_g + o_b, tl.sum(b_gz * b_x, axis=1), mask=m_b)
                else:
                    tl.store(p_g + i_b * stride_gb, tl.sum(b_gz * b_x))
        if NEEDS_THETA:
            b_sum += tl.dot(tl.trans(b_z).to(b_gy.dtype), b_gy, input_precision=PRECISION)
    if NEEDS_THETA:
        o_part = (i_b * num_parts + i_p).to(tl.int64) * M + i_m
        o_sum = (o_part * C + o_c[:, None]) * O + o_o[None, :]
        tl.store(grad_theta + o_sum, b_sum, mask=m_c[:, None] & m_o[None, :])


def item_gradients(
    grad_y: Tensor,
    x: Tensor,
    weights: Tensor,
    theta: Tensor,
    senders: Tensor,
    offsets: Tensor,
    needs_theta: bool,
    needs_weights: bool,
    tiles: ItemTiles,
) -> tuple[Tensor, Tensor]:
    batch, num_senders, channels = x.shape
    slots, _, out = theta.shape
    num_receivers, grouped = offsets.shape[1] - 1, offsets.shape[0] > 1
    blocks, per_item = ceil_div(batch, tiles.b), weights.shape[2] > 1
    parts = max(1, min(num_receivers, ceil_div(tiles.programs, slots * blocks)))
    partial = x.new_empty(blocks * parts if needs_theta else 0, slots, channels, out, dtype=torch.float32)
    shape = weights.shape if per_item else (blocks, *weights.shape)
    grad_weights = x.new_empty(shape if needs_weights else 0, dtype=torch.float32)
    arguments = (
        grad_y, x, weights, theta, partial, grad_weights, senders, offsets,
        batch, num_senders, num_receivers, channels, out, slots, parts,
        0 if grouped else weights.stride(0), weights.stride(1), weights.numel(), offsets.stride(0),
        grouped, needs_theta, needs_weights, per_item,
        tiles.b, tiles.c, tiles.o, precision(),
    )  # fmt: skip
    launch(_item_gradients_kernel, (slots, parts, blocks), arguments, tiles.warps)
    return partial.sum(0), grad_weights if per_item or not needs_weights else grad_weights.sum(0)
