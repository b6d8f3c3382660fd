r"""Basis convolution on CUDA for single items and small batches: a program owns a tile of vertices of one item."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.triton.launch import launch
from geoskip.kernels.triton.tiles import VertexTiles, ceil_div, needs_wide, precision


@triton.jit
def _rows(offsets, o_v, m_v, WIDE: tl.constexpr):
    """First edge and number of edges of each row of a tile, and the largest number."""
    b_start = tl.load(offsets + o_v, mask=m_v, other=0)
    b_degree = (tl.load(offsets + o_v + 1, mask=m_v, other=0) - b_start).to(tl.int32)
    if not WIDE:
        b_start = b_start.to(tl.int32)
    return b_start, b_degree, tl.max(b_degree, axis=0)


@triton.jit
def in_layout_of_loads(block, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The same values. What comes out of a product lies in registers as the tensor cores leave it; multiplied
    with loaded features, the compiler would move those into that layout, for each neighbour anew. A scan along
    an axis of length 1 moves this block instead, once."""
    return tl.reshape(tl.cumsum(tl.reshape(block, [ROWS, COLUMNS, 1]), axis=2), [ROWS, COLUMNS])


@triton.jit
def _convolve_kernel(
    x, weights, theta, skip, bias, y, neighbours, order, offsets,
    num_senders, num_receivers, C, O, M,
    stride_wb, stride_wm, stride_we, stride_og, stride_tm, stride_tc, stride_to, stride_sc, stride_so,
    HAS_ORDER: tl.constexpr, GROUPED: tl.constexpr, HAS_SKIP: tl.constexpr, HAS_BIAS: tl.constexpr,
    SLOTS: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr,
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
    b_start, b_degree, b_most = _rows(offsets, o_v, m_v, WIDE)
    for i_m in range(0, M, SLOTS):
        if GROUPED:
            b_start, b_degree, b_most = _rows(offsets + i_m * stride_og, o_v, m_v, WIDE)
        for i_c in range(0, C, BLOCK_C):
            o_c = i_c + tl.arange(0, BLOCK_C)
            m_c = o_c < C
            b_z = ()
            for s in tl.static_range(SLOTS):
                b_z = b_z + (tl.zeros([BLOCK_V, BLOCK_C], dtype=tl.float32),)
            for k in range(b_most):
                m_e = k < b_degree
                o_e = b_start + k
                if HAS_ORDER:
                    o_e = tl.load(order + o_e, mask=m_e, other=0)
                b_j = tl.load(neighbours + o_e, mask=m_e, other=0)
                if not WIDE:
                    o_e, b_j = o_e.to(tl.int32), b_j.to(tl.int32)
                # The mask is computed anew in two dimensions: shared with the loads above, it breaks Triton 3.6.
                m_x = (k < b_degree[:, None]) & m_c[None, :]
                b_x = tl.load(x + b_j[:, None] * C + o_c[None, :], mask=m_x, other=0.0).to(tl.float32)
                b_more = ()
                for s in tl.static_range(SLOTS):
                    b_w = tl.load(weights + (i_m + s) * stride_wm + o_e * stride_we, mask=m_e, other=0.0)
                    b_more = b_more + (b_z[s] + b_w.to(tl.float32)[:, None] * b_x,)
                b_z = b_more
            for s in tl.static_range(SLOTS):
                p_theta = theta + (i_m + s) * stride_tm + o_c[:, None] * stride_tc + o_o[None, :] * stride_to
                b_theta = tl.load(p_theta, mask=m_c[:, None] & m_o[None, :], other=0.0)
                b_y += tl.dot(b_z[s].to(b_theta.dtype), b_theta, input_precision=PRECISION)
    if HAS_SKIP:
        for i_c in range(0, C, BLOCK_C):
            o_c = i_c + tl.arange(0, BLOCK_C)
            m_c = o_c < C
            b_x = tl.load(x + o_v[:, None].to(tl.int64) * C + o_c[None, :], mask=m_v[:, None] & m_c[None, :], other=0.0)
            p_skip = skip + o_c[:, None] * stride_sc + o_o[None, :] * stride_so
            b_y += tl.dot(b_x, tl.load(p_skip, mask=m_c[:, None] & m_o[None, :], other=0.0), input_precision=PRECISION)
    if HAS_BIAS:
        b_y += tl.load(bias + o_o, mask=m_o, other=0.0).to(tl.float32)[None, :]
    o_y = (i_b * num_receivers + o_v[:, None]) * O + o_o[None, :]
    tl.store(y + o_y, b_y.to(y.dtype.element_ty), mask=m_v[:, None] & m_o[None, :])


def convolve_vertices(
    x: Tensor,
    weights: Tensor,
    theta: Tensor,
    neighbours: Tensor,
    order: Tensor | None,
    offsets: Tensor,
    skip: Tensor | None,
    bias: Tensor | None,
    tiles: VertexTiles,
) -> Tensor:
    batch, num_senders, channels = x.shape
    slots, _, out = theta.shape
    num_receivers, grouped = offsets.shape[1] - 1, offsets.shape[0] > 1
    y = x.new_empty(batch, num_receivers, out)
    arguments = (
        x, weights, theta, skip, bias, y, neighbours, order, offsets,
        num_senders, num_receivers, channels, out, slots,
        *_strides(weights), offsets.stride(0), *theta.stride(), *(skip.stride() if skip is not None else (0, 0)),
        order is not None, grouped, skip is not None, bias is not None,
        tiles.slots, tiles.v, tiles.c, tiles.o,
        precision(), needs_wide(x, weights),
    )  # fmt: skip
    launch(
        _convolve_kernel,
        (ceil_div(num_receivers, tiles.v), batch, ceil_div(out, tiles.o)),
        arguments,
        tiles.warps,
        tiles.stages,
    )
    return y


@triton.jit
def _gradients_kernel(
    grad_y, x, weights, theta, grad_theta, grad_weights, senders, offsets,
    batch, num_receivers, C, O, M, num_tiles, num_parts,
    stride_xb, stride_yb, stride_wb, stride_wm, stride_we, stride_og,
    GROUPED: tl.constexpr, NEEDS_THETA: tl.constexpr, NEEDS_WEIGHTS: tl.constexpr, SHARED: tl.constexpr,
    SLOTS: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr,
    PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    i_m, i_p, i_o = tl.program_id(0) * SLOTS, tl.program_id(1), tl.program_id(2)
    o_c = tl.arange(0, BLOCK_C)
    m_c = o_c < C
    o_o = i_o * BLOCK_O + tl.arange(0, BLOCK_O)
    m_o = o_o < O
    b_sum = ()
    for s in tl.static_range(SLOTS):
        b_sum = b_sum + (tl.zeros([BLOCK_C, BLOCK_O], dtype=tl.float32),)
    if GROUPED:
        offsets += i_m * stride_og
    for i_t in range(i_p, num_tiles, num_parts):
        o_v = i_t * BLOCK_V + tl.arange(0, BLOCK_V)
        m_v = o_v < num_receivers
        b_start, b_degree, b_most = _rows(offsets, o_v, m_v, WIDE)
        # Of the programs that share slots and rows, the first writes the gradient of the weights.
        b_own = tl.where(i_o == 0, b_degree, 0)
        p_x, p_w, p_g = x, weights + i_m * stride_wm, grad_weights + i_m * stride_wm
        p_y = grad_y + o_v[:, None].to(tl.int64) * O
        for i_b in range(batch):
            b_z, b_gz = (), ()
            for s in tl.static_range(SLOTS):
                b_z = b_z + (tl.zeros([BLOCK_V, BLOCK_C], dtype=tl.float32),)
                b_gs = tl.zeros([BLOCK_V, BLOCK_C], dtype=tl.float32)
                if NEEDS_WEIGHTS:
                    for i_step in range(0, O, BLOCK_O):
                        o_step = i_step + tl.arange(0, BLOCK_O)
                        m_step = o_step < O
                        b_gy = tl.load(p_y + o_step[None, :], mask=m_v[:, None] & m_step[None, :], other=0.0)
                        p_theta = theta + ((i_m + s) * C + o_c[None, :]) * O + o_step[:, None]
                        m_theta = m_c[None, :] & m_step[:, None]
                        b_theta = tl.load(p_theta, mask=m_theta, other=0.0)
                        b_gs += tl.dot(b_gy, b_theta, input_precision=PRECISION)
                b_gz = b_gz + (in_layout_of_loads(b_gs, BLOCK_V, BLOCK_C),)
            for k in range(b_most):
                m_e = k < b_degree
                o_e = b_start + k
                b_j = tl.load(senders + o_e, mask=m_e, other=0)
                if not WIDE:
                    b_j = b_j.to(tl.int32)
                m_x = (k < b_degree[:, None]) & m_c[None, :]
                b_x = tl.load(p_x + b_j[:, None] * C + o_c[None, :], mask=m_x, other=0.0).to(tl.float32)
                b_more = ()
                for s in tl.static_range(SLOTS):
                    if NEEDS_THETA:
                        b_w = tl.load(p_w + s * stride_wm + o_e * stride_we, mask=m_e, other=0.0)
                        b_more = b_more + (b_z[s] + b_w.to(tl.float32)[:, None] * b_x,)
                    if NEEDS_WEIGHTS:
                        b_gw = tl.sum(b_gz[s] * b_x, axis=1)
                        m_g = k < b_own
                        if SHARED:
                            b_gw += tl.load(p_g + s * stride_wm + o_e * stride_we, mask=m_g, other=0.0)
                        tl.store(p_g + s * stride_wm + o_e * stride_we, b_gw, mask=m_g)
                if NEEDS_THETA:
                    b_z = b_more
            if NEEDS_THETA:
                b_gy = tl.load(p_y + o_o[None, :], mask=m_v[:, None] & m_o[None, :], other=0.0)
                b_more = ()
                for s in tl.static_range(SLOTS):
                    b_zt = tl.trans(b_z[s]).to(b_gy.dtype)
                    b_more = b_more + (b_sum[s] + tl.dot(b_zt, b_gy, input_precision=PRECISION),)
                b_sum = b_more
            if NEEDS_WEIGHTS and SHARED:
                # The next item adds to what this one has written, perhaps from other threads of this program.
                tl.debug_barrier()
            p_x, p_y, p_w, p_g = p_x + stride_xb, p_y + stride_yb, p_w + stride_wb, p_g + stride_wb
    if NEEDS_THETA:
        for s in tl.static_range(SLOTS):
            o_sum = ((i_p.to(tl.int64) * M + i_m + s) * C + o_c[:, None]) * O + o_o[None, :]
            tl.store(grad_theta + o_sum, b_sum[s], mask=m_c[:, None] & m_o[None, :])


def vertex_gradients(
    grad_y: Tensor,
    x: Tensor,
    weights: Tensor,
    theta: Tensor,
    senders: Tensor,
    offsets: Tensor,
    needs_theta: bool,
    needs_weights: bool,
    tiles: VertexTiles,
) -> tuple[Tensor, Tensor]:
    batch, _, channels = x.shape
    slots, _, out = theta.shape
    num_receivers, grouped = offsets.shape[1] - 1, offsets.shape[0] > 1
    num_tiles, chunks = ceil_div(num_receivers, tiles.v), slots // tiles.slots
    parts = max(1, min(num_tiles, ceil_div(tiles.programs, chunks)))
    partial = torch.empty(parts if needs_theta else 0, slots, channels, out, device=x.device, dtype=torch.float32)
    # Items that share their weights add to the same gradients, one after the other.
    grad_weights = torch.zeros_like(weights if needs_weights else weights[:, :0], dtype=torch.float32)
    arguments = (
        grad_y, x, weights, theta, partial, grad_weights, senders, offsets,
        batch, num_receivers, channels, out, slots, num_tiles, parts, x.stride(0), grad_y.stride(0),
        *_strides(weights), offsets.stride(0),
        grouped, needs_theta, needs_weights, weights.shape[2] == 1,
        tiles.slots, tiles.v, tiles.c, tiles.o,
        precision(), needs_wide(x, weights),
    )  # fmt: skip
    launch(
        _gradients_kernel,
        (chunks, parts, ceil_div(out, tiles.o) if needs_theta else 1),
        arguments,
        tiles.warps,
        tiles.stages,
    )
    return partial.sum(0), grad_weights


def _strides(weights: Tensor) -> tuple[int, int, int]:
    """Steps along items, slots and edges of weights [slots or 1, edges, batch or 1]; none where they are shared."""
    slots, edges, batch = weights.shape
    return int(batch > 1), edges * batch if slots > 1 else 0, batch
