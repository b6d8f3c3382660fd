"""Pooling over clusters of vertices and over packed graphs on CUDA: one kernel each way.

A program reads several members of each of its clusters before it combines them: most clusters have few, so that the
time is that of the loads, one after the other. A gradient is gathered by the vertices, not scattered by the clusters.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.pattern import Pattern, sizes_of
from geoskip.kernels.triton.blocks import index_at
from geoskip.kernels.triton.launch import MAX_PROGRAMS, SIZES, ceil_div, launch, power_of_two
from geoskip.kernels.triton.vertices import rows_of

# Numbers in a block of y, and most channels of it.
BLOCK, CHANNELS = 512, 128
# How many members of a cluster, or of a graph, are read at a time.
MEMBERS, VERTICES = 4, 16


@triton.jit(do_not_specialize=SIZES)
def _pool_kernel(
    x, y, counts, senders, offsets, num_senders, num_receivers, C,
    IS_MAX: tl.constexpr, HAS_SENDERS: tl.constexpr, AT_ONCE: tl.constexpr,
    BLOCK_V: tl.constexpr, BLOCK_C: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    i_v, i_b, i_c = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    o_v = i_v * BLOCK_V + tl.arange(0, BLOCK_V)
    m_v = o_v < num_receivers
    o_c = i_c * BLOCK_C + tl.arange(0, BLOCK_C)
    m_c = o_c < C
    x += i_b * num_senders * C
    empty = float("-inf") if IS_MAX else 0.0
    b_y = tl.full([BLOCK_V, BLOCK_C], empty, dtype=tl.float32)
    # How many members are equal to the maximum.
    b_count = tl.zeros([BLOCK_V, BLOCK_C], dtype=tl.int32)
    b_start, b_size, b_most = rows_of(offsets, o_v, m_v, WIDE)
    for k in range(0, b_most, AT_ONCE):
        # In loops of their own, because the compiler leaves loads in their order.
        b_numbers = ()
        for s in tl.static_range(AT_ONCE):
            b_j = b_start + (k + s)
            if HAS_SENDERS:
                b_j = index_at(senders + b_j, k + s < b_size, WIDE)
            b_numbers = b_numbers + (b_j,)
        b_members = ()
        for s in tl.static_range(AT_ONCE):
            # The mask is computed again in two dimensions: shared with the loads above, it breaks Triton 3.6.
            m_x = (k + s < b_size[:, None]) & m_c[None, :]
            p_x = x + b_numbers[s][:, None] * C + o_c[None, :]
            b_members = b_members + (tl.load(p_x, mask=m_x, other=empty).to(tl.float32),)
        if IS_MAX:
            b_top = b_y
            for s in tl.static_range(AT_ONCE):
                b_top = tl.maximum(b_top, b_members[s], propagate_nan=tl.PropagateNan.ALL)
            # NaN is equal to NaN.
            b_count = tl.where((b_y == b_top) | (b_y != b_y), b_count, 0)
            for s in tl.static_range(AT_ONCE):
                is_top = (b_members[s] == b_top) | (b_members[s] != b_members[s])
                b_count += (is_top & (k + s < b_size[:, None])).to(tl.int32)
            b_y = b_top
        else:
            for s in tl.static_range(AT_ONCE):
                b_y += b_members[s]
    m_y = m_v[:, None] & m_c[None, :]
    o_y = (i_b * num_receivers + o_v[:, None]) * C + o_c[None, :]
    if IS_MAX:
        tl.store(counts + o_y, b_count, mask=m_y)
    else:
        b_y = b_y / tl.maximum(b_size, 1).to(tl.float32)[:, None]
    tl.store(y + o_y, b_y.to(y.dtype.element_ty), mask=m_y)


def _pool(x: Tensor, senders: Tensor | None, offsets: Tensor, is_max: bool) -> tuple[Tensor, Tensor | None]:
    """The maximum of each segment and how many members are equal to it, or the mean and None. Without ``senders``, a
    segment has the vertices ``offsets[s] : offsets[s + 1]``."""
    batch, num_senders, channels = sizes_of(x)
    num_receivers = offsets.shape[-1] - 1
    y = x.new_empty(*x.shape[:-2], num_receivers, channels)
    counts = torch.empty(y.shape, dtype=torch.int32, device=x.device) if is_max else None
    if y.numel():
        block_v, block_c = _block(channels)
        # Graphs have many vertices: a program sums those of one.
        block_v, at_once, warps = (1, VERTICES, 1) if senders is None else (block_v, MEMBERS, 4)
        grid = ceil_div(num_receivers, block_v), batch, ceil_div(channels, block_c)
        arguments = x, y, counts, senders, offsets, num_senders, num_receivers, channels
        constants = is_max, senders is not None, at_once, block_v, block_c, _is_wide(x, y)
        launch(_pool_kernel, grid, (*arguments, *constants), warps)
    return y, counts


@triton.jit(do_not_specialize=SIZES)
def _pool_gradients_kernel(
    grad_y, x, y, counts, grad_x, receivers, order, offsets, sender_offsets, num_senders, num_receivers, C,
    IS_MAX: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_C: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    i_v, i_b, i_c = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    o_v = i_v * BLOCK_V + tl.arange(0, BLOCK_V)
    m_v = o_v < num_senders
    o_c = i_c * BLOCK_C + tl.arange(0, BLOCK_C)
    m_c = o_c < C
    m_x = m_v[:, None] & m_c[None, :]
    o_x = (i_b * num_senders + o_v[:, None]) * C + o_c[None, :]
    if IS_MAX:
        b_x = tl.load(x + o_x, mask=m_x, other=0.0).to(tl.float32)
        y += i_b * num_receivers * C
        counts += i_b * num_receivers * C
    grad_y += i_b * num_receivers * C
    b_gx = tl.zeros([BLOCK_V, BLOCK_C], dtype=tl.float32)
    b_start, b_degree, b_most = rows_of(sender_offsets, o_v, m_v, WIDE)
    for k in range(b_most):
        m_e = k < b_degree
        b_e = index_at(order + b_start + k, m_e, WIDE)
        b_i = index_at(receivers + b_e, m_e, WIDE)
        o_y = b_i[:, None] * C + o_c[None, :]
        m_y = (k < b_degree[:, None]) & m_c[None, :]
        b_gy = tl.load(grad_y + o_y, mask=m_y, other=0.0).to(tl.float32)
        if IS_MAX:
            b_y = tl.load(y + o_y, mask=m_y, other=0.0).to(tl.float32)
            b_count = tl.load(counts + o_y, mask=m_y, other=1).to(tl.float32)
            b_gx += tl.where((b_x == b_y) | (b_x != b_x), b_gy / b_count, 0.0)
        else:
            b_end = tl.load(offsets + b_i + 1, mask=m_e, other=1)
            b_size = (b_end - tl.load(offsets + b_i, mask=m_e, other=0)).to(tl.float32)
            b_gx += b_gy / b_size[:, None]
    tl.store(grad_x + o_x, b_gx.to(grad_x.dtype.element_ty), mask=m_x)


def _pool_gradients(grad_y: Tensor, x: Tensor, pattern: Pattern, maxima: tuple[Tensor, Tensor] | None) -> Tensor:
    """The gradient of x; ``maxima`` are y and the numbers of members that are equal to it, None for the mean."""
    batch, num_senders, channels = sizes_of(x)
    grad_x = torch.empty_like(x)
    if grad_x.numel():
        block_v, block_c = _block(channels)
        grid = ceil_div(num_senders, block_v), batch, ceil_div(channels, block_c)
        grad_y, (y, counts) = grad_y.contiguous(), maxima or (None, None)
        arguments = (
            grad_y, None if maxima is None else x, y, counts, grad_x, pattern.receivers, pattern.by_sender,
            pattern.offsets, pattern.sender_offsets, num_senders, pattern.num_receivers, channels,
            maxima is not None, block_v, block_c, _is_wide(x, grad_y),
        )  # fmt: skip
        launch(_pool_gradients_kernel, grid, arguments)
    return grad_x


@triton.jit(do_not_specialize=SIZES)
def _segment_gradients_kernel(
    grad_y, grad_x, offsets, num_receivers, num_vertices, C, BLOCK_V: tl.constexpr, BLOCK_C: tl.constexpr
):
    i_s, i_p, i_b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    # The programs after those of the last segment write 0 for the vertices that are in none.
    i_start, i_end = tl.load(offsets + i_s), tl.load(offsets + tl.minimum(i_s + 1, num_receivers))
    i_end = tl.where(i_s < num_receivers, i_end, num_vertices)
    num_channels = tl.where(i_s < num_receivers, C, 0)
    i_size = tl.maximum(i_end - i_start, 1).to(tl.float32)
    for i_c in range(0, C, BLOCK_C):
        o_c = i_c + tl.arange(0, BLOCK_C)
        m_c = o_c < C
        b_gy = tl.load(grad_y + (i_b * num_receivers + i_s) * C + o_c, mask=o_c < num_channels, other=0.0)
        b_gx = (b_gy.to(tl.float32) / i_size).to(grad_x.dtype.element_ty)
        for k in range(i_start + i_p * BLOCK_V, i_end, tl.num_programs(1) * BLOCK_V):
            o_v = k + tl.arange(0, BLOCK_V)
            o_x = (i_b * num_vertices + o_v[:, None]) * C + o_c[None, :]
            m_x = (o_v < i_end)[:, None] & m_c[None, :]
            tl.store(grad_x + o_x, tl.broadcast_to(b_gx[None, :], [BLOCK_V, BLOCK_C]), mask=m_x)


def _block(channels: int) -> tuple[int, int]:
    """Rows and channels of a block."""
    block_c = power_of_two(channels, 1, CHANNELS)
    return BLOCK // block_c, block_c


def _is_wide(x: Tensor, y: Tensor) -> bool:
    """Whether offsets need 64 bits; 32 are faster."""
    return max(x.numel(), y.numel()) >= 2**31


def max_pool(x: Tensor, pattern: Pattern) -> tuple[Tensor, Tensor | None]:
    return _pool(x, pattern.senders, pattern.offsets, True)


def max_pool_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, pattern: Pattern, counts: Tensor, y: Tensor
) -> tuple[Tensor | None, ...]:
    return _pool_gradients(grad_y, x, pattern, (y, counts)), None


def mean_pool(x: Tensor, pattern: Pattern) -> Tensor:
    return _pool(x, pattern.senders, pattern.offsets, False)[0]


def mean_pool_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, pattern: Pattern
) -> tuple[Tensor | None, ...]:
    return _pool_gradients(grad_y, x, pattern, None), None


def segment_mean(x: Tensor, offsets: Tensor) -> Tensor:
    return _pool(x, None, offsets, False)[0]


def segment_mean_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, offsets: Tensor
) -> tuple[Tensor | None, ...]:
    batch, num_vertices, channels = sizes_of(x)
    num_segments, grad_x = len(offsets) - 1, torch.empty_like(x)
    if grad_x.numel():
        block_v, block_c = _block(channels)
        programs = min(MAX_PROGRAMS, max(1, ceil_div(ceil_div(num_vertices, block_v), max(num_segments, 1))))
        arguments = grad_y.contiguous(), grad_x, offsets, num_segments, num_vertices, channels, block_v, block_c
        launch(_segment_gradients_kernel, (num_segments + 1, programs, batch), arguments)
    return grad_x, None
