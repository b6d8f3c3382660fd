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

from geoskip.kernels.triton.tiles import ceil_div, forward_tiles, gradient_tiles, needs_wide, precision


@triton.jit
def _rows(offsets, o_v, m_v, WIDE: tl.constexpr):
    """First edge and number of edges of each row of a tile, and the largest number."""
    b_start = tl.load(offsets + o_v, mask=m_v, other=0)
    b_degree = (tl.load(offsets + o_v + 1, mask=m_v, other=0) - b_start).to(tl.int32)
    if not WIDE:
        b_start = b_start.to(tl.int32)
    return b_start, b_degree, tl.max(b_degree, axis=0)


@triton.jit
def _edge(neighbours, order, b_start, b_degree, k, HAS_ORDER: tl.constexpr, WIDE: tl.constexpr):
    """The k-th edge of each row, and the vertex at its other end."""
    m_e = k < b_degree
    o_e = b_start + k
    if HAS_ORDER:
        o_e = tl.load(order + o_e, mask=m_e, other=0)
    b_j = tl.load(neighbours + o_e, mask=m_e, other=0)
    if not WIDE:
        o_e, b_j = o_e.to(tl.int32), b_j.to(tl.int32)
    return o_e, b_j


@triton.jit
def _features(x, b_j, b_degree, k, o_c, m_c, C):
    """Features of the k-th neighbours. The mask is made anew in two dimensions: one that is shared with loads of
    one dimension breaks the compiler of Triton 3.6."""
    m_x = (k < b_degree[:, None]) & m_c[None, :]
    return tl.load(x + b_j[:, None] * C + o_c[None, :], mask=m_x, other=0.0).to(tl.float32)


@triton.jit
def _convolve_kernel(
    x, weights, theta, skip, bias, y, neighbours, order, offsets,
    num_senders, num_receivers, C, O, M,
    stride_wb, stride_wm, stride_og, stride_tm, stride_tc, stride_to, stride_sc, stride_so,
    HAS_ORDER: tl.constexpr, GROUPED: tl.constexpr, HAS_SKIP: tl.constexpr, HAS_BIAS: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr,
    PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    i_v, i_b, i_o = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    o_v = i_v * BLOCK_V + tl.arange(0, BLOCK_V)
    m_v = o_v < num_receivers
    o_o = i_o * BLOCK_O + tl.arange(0, BLOCK_O)
    m_o = o_o < O
    x += i_b * num_senders * C
    weights += i_b * stride_wb
    b_y = tl.zeros([BLOCK_V, BLOCK_O], dtype=tl.float32)
    # A group is all slots at once, or one slot with edges of its own.
    for i_g in range(0, M if GROUPED else 1):
        b_start, b_degree, b_most = _rows(offsets + i_g * stride_og, o_v, m_v, WIDE)
        for i_c in range(0, C, BLOCK_C):
            o_c = i_c + tl.arange(0, BLOCK_C)
            m_c = o_c < C
            for i_k in range(0, b_most, BLOCK_K):
                b_e, b_x = (), ()
                for k in tl.static_range(BLOCK_K):
                    o_e, b_j = _edge(neighbours, order, b_start, b_degree, i_k + k, HAS_ORDER, WIDE)
                    b_e = b_e + (o_e,)
                    b_x = b_x + (_features(x, b_j, b_degree, i_k + k, o_c, m_c, C),)
                for i_m in range(i_g, i_g + 1 if GROUPED else M):
                    b_z = tl.zeros([BLOCK_V, BLOCK_C], dtype=tl.float32)
                    for k in tl.static_range(BLOCK_K):
                        b_w = tl.load(weights + i_m * stride_wm + b_e[k], mask=i_k + k < b_degree, other=0.0)
                        b_z += b_w.to(tl.float32)[:, None] * b_x[k]
                    p_theta = theta + i_m * stride_tm + o_c[:, None] * stride_tc + o_o[None, :] * stride_to
                    b_theta = tl.load(p_theta, mask=m_c[:, None] & m_o[None, :], other=0.0)
                    b_y += tl.dot(b_z.to(b_theta.dtype), b_theta, input_precision=PRECISION)
    if HAS_SKIP:
        for i_c in range(0, C, BLOCK_C):
            o_c = i_c + tl.arange(0, BLOCK_C)
            m_c = o_c < C
            b_own = tl.load(
                x + o_v[:, None].to(tl.int64) * C + o_c[None, :], mask=m_v[:, None] & m_c[None, :], other=0.0
            )
            p_skip = skip + o_c[:, None] * stride_sc + o_o[None, :] * stride_so
            b_skip = tl.load(p_skip, mask=m_c[:, None] & m_o[None, :], other=0.0)
            b_y += tl.dot(b_own, b_skip, input_precision=PRECISION)
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
    num_receivers, grouped = offsets.shape[1] - 1, offsets.shape[0] > 1
    y = x.new_empty(batch, num_receivers, out)
    if y.numel() == 0:
        return y
    tiles = forward_tiles(slots, channels, out, grouped)
    _convolve_kernel[(ceil_div(num_receivers, tiles.v), batch, ceil_div(out, tiles.o))](
        x, weights, theta, skip, bias, y, neighbours, order, offsets,
        num_senders, num_receivers, channels, out, slots,
        *_strides(weights), offsets.stride(0), *theta.stride(), *(skip.stride() if skip is not None else (0, 0)),
        HAS_ORDER=order is not None, GROUPED=grouped, HAS_SKIP=skip is not None, HAS_BIAS=bias is not None,
        BLOCK_K=tiles.k, BLOCK_V=tiles.v, BLOCK_C=tiles.c, BLOCK_O=tiles.o,
        PRECISION=precision(), WIDE=needs_wide(x, weights), num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    return y


@triton.jit
def _gradients_kernel(
    grad_y, x, weights, theta, grad_theta, grad_weights, senders, offsets,
    batch, num_receivers, C, O, M, num_tiles, num_parts,
    stride_xb, stride_yb, stride_wb, stride_wm, stride_gb, stride_gm, stride_og,
    GROUPED: tl.constexpr, NEEDS_THETA: tl.constexpr, NEEDS_WEIGHTS: tl.constexpr, SHARED: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr,
    PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    i_m, i_p, i_o = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    o_c = tl.arange(0, BLOCK_C)
    m_c = o_c < C
    o_o = i_o * BLOCK_O + tl.arange(0, BLOCK_O)
    m_o = o_o < O
    if GROUPED:
        offsets += i_m * stride_og
    weights += i_m * stride_wm
    grad_weights += i_m * stride_gm
    theta += i_m * C * O
    b_sum = tl.zeros([BLOCK_C, BLOCK_O], dtype=tl.float32)
    for i_t in range(i_p, num_tiles, num_parts):
        o_v = i_t * BLOCK_V + tl.arange(0, BLOCK_V)
        m_v = o_v < num_receivers
        b_start, b_degree, b_most = _rows(offsets, o_v, m_v, WIDE)
        # Of the programs that share a slot and rows, the first writes the gradient of the weights.
        b_own = tl.where(i_o == 0, b_degree, 0)
        for i_k in range(0, b_most, BLOCK_K):
            b_e, b_j, b_w, b_g = (), (), (), ()
            for k in tl.static_range(BLOCK_K):
                o_e, o_j = _edge(senders, senders, b_start, b_degree, i_k + k, False, WIDE)
                b_e, b_j = b_e + (o_e,), b_j + (o_j,)
                if SHARED:
                    b_wk = tl.load(weights + o_e, mask=i_k + k < b_degree, other=0.0).to(tl.float32)
                    b_w, b_g = b_w + (b_wk,), b_g + (tl.zeros([BLOCK_V, BLOCK_C], dtype=tl.float32),)
            p_x, p_w, p_g = x, weights, grad_weights
            p_y = grad_y + o_v[:, None].to(tl.int64) * O
            for i_b in range(0, batch):
                b_gz = tl.zeros([BLOCK_V, BLOCK_C], dtype=tl.float32)
                if NEEDS_WEIGHTS:
                    for i_q in range(0, O, BLOCK_O):
                        o_q = i_q + tl.arange(0, BLOCK_O)
                        m_q = o_q < O
                        b_gy = tl.load(p_y + o_q[None, :], mask=m_v[:, None] & m_q[None, :], other=0.0)
                        p_theta = theta + o_c[None, :] * O + o_q[:, None]
                        b_theta = tl.load(p_theta, mask=m_c[None, :] & m_q[:, None], other=0.0)
                        b_gz += tl.dot(b_gy, b_theta, input_precision=PRECISION)
                b_z = tl.zeros([BLOCK_V, BLOCK_C], dtype=tl.float32)
                b_more = ()
                for k in tl.static_range(BLOCK_K):
                    b_x = _features(p_x, b_j[k], b_degree, i_k + k, o_c, m_c, C)
                    if NEEDS_THETA:
                        if SHARED:
                            b_z += b_w[k][:, None] * b_x
                        else:
                            b_wk = tl.load(p_w + b_e[k], mask=i_k + k < b_degree, other=0.0)
                            b_z += b_wk.to(tl.float32)[:, None] * b_x
                    if NEEDS_WEIGHTS:
                        if SHARED:
                            b_more = b_more + (b_g[k] + b_gz * b_x,)
                        else:
                            tl.store(p_g + b_e[k], tl.sum(b_gz * b_x, axis=1), mask=i_k + k < b_own)
                if NEEDS_WEIGHTS and SHARED:
                    b_g = b_more
                if NEEDS_THETA:
                    b_gy = tl.load(p_y + o_o[None, :], mask=m_v[:, None] & m_o[None, :], other=0.0)
                    b_sum += tl.dot(tl.trans(b_z).to(b_gy.dtype), b_gy, input_precision=PRECISION)
                p_x, p_y, p_w, p_g = p_x + stride_xb, p_y + stride_yb, p_w + stride_wb, p_g + stride_gb
            if NEEDS_WEIGHTS and SHARED:
                for k in tl.static_range(BLOCK_K):
                    tl.store(grad_weights + b_e[k], tl.sum(b_g[k], axis=1), mask=i_k + k < b_own)
    if NEEDS_THETA:
        o_sum = ((i_p.to(tl.int64) * M + i_m) * C + o_c[:, None]) * O + o_o[None, :]
        tl.store(grad_theta + o_sum, b_sum, mask=m_c[:, None] & m_o[None, :])


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
    num_receivers, grouped = offsets.shape[1] - 1, offsets.shape[0] > 1
    tiles = gradient_tiles(slots, channels, out, grouped)
    num_tiles = ceil_div(num_receivers, tiles.v)
    parts = max(1, min(num_tiles, ceil_div(tiles.programs, slots)))
    partial = torch.empty(parts if needs_theta else 0, slots, channels, out, device=x.device, dtype=torch.float32)
    grad_weights = torch.empty_like(weights if needs_weights else weights[..., :0], dtype=torch.float32)
    if x.numel() == 0 or grad_y.numel() == 0:
        return torch.zeros_like(theta), torch.zeros_like(grad_weights, dtype=weights.dtype)
    _gradients_kernel[(slots, parts, ceil_div(out, tiles.o) if needs_theta else 1)](
        grad_y, x, weights, theta, partial, grad_weights, senders, offsets,
        batch, num_receivers, channels, out, slots, num_tiles, parts, x.stride(0), grad_y.stride(0),
        *_strides(weights), *_strides(grad_weights), offsets.stride(0),
        GROUPED=grouped, NEEDS_THETA=needs_theta, NEEDS_WEIGHTS=needs_weights, SHARED=weights.shape[0] == 1,
        BLOCK_K=tiles.k, BLOCK_V=tiles.v, BLOCK_C=tiles.c, BLOCK_O=tiles.o,
        PRECISION=precision(), WIDE=needs_wide(x, weights), num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    return partial.sum(0).to(theta.dtype), grad_weights.to(weights.dtype)


def _strides(weights: Tensor) -> tuple[int, int]:
    """Steps along items and slots of weights [batch or 1, slots or 1, edges]; none where they are shared."""
    batch, slots, _ = weights.shape
    return weights.stride(0) if batch > 1 else 0, weights.stride(1) if slots > 1 else 0
