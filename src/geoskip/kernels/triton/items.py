r"""Basis convolution on CUDA for a batch that shares one graph: a program owns one vertex of many items.

The rows of a program's blocks are the items, so the edge, its neighbor and its weight are the same for all of
them: they are read once, there is nothing to pad, and no row waits for another with more neighbors.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.triton.gathers import as_index, features_of, plus_weighted, weights_of, zeros_of
from geoskip.kernels.triton.launch import launch
from geoskip.kernels.triton.tensor_cores import product, product_of_parts
from geoskip.kernels.triton.tiles import ItemTiles, ceil_div, needs_wide, precision


@triton.jit
def _convolve_items_kernel(
    x, weights, theta, skip, bias, y, neighbors, order, offsets,
    batch, num_senders, num_receivers, C, O, M,
    stride_wm, stride_we, stride_og, stride_tm, stride_tc, stride_to, stride_sc, stride_so,
    HAS_ORDER: tl.constexpr, GROUPED: tl.constexpr, HAS_SKIP: tl.constexpr, HAS_BIAS: tl.constexpr,
    PER_ITEM: tl.constexpr, SLOTS: tl.constexpr, PARTS: tl.constexpr, WIDE: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    WIDTH: tl.constexpr = BLOCK_C // PARTS
    i_v, i_b, i_o = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    o_b = i_b * BLOCK_B + tl.arange(0, BLOCK_B)
    m_b = o_b < batch
    o_o = i_o * BLOCK_O + tl.arange(0, BLOCK_O)
    m_o = o_o < O
    p_b = x + o_b[:, None].to(tl.int64) * num_senders * C
    b_y = tl.zeros([BLOCK_B, BLOCK_O], dtype=tl.float32)
    for i_c in range(0, C, BLOCK_C):
        o_c = i_c + tl.arange(0, WIDTH)
        for i_m in range(0, M, SLOTS):
            o_row = i_v + (i_m * stride_og if GROUPED else 0)
            i_first, i_last = as_index(tl.load(offsets + o_row), WIDE), as_index(tl.load(offsets + o_row + 1), WIDE)
            p_w = weights + tl.cast(i_m, tl.int64) * stride_wm
            b_z = zeros_of(SLOTS * PARTS, BLOCK_B, WIDTH)
            for i_k in range(i_first, i_last):
                i_e = as_index(tl.load(order + i_k), WIDE) if HAS_ORDER else i_k
                i_j = as_index(tl.load(neighbors + i_e), WIDE)
                b_x = features_of(p_b + i_j * C, o_c, C, m_b, WIDTH, PARTS)
                b_w = weights_of(p_w + i_e * stride_we, stride_wm, o_b, m_b, PER_ITEM, SLOTS)
                b_z = plus_weighted(b_z, b_w, b_x, SLOTS, PARTS)
            for s in tl.static_range(SLOTS):
                b_theta = ()
                for p in tl.static_range(PARTS):
                    o_p = o_c + p * WIDTH
                    p_theta = theta + (i_m + s) * stride_tm + o_p[:, None] * stride_tc + o_o[None, :] * stride_to
                    b_theta = b_theta + (tl.load(p_theta, mask=(o_p < C)[:, None] & m_o[None, :], other=0.0),)
                b_y += product_of_parts(b_z, b_theta, s * PARTS, PARTS, PRECISION)
        if HAS_SKIP:
            o_c = i_c + tl.arange(0, BLOCK_C)
            m_c = o_c < C
            p_own = p_b + i_v.to(tl.int64) * C + o_c[None, :]
            b_own = tl.load(p_own, mask=m_b[:, None] & m_c[None, :], other=0.0)
            p_skip = skip + o_c[:, None] * stride_sc + o_o[None, :] * stride_so
            b_skip = tl.load(p_skip, mask=m_c[:, None] & m_o[None, :], other=0.0)
            b_y += product(b_own, b_skip, PRECISION)
    if HAS_BIAS:
        b_y += tl.load(bias + o_o, mask=m_o, other=0.0).to(tl.float32)[None, :]
    o_y = (o_b[:, None].to(tl.int64) * num_receivers + i_v) * O + o_o[None, :]
    tl.store(y + o_y, b_y.to(y.dtype.element_ty), mask=m_b[:, None] & m_o[None, :])


def convolve_items(
    x: Tensor,
    weights: Tensor,
    theta: Tensor,
    neighbors: Tensor,
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
        x, weights, theta, skip, bias, y, neighbors, order, offsets,
        batch, num_senders, num_receivers, channels, out, slots,
        0 if grouped else weights.stride(0), weights.stride(1), offsets.stride(0), *theta.stride(),
        *(skip.stride() if skip is not None else (0, 0)),
        order is not None, grouped, skip is not None, bias is not None,
        weights.shape[2] > 1, tiles.slots, tiles.parts, needs_wide(x, y, weights),
        tiles.b, tiles.c, tiles.o, precision(),
    )  # fmt: skip
    launch(_convolve_items_kernel, grid, arguments, tiles.warps, tiles.registers)
    return y
