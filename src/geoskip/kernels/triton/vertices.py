"""Basis convolution and its gradients for single items and small batches: a program owns a tile of vertices of one
item."""

from __future__ import annotations

import triton
import triton.language as tl

from geoskip.kernels.reference import FLOOR
from geoskip.kernels.triton.blocks import (
    as_index,
    from_center,
    in_layout_of_loads,
    index_at,
    plus_transposed_products,
    product,
    relu,
    zeros_of,
)
from geoskip.kernels.triton.gaussians import gaussian_sums
from geoskip.kernels.triton.launch import SIZES, ConvolutionSizes, LaunchPlan, Tiles, ceil_div, shares


@triton.jit
def rows_of(offsets, o_v, m_v, WIDE: tl.constexpr):
    """First edge and number of edges of each row of a tile, and the largest number."""
    b_start = tl.load(offsets + o_v, mask=m_v, other=0)
    # In 64 bits where the starts are: Triton 3.6 fails on larger tiles if k is compared in 32 and added in 64.
    b_degree = (tl.load(offsets + o_v + 1, mask=m_v, other=0) - b_start).to(tl.int64 if WIDE else tl.int32)
    return as_index(b_start, WIDE), b_degree, tl.max(b_degree, axis=0)


@triton.jit
def slot_offset(i_m, stride_wm, WIDE: tl.constexpr):
    """The position of a slot's first weight."""
    return tl.cast(i_m, tl.int64) * stride_wm if WIDE else i_m * stride_wm


@triton.jit
def _plus_neighbors(
    b_z, x, weights, neighbors, order, b_start, b_degree, b_most, o_c, m_c, C, i_m, stride_wm, stride_we,
    HAS_ORDER: tl.constexpr, SLOTS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """z plus the weighted features of the neighbors."""
    for k in range(b_most):
        m_e = k < b_degree
        o_e = b_start + k
        if HAS_ORDER:
            o_e = tl.load(order + o_e, mask=m_e, other=0)
        b_j = index_at(neighbors + o_e, m_e, WIDE)
        o_e = as_index(o_e, WIDE)
        # The mask is computed again in two dimensions: shared with the loads above, it breaks Triton 3.6.
        m_x = (k < b_degree[:, None]) & m_c[None, :]
        b_x = tl.load(x + b_j[:, None] * C + o_c[None, :], mask=m_x, other=0.0).to(tl.float32)
        b_more = ()
        for s in tl.static_range(SLOTS):
            p_w = weights + slot_offset(i_m + s, stride_wm, WIDE)
            b_w = tl.load(p_w + o_e * stride_we, mask=m_e, other=0.0)
            b_more = b_more + (b_z[s] + b_w.to(tl.float32)[:, None] * b_x,)
        b_z = b_more
    return b_z


@triton.jit
def _plus_products(
    b_y, b_z, theta, i_m, o_c, m_c, o_o, m_o, stride_tm, stride_tc, stride_to,
    SLOTS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """y plus the products of z with Θ."""
    for s in tl.static_range(SLOTS):
        p_theta = theta + (i_m + s) * stride_tm + o_c[:, None] * stride_tc + o_o[None, :] * stride_to
        b_theta = tl.load(p_theta, mask=m_c[:, None] & m_o[None, :], other=0.0)
        b_y += product(b_z[s].to(b_theta.dtype), b_theta, PRECISION)
    return b_y


@triton.jit(do_not_specialize=(*SIZES, "stride_wb", "stride_wm"))
def _convolve_kernel(
    x, weights, theta, skip, bias, epsilon, y, neighbors, order, offsets,
    num_senders, num_receivers, C, O, M,
    stride_wb, stride_wm, stride_we, stride_og, stride_tm, stride_tc, stride_to, stride_sc, stride_so,
    HAS_ORDER: tl.constexpr, GROUPED: tl.constexpr, HAS_SKIP: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_CENTER: tl.constexpr, RELU: tl.constexpr,
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
    b_start, b_degree, b_most = rows_of(offsets, o_v, m_v, WIDE)
    for i_m in range(0, M, SLOTS):
        if GROUPED:
            b_start, b_degree, b_most = rows_of(offsets + i_m * stride_og, o_v, m_v, WIDE)
        for i_c in range(0, C, BLOCK_C):
            o_c = i_c + tl.arange(0, BLOCK_C)
            m_c = o_c < C
            b_z = zeros_of(SLOTS, BLOCK_V, BLOCK_C)
            if HAS_CENTER:
                p_own = x + o_v[:, None].to(tl.int64) * C + o_c[None, :]
                b_z = from_center(epsilon, p_own, m_v[:, None] & m_c[None, :])
            b_z = _plus_neighbors(
                b_z, x, weights, neighbors, order, b_start, b_degree, b_most, o_c, m_c, C, i_m, stride_wm, stride_we,
                HAS_ORDER, SLOTS, WIDE,
            )  # fmt: skip
            b_y = _plus_products(
                b_y, b_z, theta, i_m, o_c, m_c, o_o, m_o, stride_tm, stride_tc, stride_to, SLOTS, PRECISION
            )
    if HAS_SKIP:
        for i_c in range(0, C, BLOCK_C):
            o_c = i_c + tl.arange(0, BLOCK_C)
            m_c = o_c < C
            b_x = tl.load(x + o_v[:, None].to(tl.int64) * C + o_c[None, :], mask=m_v[:, None] & m_c[None, :], other=0.0)
            p_skip = skip + o_c[:, None] * stride_sc + o_o[None, :] * stride_so
            b_y += product(b_x, tl.load(p_skip, mask=m_c[:, None] & m_o[None, :], other=0.0), PRECISION)
    if HAS_BIAS:
        b_y += tl.load(bias + o_o, mask=m_o, other=0.0).to(tl.float32)[None, :]
    if RELU:
        b_y = relu(b_y)
    o_y = (i_b * num_receivers + o_v[:, None]) * O + o_o[None, :]
    tl.store(y + o_y, b_y.to(y.dtype.element_ty), mask=m_v[:, None] & m_o[None, :])


def convolve_plan(
    sizes: ConvolutionSizes, tiles: Tiles, precision: str, has_order: bool, has_bias: bool, has_center: bool, relu: bool
) -> LaunchPlan:
    """Of x, weights, Θ, skip, bias, ε, y, neighbors, order, offsets. With ε, every vertex has one more neighbor in its
    only slot: itself, of weight 1 + ε."""
    numbers = (
        sizes.num_senders, sizes.num_receivers, sizes.channels, sizes.out, sizes.slots,
        *sizes.weight_strides, sizes.group_stride, *sizes.theta_strides, *(sizes.skip_strides or (0, 0)),
        has_order, sizes.grouped, sizes.skip_strides is not None, has_bias, has_center, relu,
        tiles.slots, tiles.rows, tiles.c, tiles.o, precision, sizes.wide,
    )  # fmt: skip
    grid = (ceil_div(sizes.num_receivers, tiles.rows), sizes.batch, ceil_div(sizes.out, tiles.o))
    return LaunchPlan(_convolve_kernel, grid, numbers, tiles.warps, tiles.registers)


@triton.jit
def _own_gradients(
    grad_y, x, grad_skip, grad_bias, i_p, o_c, o_o, batch, num_receivers, C, O, num_tiles, num_parts,
    stride_xb, stride_yb, stride_sc, stride_so, NEEDS_SKIP: tl.constexpr, NEEDS_BIAS: tl.constexpr,
    BLOCK_V: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A part of the gradients of the skip and of the bias."""
    m_c, m_o = o_c < C, o_o < O
    b_skip = tl.zeros([BLOCK_C, BLOCK_O], dtype=tl.float32)
    b_bias = tl.zeros([BLOCK_V, BLOCK_O], dtype=tl.float32)
    for i_t in range(i_p, num_tiles, num_parts):
        o_v = i_t * BLOCK_V + tl.arange(0, BLOCK_V)
        m_v = o_v < num_receivers
        p_x = x + o_v[:, None].to(tl.int64) * C + o_c[None, :]
        p_y = grad_y + o_v[:, None].to(tl.int64) * O + o_o[None, :]
        for _ in range(batch):
            b_gy = tl.load(p_y, mask=m_v[:, None] & m_o[None, :], other=0.0)
            if NEEDS_SKIP:
                b_x = tl.load(p_x, mask=m_v[:, None] & m_c[None, :], other=0.0)
                b_skip += product(tl.trans(b_x).to(b_gy.dtype), b_gy, PRECISION)
            if NEEDS_BIAS:
                b_bias += b_gy.to(tl.float32)
            p_x, p_y = p_x + stride_xb, p_y + stride_yb
    if NEEDS_SKIP:
        o_skip = i_p.to(tl.int64) * C * O + o_c[:, None] * stride_sc + o_o[None, :] * stride_so
        tl.store(grad_skip + o_skip, b_skip, mask=m_c[:, None] & m_o[None, :])
    if NEEDS_BIAS:
        tl.store(grad_bias + i_p * O + o_o, tl.sum(b_bias, axis=0), mask=m_o)


@triton.jit(do_not_specialize=(*SIZES, "stride_wb", "stride_wm"))
def _theta_gradients_kernel(
    grad_y, x, weights, epsilon, grad_theta, grad_skip, grad_bias, senders, offsets,
    batch, num_receivers, C, O, M, num_tiles, num_parts,
    stride_xb, stride_yb, stride_wb, stride_wm, stride_we, stride_og, stride_tm, stride_tc, stride_to,
    stride_sc, stride_so,
    GROUPED: tl.constexpr, HAS_CENTER: tl.constexpr, NEEDS_SKIP: tl.constexpr, NEEDS_BIAS: tl.constexpr,
    APART: tl.constexpr, SLOTS: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr,
    PRECISION: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    i_m, i_p, i_o = tl.program_id(0) * SLOTS, tl.program_id(1), tl.program_id(2)
    o_c = tl.arange(0, BLOCK_C)
    m_c = o_c < C
    o_o = i_o * BLOCK_O + tl.arange(0, BLOCK_O)
    m_o = o_o < O
    b_sum = zeros_of(SLOTS, BLOCK_C, BLOCK_O)
    # Where nothing is needed, these are never read.
    b_skip = tl.zeros([BLOCK_C, BLOCK_O], dtype=tl.float32)
    b_bias = tl.zeros([BLOCK_V, BLOCK_O], dtype=tl.float32)
    if GROUPED:
        offsets += i_m * stride_og
    m_out = m_c[:, None] & m_o[None, :]
    last_tile = num_tiles
    if APART:
        # The programs after those of the last slot have none.
        if i_m >= M:
            _own_gradients(
                grad_y, x, grad_skip, grad_bias, i_p, o_c, o_o, batch, num_receivers, C, O, num_tiles, num_parts,
                stride_xb, stride_yb, stride_sc, stride_so, NEEDS_SKIP, NEEDS_BIAS,
                BLOCK_V, BLOCK_C, BLOCK_O, PRECISION,
            )  # fmt: skip
        last_tile = tl.where(i_m < M, num_tiles, 0)
        m_out = (o_c < tl.where(i_m < M, C, 0))[:, None] & m_o[None, :]
    for i_t in range(i_p, last_tile, num_parts):
        o_v = i_t * BLOCK_V + tl.arange(0, BLOCK_V)
        m_v = o_v < num_receivers
        b_start, b_degree, b_most = rows_of(offsets, o_v, m_v, WIDE)
        p_x, p_w = x, weights + slot_offset(i_m, stride_wm, WIDE)
        p_y = grad_y + o_v[:, None].to(tl.int64) * O + o_o[None, :]
        for i_b in range(batch):
            b_z = zeros_of(SLOTS, BLOCK_V, BLOCK_C)
            p_own = p_x + o_v[:, None].to(tl.int64) * C + o_c[None, :]
            if HAS_CENTER:
                b_z = from_center(epsilon, p_own, m_v[:, None] & m_c[None, :])
            b_z = _plus_neighbors(
                b_z, p_x, p_w, senders, None, b_start, b_degree, b_most, o_c, m_c, C, 0, stride_wm, stride_we,
                False, SLOTS, WIDE,
            )  # fmt: skip
            b_gy = tl.load(p_y, mask=m_v[:, None] & m_o[None, :], other=0.0)
            b_sum = plus_transposed_products(b_sum, b_z, b_gy, SLOTS, PRECISION)
            if NEEDS_SKIP and not APART:
                b_own = tl.load(p_own, mask=m_v[:, None] & m_c[None, :], other=0.0)
                b_skip += product(tl.trans(b_own).to(b_gy.dtype), b_gy, PRECISION)
            if NEEDS_BIAS and not APART:
                b_bias += b_gy.to(tl.float32)
            p_x, p_y, p_w = p_x + stride_xb, p_y + stride_yb, p_w + stride_wb
    o_theta = i_p.to(tl.int64) * M * C * O + o_c[:, None] * stride_tc + o_o[None, :] * stride_to
    for s in tl.static_range(SLOTS):
        tl.store(grad_theta + o_theta + (i_m + s) * stride_tm, b_sum[s], mask=m_out)
    if NEEDS_SKIP and not APART:
        o_skip = i_p.to(tl.int64) * C * O + o_c[:, None] * stride_sc + o_o[None, :] * stride_so
        tl.store(grad_skip + o_skip, b_skip, mask=m_out)
    if NEEDS_BIAS and not APART:
        tl.store(grad_bias + i_p * O + o_o, tl.sum(b_bias, axis=0), mask=m_o)


def theta_gradients_plan(
    sizes: ConvolutionSizes, tiles: Tiles, precision: str, has_center: bool, needs_skip: bool, needs_bias: bool
) -> tuple[LaunchPlan, int]:
    """Of grad_y, x, weights, ε, three outputs, senders, offsets. The gradient of Θ_m, zᵀ times the gradient of y, in
    parts, whose number is returned: each program sums a part of the vertices. The gradients of the skip and of the bias
    are summed by the programs of the only slot or, if there are several, by programs of their own.
    """
    apart = sizes.slots > 1 and (needs_skip or needs_bias)
    num_tiles, chunks = ceil_div(sizes.num_receivers, tiles.rows), sizes.slots // tiles.slots
    parts = shares(num_tiles, tiles.programs, chunks)
    numbers = (
        sizes.batch, sizes.num_receivers, sizes.channels, sizes.out, sizes.slots, num_tiles, parts,
        sizes.num_x, sizes.num_y, *sizes.weight_strides, sizes.group_stride,
        *sizes.theta_strides, *(sizes.skip_strides or (0, 0)),
        sizes.grouped, has_center, needs_skip, needs_bias, apart,
        tiles.slots, tiles.rows, tiles.c, tiles.o, precision, sizes.wide,
    )  # fmt: skip
    grid = (chunks + apart, parts, ceil_div(sizes.out, tiles.o))
    return LaunchPlan(_theta_gradients_kernel, grid, numbers, tiles.warps), parts


@triton.jit
def _gradients_of_z(
    p_y, theta, i_m, m_v, o_c, m_c, O, stride_tm, stride_tc, stride_to,
    SLOTS: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """For each slot, the gradient of y times Θᵀ."""
    b_gz = ()
    for s in tl.static_range(SLOTS):
        b_gs = _times_theta(
            p_y, theta, i_m + s, m_v, o_c, m_c, O, stride_tm, stride_tc, stride_to, BLOCK_V, BLOCK_C, BLOCK_O, PRECISION
        )
        b_gz = b_gz + (in_layout_of_loads(b_gs, BLOCK_V, BLOCK_C),)
    return b_gz


@triton.jit
def _times_theta(
    p_y, theta, i_slot, m_v, o_c, m_c, O, stride_tm, stride_tc, stride_to,
    BLOCK_V: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    b_gs = tl.zeros([BLOCK_V, BLOCK_C], dtype=tl.float32)
    for i_o in range(0, O, BLOCK_O):
        o_o = i_o + tl.arange(0, BLOCK_O)
        m_o = o_o < O
        b_gy = tl.load(p_y + o_o[None, :], mask=m_v[:, None] & m_o[None, :], other=0.0)
        p_theta = theta + i_slot * stride_tm + o_c[None, :] * stride_tc + o_o[:, None] * stride_to
        b_theta = tl.load(p_theta, mask=m_c[None, :] & m_o[:, None], other=0.0)
        b_gs += product(b_gy, b_theta, PRECISION)
    return b_gs


@triton.jit
def _store_gradients_of_edges(
    b_gz, p_x, p_g, senders, b_start, b_degree, b_most, o_c, m_c, C, stride_wm, stride_we,
    ADDS: tl.constexpr, SLOTS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Of the weights: products of the gradients of z with the features of the neighbors."""
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


@triton.jit(do_not_specialize=(*SIZES, "stride_wb", "stride_wm"))
def _weight_gradients_kernel(
    grad_y, x, theta, grad_weights, senders, offsets, weights, pseudo, mean, scale, grad_mean, grad_scale,
    batch, num_receivers, C, O, M, stride_xb, stride_yb, stride_wb, stride_wm, stride_we, stride_og,
    stride_tm, stride_tc, stride_to, floor,
    GROUPED: tl.constexpr, ADDS: tl.constexpr, DIM: tl.constexpr, SLOTS: tl.constexpr,
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
        b_gz = _gradients_of_z(
            p_y, theta, i_m, m_v, o_c, m_c, O, stride_tm, stride_tc, stride_to,
            SLOTS, BLOCK_V, BLOCK_C, BLOCK_O, PRECISION,
        )  # fmt: skip
        _store_gradients_of_edges(
            b_gz, p_x, p_g, senders, b_start, b_degree, b_most, o_c, m_c, C, stride_wm, stride_we, ADDS, SLOTS, WIDE
        )
        if ADDS:
            # The next item adds to what this one has written, perhaps from other threads of this program.
            tl.debug_barrier()
        p_x, p_y, p_g = p_x + stride_xb, p_y + stride_yb, p_g + stride_wb
    if DIM > 0:
        # The edges into these vertices follow each other; what was written above is read by other threads.
        tl.debug_barrier()
        i_first = as_index(tl.load(offsets + i_v * BLOCK_V), WIDE)
        i_last = as_index(tl.load(offsets + tl.minimum((i_v + 1) * BLOCK_V, num_receivers)), WIDE)
        gaussian_sums(
            grad_weights, weights, pseudo, mean, scale, grad_mean, grad_scale, i_v, i_m, i_first, i_last, stride_wm,
            M, floor, SLOTS, DIM, WIDE,
        )  # fmt: skip


def weight_gradients_plan(
    sizes: ConvolutionSizes, tiles: Tiles, precision: str, adds: bool, dim: int
) -> tuple[LaunchPlan, int]:
    """Of grad_y, x, Θ, the output, senders, offsets. The gradient of w_m(i,j): the product of x_j with the gradient of
    z_im. ``adds``: items that share their weights add to the same gradients, one after the other. If ``dim`` is not 0,
    the weights are Gaussian: of the weights, u, μ, σ and two outputs, too, the gradients of μ and σ in as many parts as
    are returned."""
    numbers = (
        sizes.batch, sizes.num_receivers, sizes.channels, sizes.out, sizes.slots, sizes.num_x, sizes.num_y,
        *sizes.weight_strides, sizes.group_stride, *sizes.theta_strides, FLOOR,
        sizes.grouped, adds, dim, tiles.slots, tiles.rows, tiles.c, tiles.o, precision, sizes.wide,
    )  # fmt: skip
    parts = ceil_div(sizes.num_receivers, tiles.rows)
    return LaunchPlan(_weight_gradients_kernel, (parts, sizes.slots // tiles.slots), numbers, tiles.warps), parts
