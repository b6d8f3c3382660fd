r"""Basis convolution with many slots on small graphs: the neighborhood of a vertex is a small dense matrix.

With the weights :math:`W_i` [slots, neighbors] and the features :math:`X_i` [neighbors, channels] of a vertex, the
tensor cores compute :math:`z_i = W_i X_i`. It is stored, and a product over all vertices multiplies it with Θ. A
program of :mod:`.vertices` would read every weight by itself; here they are read in blocks. That takes memory for
slots × channels numbers per vertex.

Backward, with :math:`H_j = \sum_i w(i,j)\, \bar y_i` over the edges out of j, and
:math:`\bar z_i = \bar y_i \Theta^\top`:

.. math::
    \bar x_j = \sum_m H_{jm} \Theta_m^\top, \qquad \bar\Theta_m = \sum_j x_j^\top H_{jm}, \qquad
    \bar w_m(i,j) = \langle \bar z_{im}, x_j \rangle
"""

from __future__ import annotations

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.branches import Fork
from geoskip.kernels.pattern import Pattern
from geoskip.kernels.triton.blocks import as_index, index_at, product
from geoskip.kernels.triton.launch import (
    CACHE_SIZE,
    SIZES,
    ConvolutionSizes,
    LaunchPlan,
    Shape,
    ceil_div,
    power_of_two,
    precision,
)
from geoskip.kernels.triton.products import OwnTerm, multiply_terms, over_rows

# From this many slots on, and up to this many: a block of weights has a row for each.
MIN_SLOTS, MAX_SLOTS = 17, 64
# What is stored for all vertices may take this many bytes.
MAX_BYTES = 64 << 20
# Neighbors at a time, the most channels of a block, and warps.
NEIGHBORS, CHANNELS, WARPS = 16, 64, 2
# Rows and columns of a block of the gradient of z.
ROWS, COLUMNS = 64, 64


def pays(sizes: ConvolutionSizes) -> bool:
    """Whether these kernels are faster: one item, many slots that share their edges, a small graph."""
    most = max(sizes.num_senders, sizes.num_receivers) * sizes.slots * max(sizes.channels, sizes.out)
    return (
        sizes.batch == 1
        and not (sizes.grouped or sizes.wide)
        and MIN_SLOTS <= sizes.slots <= MAX_SLOTS
        and sizes.weight_strides[1] > 0
        and 4 * most <= MAX_BYTES
    )


@triton.jit(do_not_specialize=(*SIZES, "stride_wm"))
def _gather_kernel(
    x, weights, z, neighbors, order, offsets, num_receivers, C, M, stride_wm,
    HAS_ORDER: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_C: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    i_v, i_c = tl.program_id(0), tl.program_id(1)
    o_m = tl.arange(0, BLOCK_M)
    o_c = i_c * BLOCK_C + tl.arange(0, BLOCK_C)
    m_m, m_c = o_m < M, o_c < C
    i_first, i_last = as_index(tl.load(offsets + i_v), False), as_index(tl.load(offsets + i_v + 1), False)
    b_z = tl.zeros([BLOCK_M, BLOCK_C], dtype=tl.float32)
    for i_k in range(i_first, i_last, BLOCK_K):
        o_k = i_k + tl.arange(0, BLOCK_K)
        m_k = o_k < i_last
        o_e = index_at(order + o_k, m_k, False) if HAS_ORDER else o_k
        b_j = index_at(neighbors + o_e, m_k, False)
        b_x = tl.load(x + b_j[:, None] * C + o_c[None, :], mask=m_k[:, None] & m_c[None, :], other=0.0)
        p_w = weights + o_m[:, None] * stride_wm + o_e[None, :]
        b_w = tl.load(p_w, mask=m_m[:, None] & m_k[None, :], other=0.0)
        b_z += product(b_w, b_x, PRECISION)
    o_z = (o_m[:, None] * num_receivers + i_v) * C + o_c[None, :]
    tl.store(z + o_z, b_z.to(z.dtype.element_ty), mask=m_m[:, None] & m_c[None, :])


def _gather(x: Tensor, weights: Tensor, slots: int, neighbors: Tensor, order: Tensor | None, offsets: Tensor) -> Tensor:
    """z [slots, *1, receivers, channels] of x [*1, senders, channels]."""
    z = x.new_empty(slots, *x.shape[:-2], offsets.shape[1] - 1, x.shape[-1])
    _gather_plan(z.shape, weights.shape[1], order is not None, precision())(x, weights, z, neighbors, order, offsets)
    return z


@lru_cache(CACHE_SIZE)
def _gather_plan(z: Shape, num_edges: int, has_order: bool, precision: str) -> LaunchPlan:
    slots, *_, num_receivers, channels = z
    c = power_of_two(channels, 16, CHANNELS)
    blocks = power_of_two(slots, 16), NEIGHBORS, c
    numbers = num_receivers, channels, slots, num_edges, has_order, *blocks, precision
    return LaunchPlan(_gather_kernel, (num_receivers, ceil_div(channels, c)), numbers, WARPS)


@triton.jit(do_not_specialize=SIZES)
def _expand_kernel(
    grad_y, theta, grad_z, num_receivers, N, O,
    BLOCK_R: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_O: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    o_r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    o_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    m_r, m_n = o_r < num_receivers, o_n < N
    b_z = tl.zeros([BLOCK_R, BLOCK_N], dtype=tl.float32)
    for i_o in range(0, O, BLOCK_O):
        o_o = i_o + tl.arange(0, BLOCK_O)
        m_o = o_o < O
        b_gy = tl.load(grad_y + o_r[:, None] * O + o_o[None, :], mask=m_r[:, None] & m_o[None, :], other=0.0)
        b_theta = tl.load(theta + o_n[None, :] * O + o_o[:, None], mask=m_n[None, :] & m_o[:, None], other=0.0)
        b_z += product(b_gy, b_theta, PRECISION)
    tl.store(grad_z + o_r[:, None] * N + o_n[None, :], b_z, mask=m_r[:, None] & m_n[None, :])


@triton.jit(do_not_specialize=(*SIZES, "stride_wm"))
def _weight_gradients_kernel(
    grad_z, x, grad_weights, senders, offsets, C, M, stride_wm,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_C: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    i_v = tl.program_id(0)
    o_m = tl.arange(0, BLOCK_M)
    m_m = o_m < M
    p_z = grad_z + i_v * M * C
    i_first, i_last = as_index(tl.load(offsets + i_v), False), as_index(tl.load(offsets + i_v + 1), False)
    for i_k in range(i_first, i_last, BLOCK_K):
        o_k = i_k + tl.arange(0, BLOCK_K)
        m_k = o_k < i_last
        b_j = index_at(senders + o_k, m_k, False)
        b_gw = tl.zeros([BLOCK_M, BLOCK_K], dtype=tl.float32)
        for i_c in range(0, C, BLOCK_C):
            o_c = i_c + tl.arange(0, BLOCK_C)
            m_c = o_c < C
            b_x = tl.load(x + b_j[None, :] * C + o_c[:, None], mask=m_k[None, :] & m_c[:, None], other=0.0)
            b_gz = tl.load(p_z + o_m[:, None] * C + o_c[None, :], mask=m_m[:, None] & m_c[None, :], other=0.0)
            b_gw += product(b_gz, b_x, PRECISION)
        tl.store(grad_weights + o_m[:, None] * stride_wm + o_k[None, :], b_gw, mask=m_m[:, None] & m_k[None, :])


def _weight_gradients(grad_y: Tensor, x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern) -> Tensor:
    grad_z = grad_y.new_empty(pattern.num_receivers, *theta.shape[:2], dtype=torch.float32)
    expand, multiply = _weight_plans(theta.shape, pattern.num_receivers, weights.shape[1], precision())
    expand(grad_y, theta, grad_z)
    grad_weights = torch.empty_like(weights, dtype=torch.float32)
    multiply(grad_z, x, grad_weights, pattern.senders, pattern.offsets)
    return grad_weights


@lru_cache(CACHE_SIZE)
def _weight_plans(theta: Shape, num_receivers: int, num_edges: int, precision: str) -> tuple[LaunchPlan, LaunchPlan]:
    """Of the gradient of z, and of that of the weights."""
    slots, channels, out = theta
    columns = slots * channels
    n, o = power_of_two(columns, 16, COLUMNS), power_of_two(out, 16, 64)
    grid, numbers = (ceil_div(num_receivers, ROWS), ceil_div(columns, n)), (num_receivers, columns, out)
    expand = LaunchPlan(_expand_kernel, grid, (*numbers, ROWS, n, o, precision))
    blocks = power_of_two(slots, 16), NEIGHBORS, power_of_two(channels, 16, CHANNELS)
    numbers = channels, slots, num_edges
    return expand, LaunchPlan(_weight_gradients_kernel, (num_receivers,), (*numbers, *blocks, precision), WARPS)


def convolve(
    x: Tensor, weights: Tensor, theta: Tensor, neighbors: Tensor, order: Tensor | None, offsets: Tensor,
    skip: Tensor | None, bias: Tensor | None,
) -> Tensor:  # fmt: skip
    """The convolution on the graph; with ``order``, on the reversed graph, with each Θ_m and the skip transposed."""
    y = x.new_empty(*x.shape[:-2], offsets.shape[1] - 1, theta.shape[1 if order is not None else 2])
    z = _gather(x, weights, len(theta), neighbors, order, offsets)
    skip = None if skip is None else skip.contiguous()
    multiply_terms(y, OwnTerm(x, None, skip, bias), z, theta.contiguous(), order is not None)
    return y


def gradients(
    grad_y: Tensor, needs: tuple[bool, ...], x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern,
    skip: Tensor | None, fork: Fork, fork_x: Fork,
) -> tuple[Tensor | None, Tensor | None, tuple[Tensor | None, ...]]:  # fmt: skip
    """The needed gradients of x and of the weights, the latter in float32, and those of Θ, the skip and the bias in
    parts. ``fork_x`` is for the branch of x, if it ends before the others."""
    needs_x, needs_weights, needs_theta, needs_skip, needs_bias = needs
    theta, skip = theta.contiguous(), None if skip is None else skip.contiguous()

    def through_senders() -> tuple[Tensor | None, Tensor | None]:
        if not (needs_x or needs_theta):
            return None, None
        backwards = pattern.receivers, pattern.by_sender, pattern.sender_offsets
        h = _gather(grad_y, weights, len(theta), *backwards)
        parts, _ = over_rows(x, h, needs_theta, False, len(theta))
        if not needs_x:
            return None, parts
        grad_x = torch.empty_like(x)
        multiply_terms(grad_x, OwnTerm(grad_y, None, skip, None), h, theta, True)
        return grad_x, parts

    own = fork(lambda: over_rows(x, grad_y, needs_skip, needs_bias))
    grad_x, theta_parts = fork_x(through_senders)
    grad_weights = _weight_gradients(grad_y, x, weights, theta, pattern) if needs_weights else None
    return grad_x, grad_weights, (theta_parts, *own)
