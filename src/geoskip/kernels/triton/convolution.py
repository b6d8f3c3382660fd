r"""Basis convolution on CUDA, fused: neighbours are gathered, weighted and multiplied into the output at once.

Nothing of the size of the edges times channels, or of z, is ever stored. One program owns a tile of receivers, so
sums have one order and results repeat bitwise. Kernel dialect: ``i_`` program ids, ``o_`` offsets, ``m_`` masks,
``b_`` blocks of values.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.triton.tiles import Tiles, ceil_div, forward_tiles, gradient_tiles, precision


@triton.jit
def _aggregate(
    x, weights, neighbours, order, b_start, b_degree, b_most, o_m, m_m, o_c, m_c, C, stride_we, stride_wm,
    HAS_ORDER: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """z of a tile: [BLOCK_V, BLOCK_M, BLOCK_C], summed over the neighbours."""
    b_z = tl.zeros([BLOCK_V, BLOCK_M, BLOCK_C], dtype=tl.float32)
    for k in range(0, b_most):
        m_e = k < b_degree
        o_e = b_start + k
        if HAS_ORDER:
            o_e = tl.load(order + o_e, mask=m_e, other=0)
        b_j = tl.load(neighbours + o_e, mask=m_e, other=0)
        b_w = tl.load(
            weights + o_e[:, None] * stride_we + o_m[None, :] * stride_wm, mask=m_e[:, None] & m_m[None, :], other=0.0
        ).to(tl.float32)
        b_x = tl.load(x + b_j[:, None] * C + o_c[None, :], mask=m_e[:, None] & m_c[None, :], other=0.0).to(tl.float32)
        b_z += b_w[:, :, None] * b_x[:, None, :]
    return b_z


@triton.jit
def _convolve_kernel(
    x, weights, theta, skip, bias, y, neighbours, order, offsets,
    num_senders, num_receivers, C, O, M,
    stride_wb, stride_we, stride_wm, stride_og, stride_tm, stride_tc, stride_to, stride_sc, stride_so,
    HAS_ORDER: tl.constexpr, GROUPED: tl.constexpr, HAS_SKIP: tl.constexpr, HAS_BIAS: tl.constexpr,
    BLOCK_V: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    i_v, i_b, i_o = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    o_v = i_v * BLOCK_V + tl.arange(0, BLOCK_V)
    m_v = o_v < num_receivers
    o_o = i_o * BLOCK_O + tl.arange(0, BLOCK_O)
    m_o = o_o < O
    x += i_b * num_senders * C
    weights += i_b * stride_wb
    b_y = tl.zeros([BLOCK_V, BLOCK_O], dtype=tl.float32)
    b_start = tl.load(offsets + o_v, mask=m_v, other=0)
    b_degree = tl.load(offsets + o_v + 1, mask=m_v, other=0) - b_start
    b_most = tl.max(b_degree, axis=0)
    for i_m in range(0, tl.cdiv(M, BLOCK_M)):
        if GROUPED:
            b_start = tl.load(offsets + i_m * stride_og + o_v, mask=m_v, other=0)
            b_degree = tl.load(offsets + i_m * stride_og + o_v + 1, mask=m_v, other=0) - b_start
            b_most = tl.max(b_degree, axis=0)
        o_m = i_m * BLOCK_M + tl.arange(0, BLOCK_M)
        m_m = o_m < M
        for i_c in range(0, tl.cdiv(C, BLOCK_C)):
            o_c = i_c * BLOCK_C + tl.arange(0, BLOCK_C)
            m_c = o_c < C
            b_z = _aggregate(
                x, weights, neighbours, order, b_start, b_degree, b_most, o_m, m_m, o_c, m_c, C, stride_we, stride_wm,
                HAS_ORDER, BLOCK_V, BLOCK_M, BLOCK_C,
            )  # fmt: skip
            o_mc = tl.arange(0, BLOCK_M * BLOCK_C)
            o_tm, o_tc = i_m * BLOCK_M + o_mc // BLOCK_C, i_c * BLOCK_C + o_mc % BLOCK_C
            b_theta = tl.load(
                theta + o_tm[:, None] * stride_tm + o_tc[:, None] * stride_tc + o_o[None, :] * stride_to,
                mask=(o_tm < M)[:, None] & (o_tc < C)[:, None] & m_o[None, :], other=0.0,
            )  # fmt: skip
            b_z = tl.reshape(b_z, [BLOCK_V, BLOCK_M * BLOCK_C]).to(b_theta.dtype)
            b_y += tl.dot(b_z, b_theta, input_precision=PRECISION)
    if HAS_SKIP:
        for i_c in range(0, tl.cdiv(C, BLOCK_C)):
            o_c = i_c * BLOCK_C + tl.arange(0, BLOCK_C)
            m_c = o_c < C
            b_x = tl.load(x + o_v[:, None].to(tl.int64) * C + o_c[None, :], mask=m_v[:, None] & m_c[None, :], other=0.0)
            b_a = tl.load(
                skip + o_c[:, None] * stride_sc + o_o[None, :] * stride_so, mask=m_c[:, None] & m_o[None, :], other=0.0
            )
            b_y += tl.dot(b_x, b_a, input_precision=PRECISION)
    if HAS_BIAS:
        b_y += tl.load(bias + o_o, mask=m_o, other=0.0).to(tl.float32)[None, :]
    o_y = (i_b * num_receivers + o_v[:, None]) * O + o_o[None, :]
    tl.store(y + o_y, b_y.to(y.dtype.element_ty), mask=m_v[:, None] & m_o[None, :])


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
    batch, num_senders, channels = x.shape
    slots, _, out = theta.shape
    num_receivers = offsets.shape[1] - 1
    y = x.new_empty(batch, num_receivers, out)
    if y.numel() == 0:
        return y
    grouped = offsets.shape[0] > 1
    tiles = forward_tiles(num_receivers, batch, slots, channels, out, grouped)
    grid = (ceil_div(num_receivers, tiles.v), batch, ceil_div(out, tiles.o))
    _convolve_kernel[grid](
        x, weights, theta, skip, bias, y, neighbours, order, offsets,
        num_senders, num_receivers, channels, out, slots,
        *_strides(weights, grouped), offsets.stride(0), *theta.stride(), *(skip.stride() if skip is not None else (0, 0)),
        HAS_ORDER=order is not None, GROUPED=grouped, HAS_SKIP=skip is not None, HAS_BIAS=bias is not None,
        BLOCK_V=tiles.v, BLOCK_M=tiles.m, BLOCK_C=tiles.c, BLOCK_O=tiles.o,
        PRECISION=precision(), num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    return y


@triton.jit
def _gradients_kernel(
    grad_y, x, weights, theta, grad_theta, grad_weights, senders, offsets,
    batch, num_receivers, C, O, M, num_tiles, num_parts,
    stride_xb, stride_yb, stride_wb, stride_we, stride_wm, stride_gb, stride_ge, stride_gm, stride_og,
    GROUPED: tl.constexpr, NEEDS_THETA: tl.constexpr, NEEDS_WEIGHTS: tl.constexpr, SHARED: tl.constexpr,
    BLOCK_V: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    i_m, i_p, i_o = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    o_m = i_m * BLOCK_M + tl.arange(0, BLOCK_M)
    m_m = o_m < M
    # Of the programs that share slots and rows, the first writes the weights' gradient.
    m_own = o_m < tl.where(i_o == 0, M, 0)
    o_c = tl.arange(0, BLOCK_C)
    m_c = o_c < C
    o_mc = tl.arange(0, BLOCK_M * BLOCK_C)
    o_tm, o_tc = i_m * BLOCK_M + o_mc // BLOCK_C, o_mc % BLOCK_C
    m_t = (o_tm < M) & (o_tc < C)
    o_row = (o_tm * C + o_tc) * O
    o_o = i_o * BLOCK_O + tl.arange(0, BLOCK_O)
    m_o = o_o < O
    b_theta = tl.load(theta + o_row[None, :] + o_o[:, None], mask=m_t[None, :] & m_o[:, None], other=0.0)
    b_sum = tl.zeros([BLOCK_M * BLOCK_C, BLOCK_O], dtype=tl.float32)
    if GROUPED:
        offsets += i_m * stride_og
    for i_t in range(i_p, num_tiles, num_parts):
        o_v = i_t * BLOCK_V + tl.arange(0, BLOCK_V)
        m_v = o_v < num_receivers
        b_start = tl.load(offsets + o_v, mask=m_v, other=0)
        b_degree = tl.load(offsets + o_v + 1, mask=m_v, other=0) - b_start
        b_most = tl.max(b_degree, axis=0)
        p_x, p_w, p_g = x, weights, grad_weights
        p_y = grad_y + o_v[:, None].to(tl.int64) * O
        for _ in range(0, batch):
            b_gy = tl.load(p_y + o_o[None, :], mask=m_v[:, None] & m_o[None, :], other=0.0)
            b_z = tl.zeros([BLOCK_V, BLOCK_M, BLOCK_C], dtype=tl.float32)
            if NEEDS_WEIGHTS:
                b_gz = tl.dot(b_gy, b_theta, input_precision=PRECISION)
                # Other output blocks than this program's; there are none up to BLOCK_O channels.
                for i_step in range(1, tl.cdiv(O, BLOCK_O)):
                    o_other = ((i_o + i_step) % tl.cdiv(O, BLOCK_O)) * BLOCK_O + tl.arange(0, BLOCK_O)
                    m_other = o_other < O
                    b_other = tl.load(p_y + o_other[None, :], mask=m_v[:, None] & m_other[None, :], other=0.0)
                    b_part = tl.load(
                        theta + o_row[None, :] + o_other[:, None], mask=m_t[None, :] & m_other[:, None], other=0.0
                    )
                    b_gz += tl.dot(b_other, b_part, input_precision=PRECISION)
                b_gz = tl.reshape(b_gz, [BLOCK_V, BLOCK_M, BLOCK_C])
            for k in range(0, b_most):
                m_e = k < b_degree
                o_e = b_start + k
                b_j = tl.load(senders + o_e, mask=m_e, other=0)
                b_x = tl.load(p_x + b_j[:, None] * C + o_c[None, :], mask=m_e[:, None] & m_c[None, :], other=0.0)
                b_x = b_x.to(tl.float32)
                if NEEDS_THETA:
                    p_we = p_w + o_e[:, None] * stride_we + o_m[None, :] * stride_wm
                    b_w = tl.load(p_we, mask=m_e[:, None] & m_m[None, :], other=0.0).to(tl.float32)
                    b_z += b_w[:, :, None] * b_x[:, None, :]
                if NEEDS_WEIGHTS:
                    b_gw = tl.sum(b_gz * b_x[:, None, :], axis=2)
                    p_ge = p_g + o_e[:, None] * stride_ge + o_m[None, :] * stride_gm
                    m_w = m_e[:, None] & m_own[None, :]
                    if SHARED:
                        b_gw += tl.load(p_ge, mask=m_w, other=0.0)
                    tl.store(p_ge, b_gw, mask=m_w)
            if NEEDS_THETA:
                b_z = tl.reshape(b_z, [BLOCK_V, BLOCK_M * BLOCK_C]).to(b_gy.dtype)
                b_sum += tl.dot(tl.trans(b_z), b_gy, input_precision=PRECISION)
            if NEEDS_WEIGHTS and SHARED:
                # The next item adds to what this one has written, perhaps from other threads of this program.
                tl.debug_barrier()
            p_x, p_y, p_w, p_g = p_x + stride_xb, p_y + stride_yb, p_w + stride_wb, p_g + stride_gb
    if NEEDS_THETA:
        o_sum = i_p.to(tl.int64) * M * C * O + o_row[:, None] + o_o[None, :]
        tl.store(grad_theta + o_sum, b_sum, mask=m_t[:, None] & m_o[None, :])


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
    batch, _, channels = x.shape
    slots, _, out = theta.shape
    num_receivers = offsets.shape[1] - 1
    grouped, shared = offsets.shape[0] > 1, weights.shape[0] == 1
    tiles: Tiles = gradient_tiles(num_receivers, batch, slots, channels, out, grouped)
    num_tiles = ceil_div(num_receivers, tiles.v)
    blocks = ceil_div(slots, tiles.m)
    parts = max(1, min(num_tiles, ceil_div(tiles.programs, blocks)))
    partial = torch.empty(parts if needs_theta else 0, slots, channels, out, device=x.device, dtype=torch.float32)
    # Items that share their weights add to the same gradients, one after the other.
    grad_weights = torch.zeros_like(weights if needs_weights else weights[:, :0], dtype=torch.float32)
    if x.numel() == 0 or grad_y.numel() == 0 or num_receivers == 0:
        return torch.zeros_like(theta), torch.zeros_like(grad_weights, dtype=weights.dtype)
    _gradients_kernel[(blocks, parts, ceil_div(out, tiles.o))](
        grad_y, x, weights, theta, partial, grad_weights, senders, offsets,
        batch, num_receivers, channels, out, slots, num_tiles, parts, x.stride(0), grad_y.stride(0),
        *_strides(weights, grouped), *_strides(grad_weights, grouped), offsets.stride(0),
        GROUPED=grouped, NEEDS_THETA=needs_theta, NEEDS_WEIGHTS=needs_weights, SHARED=shared,
        BLOCK_V=tiles.v, BLOCK_M=tiles.m, BLOCK_C=tiles.c, BLOCK_O=tiles.o,
        PRECISION=precision(), num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    return partial.sum(0).to(theta.dtype), grad_weights.to(weights.dtype)


def _strides(weights: Tensor, grouped: bool) -> tuple[int, int, int]:
    """Steps along items, edges and slots of weights [batch or 1, edges, slots or 1]."""
    return 0 if weights.shape[0] == 1 else weights.stride(0), weights.stride(1), 0 if grouped else weights.stride(2)
