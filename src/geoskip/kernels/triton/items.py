r"""Basis convolution and its gradients for a batch that shares one graph: a program owns one vertex of many items.

The rows of a program's blocks are the items, so the edge, its neighbor and its weight are the same for all rows: they
are read once, nothing is padded, and no row waits for another with more neighbors.

For the gradients, with :math:`h_m = \sum_i w_m(i,j)\, \bar y_i` over the edges out of a sender j and
:math:`u_m = x_j \Theta_m`:

.. math:: \bar x_j = \sum_m h_m \Theta_m^\top, \qquad \bar w_m(i,j) = \langle u_m, \bar y_i \rangle,

so one pass over the gradients of y gives both. The gradient of Θ is a sum over the receivers, whose z is computed
again.
"""

from __future__ import annotations

import triton
import triton.language as tl

from geoskip.kernels.triton.blocks import (
    as_index,
    features_of,
    from_center,
    in_layout_of_loads,
    index_at,
    plus_transposed_products,
    plus_weighted,
    product,
    product_of_parts,
    relu,
    weights_of,
    zeros_of,
)
from geoskip.kernels.triton.launch import SIZES, ConvolutionSizes, LaunchPlan, Tiles, ceil_div, shares


@triton.jit
def slot_stride(num_edges, stride_we):
    """From one slot of the weights to the next: one for each edge, or with ``stride_we`` one for each edge and item.
    As an argument, it would be divisible by 16 in some graphs, and the kernel would be compiled again for them."""
    return tl.cast(num_edges, tl.int64) * stride_we


@triton.jit
def _plus_neighbors(
    b_z, p_b, p_w, neighbors, order, i_first, i_last, o_c, C, o_b, m_b, stride_we, stride_wm,
    HAS_ORDER: tl.constexpr, PER_ITEM: tl.constexpr, SLOTS: tl.constexpr, PARTS: tl.constexpr, WIDTH: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """z plus the weighted features of the neighbors."""
    for i_k in range(i_first, i_last):
        i_e = as_index(tl.load(order + i_k), WIDE) if HAS_ORDER else i_k
        i_j = as_index(tl.load(neighbors + i_e), WIDE)
        b_x = features_of(p_b + i_j * C, o_c, C, m_b, WIDTH, PARTS)
        b_w = weights_of(p_w + i_e * stride_we, stride_wm, o_b, m_b, PER_ITEM, SLOTS)
        b_z = plus_weighted(b_z, b_w, b_x, SLOTS, PARTS)
    return b_z


@triton.jit
def _plus_products(
    b_y, b_z, theta, i_m, o_c, C, o_o, m_o, stride_tm, stride_tc, stride_to,
    SLOTS: tl.constexpr, PARTS: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """y plus the products of z with Θ."""
    for s in tl.static_range(SLOTS):
        b_theta = ()
        for p in tl.static_range(PARTS):
            o_p = o_c + p * WIDTH
            p_theta = theta + (i_m + s) * stride_tm + o_p[:, None] * stride_tc + o_o[None, :] * stride_to
            b_theta = b_theta + (tl.load(p_theta, mask=(o_p < C)[:, None] & m_o[None, :], other=0.0),)
        b_y += product_of_parts(b_z, b_theta, s * PARTS, PARTS, PRECISION)
    return b_y


@triton.jit(do_not_specialize=SIZES)
def _convolve_kernel(
    x, weights, theta, skip, bias, epsilon, y, neighbors, order, offsets,
    batch, num_senders, num_receivers, C, O, M,
    num_edges, stride_we, stride_og, stride_tm, stride_tc, stride_to, stride_sc, stride_so,
    HAS_ORDER: tl.constexpr, GROUPED: tl.constexpr, HAS_SKIP: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_CENTER: tl.constexpr, RELU: tl.constexpr,
    PER_ITEM: tl.constexpr, SLOTS: tl.constexpr, PARTS: tl.constexpr, WIDE: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    WIDTH: tl.constexpr = BLOCK_C // PARTS
    stride_wm = slot_stride(num_edges, stride_we)
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
            if HAS_CENTER:
                p_own = p_b + i_v.to(tl.int64) * C + o_c[None, :]
                b_z = from_center(epsilon, p_own, m_b[:, None] & (o_c < C)[None, :])
            b_z = _plus_neighbors(
                b_z, p_b, p_w, neighbors, order, i_first, i_last, o_c, C, o_b, m_b, stride_we, stride_wm,
                HAS_ORDER, PER_ITEM, SLOTS, PARTS, WIDTH, WIDE,
            )  # fmt: skip
            b_y = _plus_products(
                b_y, b_z, theta, i_m, o_c, C, o_o, m_o, stride_tm, stride_tc, stride_to, SLOTS, PARTS, WIDTH, PRECISION
            )
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
    if RELU:
        b_y = relu(b_y)
    o_y = (o_b[:, None].to(tl.int64) * num_receivers + i_v) * O + o_o[None, :]
    tl.store(y + o_y, b_y.to(y.dtype.element_ty), mask=m_b[:, None] & m_o[None, :])


def convolve_plan(
    sizes: ConvolutionSizes, tiles: Tiles, precision: str, has_order: bool, has_bias: bool, has_center: bool, relu: bool
) -> LaunchPlan:
    """Of x, weights, Θ, skip, bias, ε, y, neighbors, order, offsets, as in :mod:`.vertices`."""
    numbers = (
        sizes.batch, sizes.num_senders, sizes.num_receivers, sizes.channels, sizes.out, sizes.slots,
        *sizes.slot_edges, sizes.group_stride, *sizes.theta_strides, *(sizes.skip_strides or (0, 0)),
        has_order, sizes.grouped, sizes.skip_strides is not None, has_bias, has_center, relu,
        sizes.per_item, tiles.slots, tiles.parts, sizes.wide, tiles.rows, tiles.c, tiles.o, precision,
    )  # fmt: skip
    grid = (sizes.num_receivers, ceil_div(sizes.batch, tiles.rows), ceil_div(sizes.out, tiles.o))
    return LaunchPlan(_convolve_kernel, grid, numbers, tiles.warps, tiles.registers)


@triton.jit(do_not_specialize=SIZES)
def _sender_gradients_kernel(
    grad_y, x, weights, theta, skip, epsilon, grad_x, grad_weights, receivers, order, offsets,
    batch, num_senders, num_receivers, C, O, M,
    num_edges, stride_we, stride_gb, stride_og,
    GROUPED: tl.constexpr, HAS_SKIP: tl.constexpr, HAS_CENTER: tl.constexpr, NEEDS_X: tl.constexpr,
    PER_ITEM: tl.constexpr, SLOTS: tl.constexpr, PARTS: tl.constexpr, WIDE: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    WIDTH: tl.constexpr = BLOCK_O // PARTS
    stride_wm = slot_stride(num_edges, stride_we)
    i_v, i_b = tl.program_id(0), tl.program_id(1)
    o_b = i_b * BLOCK_B + tl.arange(0, BLOCK_B)
    m_b = o_b < batch
    o_c = tl.arange(0, BLOCK_C)
    m_c = o_c < C
    o_o = tl.arange(0, WIDTH)
    o_part = i_b.to(tl.int64) * stride_gb
    p_y = grad_y + o_b[:, None].to(tl.int64) * num_receivers * O
    o_x = (o_b[:, None].to(tl.int64) * num_senders + i_v) * C + o_c[None, :]
    m_x = m_b[:, None] & m_c[None, :]
    b_own = tl.load(x + o_x, mask=m_x, other=0.0)
    b_gx = tl.zeros([BLOCK_B, BLOCK_C], dtype=tl.float32)
    for i_m in range(0, M, SLOTS):
        o_row = i_v + (i_m * stride_og if GROUPED else 0)
        i_first, i_last = as_index(tl.load(offsets + o_row), WIDE), as_index(tl.load(offsets + o_row + 1), WIDE)
        o_m = tl.cast(i_m, tl.int64) * stride_wm
        b_u = ()
        for s in tl.static_range(SLOTS):
            for p in tl.static_range(PARTS):
                o_p = o_o + p * WIDTH
                p_theta = theta + ((i_m + s) * C + o_c[:, None]) * O + o_p[None, :]
                b_theta = tl.load(p_theta, mask=m_c[:, None] & (o_p < O)[None, :], other=0.0)
                b_u = b_u + (in_layout_of_loads(product(b_own, b_theta, PRECISION), BLOCK_B, WIDTH),)
        b_h = zeros_of(SLOTS * PARTS, BLOCK_B, WIDTH)
        if HAS_CENTER:
            b_h = from_center(epsilon, p_y + i_v.to(tl.int64) * O + o_o[None, :], m_b[:, None] & (o_o < O)[None, :])
        for i_k in range(i_first, i_last):
            i_e = as_index(tl.load(order + i_k), WIDE)
            i_i = as_index(tl.load(receivers + i_e), WIDE)
            b_gy = features_of(p_y + i_i * O, o_o, O, m_b, WIDTH, PARTS)
            b_w = weights_of(weights + o_m + i_e * stride_we, stride_wm, o_b, m_b, PER_ITEM, SLOTS)
            b_h = plus_weighted(b_h, b_w, b_gy, SLOTS, PARTS)
            p_gw = grad_weights + o_m + i_e * stride_we
            for s in tl.static_range(SLOTS):
                b_dot = b_u[s * PARTS] * b_gy[0]
                for p in tl.static_range(1, PARTS):
                    b_dot += b_u[s * PARTS + p] * b_gy[p]
                if PER_ITEM:
                    tl.store(p_gw + tl.cast(s, tl.int64) * stride_wm + o_b, tl.sum(b_dot, axis=1), mask=m_b)
                else:
                    tl.store(p_gw + tl.cast(s, tl.int64) * stride_wm + o_part, tl.sum(b_dot))
        if NEEDS_X:
            for s in tl.static_range(SLOTS):
                b_theta = ()
                for p in tl.static_range(PARTS):
                    o_p = o_o + p * WIDTH
                    p_theta = theta + ((i_m + s) * C + o_c[None, :]) * O + o_p[:, None]
                    b_theta = b_theta + (tl.load(p_theta, mask=m_c[None, :] & (o_p < O)[:, None], other=0.0),)
                b_gx += product_of_parts(b_h, b_theta, s * PARTS, PARTS, PRECISION)
    if NEEDS_X:
        if HAS_SKIP:
            o_o = tl.arange(0, BLOCK_O)
            m_o = o_o < O
            p_own = p_y + i_v.to(tl.int64) * O + o_o[None, :]
            b_own = tl.load(p_own, mask=m_b[:, None] & m_o[None, :], other=0.0)
            p_skip = skip + o_c[None, :] * O + o_o[:, None]
            b_gx += product(b_own, tl.load(p_skip, mask=m_c[None, :] & m_o[:, None], other=0.0), PRECISION)
        tl.store(grad_x + o_x, b_gx.to(grad_x.dtype.element_ty), mask=m_x)


def sender_gradients_plan(
    sizes: ConvolutionSizes, tiles: Tiles, precision: str, has_center: bool, needs_x: bool
) -> tuple[LaunchPlan, int]:
    """Of grad_y, x, weights, Θ, skip, ε, two outputs, receivers, order, offsets. Gradients of x, if needed, and of the
    weights, the latter in as many parts as are returned if items share them. Θ and the skip are contiguous."""
    blocks = ceil_div(sizes.batch, tiles.rows)
    numbers = (
        sizes.batch, sizes.num_senders, sizes.num_receivers, sizes.channels, sizes.out, sizes.slots,
        *sizes.slot_edges, sizes.num_weights, sizes.sender_group_stride,
        sizes.grouped, sizes.skip_strides is not None, has_center, needs_x, sizes.per_item,
        tiles.slots, tiles.parts, sizes.wide, tiles.rows, tiles.c, tiles.o, precision,
    )  # fmt: skip
    plan = LaunchPlan(_sender_gradients_kernel, (sizes.num_senders, blocks), numbers, tiles.warps, tiles.registers)
    return plan, 1 if sizes.per_item else blocks


@triton.jit
def _own_gradients(
    grad_y, x, grad_skip, grad_bias, i_start, i_end, i_part, o_c, o_o, m_b, C, O, stride_sc, stride_so,
    NEEDS_SKIP: tl.constexpr, NEEDS_BIAS: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A part of the gradients of the skip and of the bias; the pointers are those of the first vertex."""
    m_c, m_o = o_c < C, o_o < O
    b_skip = tl.zeros([BLOCK_C, BLOCK_O], dtype=tl.float32)
    b_bias = tl.zeros([BLOCK_B, BLOCK_O], dtype=tl.float32)
    for i_v in range(i_start, i_end):
        b_gy = tl.load(grad_y + i_v * O, mask=m_b[:, None] & m_o[None, :], other=0.0)
        if NEEDS_SKIP:
            b_x = tl.load(x + i_v * C + o_c[None, :], mask=m_b[:, None] & m_c[None, :], other=0.0)
            b_skip += product(tl.trans(b_x).to(b_gy.dtype), b_gy, PRECISION)
        if NEEDS_BIAS:
            b_bias += b_gy.to(tl.float32)
    if NEEDS_SKIP:
        o_skip = i_part * C * O + o_c[:, None] * stride_sc + o_o[None, :] * stride_so
        tl.store(grad_skip + o_skip, b_skip, mask=m_c[:, None] & m_o[None, :])
    if NEEDS_BIAS:
        tl.store(grad_bias + i_part * O + o_o, tl.sum(b_bias, axis=0), mask=m_o)


@triton.jit(do_not_specialize=SIZES)
def _theta_gradients_kernel(
    grad_y, x, weights, epsilon, grad_theta, grad_skip, grad_bias, senders, offsets,
    batch, num_senders, num_receivers, C, O, M, num_parts,
    num_edges, stride_we, stride_og, stride_tm, stride_tc, stride_to, stride_sc, stride_so,
    GROUPED: tl.constexpr, HAS_CENTER: tl.constexpr, NEEDS_SKIP: tl.constexpr, NEEDS_BIAS: tl.constexpr,
    APART: tl.constexpr, PER_ITEM: tl.constexpr, SLOTS: tl.constexpr, WIDE: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    stride_wm = slot_stride(num_edges, stride_we)
    i_m, i_p, i_b = tl.program_id(0) * SLOTS, tl.program_id(1), tl.program_id(2)
    o_b = i_b * BLOCK_B + tl.arange(0, BLOCK_B)
    m_b = o_b < batch
    o_c = tl.arange(0, BLOCK_C)
    o_o = tl.arange(0, BLOCK_O)
    m_o = o_o < O
    p_x = x + o_b[:, None].to(tl.int64) * num_senders * C
    p_y = grad_y + o_b[:, None].to(tl.int64) * num_receivers * O + o_o[None, :]
    m_y = m_b[:, None] & m_o[None, :]
    p_w = weights + tl.cast(i_m, tl.int64) * stride_wm
    # The receivers of a program are consecutive, and so are their edges: the next sender is read ahead.
    i_start = i_p.to(tl.int64) * num_receivers // num_parts
    i_end = (i_p + 1).to(tl.int64) * num_receivers // num_parts
    i_start, i_end = as_index(i_start, WIDE), as_index(i_end, WIDE)
    i_part = (i_b * num_parts + i_p).to(tl.int64)
    m_out = (o_c < C)[:, None] & m_o[None, :]
    if APART:
        # The programs after those of the last slot have none.
        if i_m >= M:
            _own_gradients(
                p_y, p_x, grad_skip, grad_bias, i_start, i_end, i_part, o_c, o_o, m_b, C, O, stride_sc, stride_so,
                NEEDS_SKIP, NEEDS_BIAS, BLOCK_B, BLOCK_C, BLOCK_O, PRECISION,
            )  # fmt: skip
        m_out = (o_c < tl.where(i_m < M, C, 0))[:, None] & m_o[None, :]
        i_end = tl.where(i_m < M, i_end, i_start)
        i_m = tl.where(i_m < M, i_m, 0)
    p_first = offsets + (i_m * stride_og if GROUPED else 0)
    i_k, i_most = as_index(tl.load(p_first + i_start), WIDE), as_index(tl.load(p_first + i_end), WIDE)
    i_j = index_at(senders + i_k, i_k < i_most, WIDE)
    b_sum = zeros_of(SLOTS, BLOCK_C, BLOCK_O)
    # Never read where it is not needed.
    b_bias = tl.zeros([BLOCK_B, BLOCK_O], dtype=tl.float32)
    m_own = m_b[:, None] & (o_c < C)[None, :]
    for i_v in range(i_start, i_end):
        # Read again for each vertex: bounds carried from one to the next are dropped by Triton 3.6.
        i_first, i_last = as_index(tl.load(p_first + i_v), WIDE), as_index(tl.load(p_first + i_v + 1), WIDE)
        b_gy = tl.load(p_y + i_v * O, mask=m_y, other=0.0)
        b_z = zeros_of(SLOTS, BLOCK_B, BLOCK_C)
        if HAS_CENTER:
            b_z = from_center(epsilon, p_x + i_v * C + o_c[None, :], m_own)
        for i_e in range(i_first, i_last):
            i_next = index_at(senders + i_e + 1, i_e + 1 < i_most, WIDE)
            b_x = features_of(p_x + i_j * C, o_c, C, m_b, BLOCK_C, 1)
            b_w = weights_of(p_w + i_e * stride_we, stride_wm, o_b, m_b, PER_ITEM, SLOTS)
            b_z = plus_weighted(b_z, b_w, b_x, SLOTS, 1)
            i_j = i_next
        b_sum = plus_transposed_products(b_sum, b_z, b_gy, SLOTS, PRECISION)
        if NEEDS_BIAS and not APART:
            b_bias += b_gy.to(tl.float32)
    o_theta = i_part * M * C * O + o_c[:, None] * stride_tc + o_o[None, :] * stride_to
    for s in tl.static_range(SLOTS):
        tl.store(grad_theta + o_theta + (i_m + s) * stride_tm, b_sum[s], mask=m_out)
    if NEEDS_BIAS and not APART:
        tl.store(grad_bias + i_part * O + o_o, tl.sum(b_bias, axis=0), mask=m_o)


def theta_gradients_plan(
    sizes: ConvolutionSizes, tiles: Tiles, precision: str, has_center: bool, needs_skip: bool, needs_bias: bool
) -> tuple[LaunchPlan, int]:
    """Of grad_y, x, weights, ε, three outputs, senders, offsets, as in :mod:`.vertices`. The gradient of Θ in parts,
    whose number is returned. Only with one slot can those of the skip and of the bias be needed, too. A program of one
    warp has no registers left for the gradient of the skip."""
    apart = needs_skip
    blocks, chunks = ceil_div(sizes.batch, tiles.rows), sizes.slots // tiles.slots
    parts = shares(sizes.num_receivers, tiles.programs, chunks * blocks)
    numbers = (
        sizes.batch, sizes.num_senders, sizes.num_receivers, sizes.channels, sizes.out, sizes.slots, parts,
        *sizes.slot_edges, sizes.group_stride, *sizes.theta_strides, *(sizes.skip_strides or (0, 0)),
        sizes.grouped, has_center, needs_skip, needs_bias, apart,
        sizes.per_item, tiles.slots, sizes.wide, tiles.rows, tiles.c, tiles.o, precision,
    )  # fmt: skip
    plan = LaunchPlan(_theta_gradients_kernel, (chunks + apart, parts, blocks), numbers, tiles.warps, tiles.registers)
    return plan, blocks * parts
