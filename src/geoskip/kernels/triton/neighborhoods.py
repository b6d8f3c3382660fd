r"""Basis convolution with many slots on small graphs: the neighborhood of a vertex is a small dense matrix.

With the weights :math:`W_i` [slots, neighbors] and the features :math:`X_i` [neighbors, channels] of a vertex, the
tensor cores compute :math:`z_i = W_i X_i`. It is stored, and a product over all vertices multiplies it with Θ. A
program of :mod:`.vertices` would read every weight by itself; here they are read in blocks. That takes memory for
slots × channels numbers per vertex. Gaussian weights are computed in the same kernel.

Backward, with :math:`H_j = \sum_i w(i,j)\, \bar y_i` over the edges out of j, and
:math:`\bar z_i = \bar y_i \Theta^\top`:

.. math::
    \bar x_j = \sum_m H_{jm} \Theta_m^\top, \qquad \bar\Theta_m = \sum_j x_j^\top H_{jm}, \qquad
    \bar w_m(i,j) = \langle \bar z_{im}, x_j \rangle

:math:`\bar y` is stored after :math:`H`, as one more slot: its product with x is the gradient of the skip, and its
sum that of the bias. If x has one channel, all of this is in the registers of the kernels of :mod:`.single_channel`.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.branches import Fork
from geoskip.kernels.pattern import Pattern
from geoskip.kernels.reference import FLOOR
from geoskip.kernels.triton import single_channel
from geoskip.kernels.triton.blocks import as_index, index_at, product, zeros_of
from geoskip.kernels.triton.gaussians import Gaussians, gaussian_block, gaussian_pulls
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
# Neighbors at a time, the most channels of a block, warps, and the most registers of a thread in the kernels that
# gather features and that compute the gradients of the weights.
NEIGHBORS, CHANNELS, WARPS, REGISTERS = 16, 64, 2, (128, 168)
# Rows and columns of a block of the gradient of z.
ROWS, COLUMNS = 64, 64
# Programs that sum the gradients of μ and σ: four for each multiprocessor of an H200.
PROGRAMS = 528


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
    x, weights, z, neighbors, order, offsets, pseudo, mean, scale, num_receivers, C, M, D, stride_wm, floor,
    HAS_ORDER: tl.constexpr, IS_GAUSSIAN: tl.constexpr, HAS_OWN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_C: tl.constexpr, PRECISION: tl.constexpr,
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
        p_w, m_w = weights + o_m[:, None] * stride_wm + o_e[None, :], m_m[:, None] & m_k[None, :]
        if IS_GAUSSIAN:
            b_w = gaussian_block(pseudo, mean, scale, o_m, m_m, o_e, m_k, D, floor)
            b_w = tl.where(m_w, b_w, 0.0)
            # Programs of other channels write the same numbers.
            tl.store(p_w, b_w, mask=m_w)
        else:
            b_w = tl.load(p_w, mask=m_w, other=0.0)
        b_z += product(b_w, b_x, PRECISION)
    o_z = (o_m[:, None] * num_receivers + i_v) * C + o_c[None, :]
    tl.store(z + o_z, b_z.to(z.dtype.element_ty), mask=m_m[:, None] & m_c[None, :])
    if HAS_OWN:
        b_own = tl.load(x + i_v * C + o_c, mask=m_c, other=0.0)
        tl.store(z + (M * num_receivers + i_v) * C + o_c, b_own, mask=m_c)


def _gather(
    x: Tensor, weights: Tensor, slots: int, neighbors: Tensor, order: Tensor | None, offsets: Tensor,
    gaussians: Gaussians | None = None, has_own: bool = False,
) -> Tensor:  # fmt: skip
    """z [slots, *1, receivers, channels] of x [*1, senders, channels]. ``gaussians`` are first written into the
    weights. With ``has_own``, x itself is stored as one more slot."""
    z = x.new_empty(slots + has_own, *x.shape[:-2], offsets.shape[1] - 1, x.shape[-1])
    pseudo, mean, scale = gaussians or (None, None, None)
    dim = 0 if mean is None else mean.shape[1]
    plan = _gather_plan(z.shape, slots, weights.shape[1], order is not None, dim, precision())
    plan(x, weights, z, neighbors, order, offsets, pseudo, mean, scale)
    return z


@lru_cache(CACHE_SIZE)
def _gather_plan(z: Shape, slots: int, num_edges: int, has_order: bool, dim: int, precision: str) -> LaunchPlan:
    stored, *_, num_receivers, channels = z
    c = power_of_two(channels, 16, CHANNELS)
    blocks = power_of_two(slots, 16), NEIGHBORS, c
    flags = has_order, dim > 0, stored > slots
    numbers = num_receivers, channels, slots, dim, num_edges, FLOOR, *flags, *blocks, precision
    return LaunchPlan(_gather_kernel, (num_receivers, ceil_div(channels, c)), numbers, WARPS, REGISTERS[0])


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
    grad_z, x, grad_weights, senders, offsets, weights, pseudo, mean, scale, grad_mean, grad_scale,
    num_receivers, C, M, stride_wm, floor, DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_C: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    i_p = tl.program_id(0)
    o_m = tl.arange(0, BLOCK_M)
    m_m = o_m < M
    b_gmean, b_gscale = zeros_of(DIM, BLOCK_M, BLOCK_K), zeros_of(DIM, BLOCK_M, BLOCK_K)
    for i_v in range(i_p, num_receivers, tl.num_programs(0)):
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
            o_w, m_w = o_m[:, None] * stride_wm + o_k[None, :], m_m[:, None] & m_k[None, :]
            if DIM:
                b_gw *= tl.load(weights + o_w, mask=m_w, other=0.0)
                b_gmean, b_gscale = gaussian_pulls(
                    b_gmean, b_gscale, b_gw, pseudo, mean, scale, o_m, m_m, o_k, m_k, floor, DIM
                )
            else:
                tl.store(grad_weights + o_w, b_gw, mask=m_w)
    for d in tl.static_range(DIM):
        o_out = (i_p * M + o_m) * DIM + d
        b_scale = tl.load(scale + o_m * DIM + d, mask=m_m, other=0.0).to(tl.float32)
        tl.store(grad_mean + o_out, tl.sum(b_gmean[d], axis=1), mask=m_m)
        tl.store(grad_scale + o_out, tl.sum(b_gscale[d], axis=1) * b_scale, mask=m_m)


def _weight_gradients(
    grad_y: Tensor, x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern, gaussians: Gaussians | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of the weights; of ``gaussians``, instead those of μ and σ in parts."""
    grad_z = grad_y.new_empty(pattern.num_receivers, *theta.shape[:2], dtype=torch.float32)
    dim = 0 if gaussians is None else gaussians[1].shape[1]
    expand, multiply, parts = _weight_plans(theta.shape, pattern.num_receivers, weights.shape[1], dim, precision())
    expand(grad_y, theta, grad_z)
    edges = pattern.senders, pattern.offsets
    if gaussians is None:
        grad_weights = torch.empty_like(weights, dtype=torch.float32)
        multiply(grad_z, x, grad_weights, *edges, None, None, None, None, None, None)
        return grad_weights, None, None
    grad_mean, grad_scale = (grad_z.new_empty(parts, *gaussians[1].shape) for _ in range(2))
    multiply(grad_z, x, None, *edges, weights, *gaussians, grad_mean, grad_scale)
    return None, grad_mean, grad_scale


@lru_cache(CACHE_SIZE)
def _weight_plans(
    theta: Shape, num_receivers: int, num_edges: int, dim: int, precision: str
) -> tuple[LaunchPlan, LaunchPlan, int]:
    """Of the gradient of z, and of that of the weights; and the parts of those of μ and σ."""
    slots, channels, out = theta
    columns = slots * channels
    n, o = power_of_two(columns, 16, COLUMNS), power_of_two(out, 16, 64)
    grid, numbers = (ceil_div(num_receivers, ROWS), ceil_div(columns, n)), (num_receivers, columns, out)
    expand = LaunchPlan(_expand_kernel, grid, (*numbers, ROWS, n, o, precision))
    blocks = power_of_two(slots, 16), NEIGHBORS, power_of_two(channels, 16, CHANNELS)
    programs = min(num_receivers, PROGRAMS) if dim else num_receivers
    sizes = num_receivers, channels, slots, num_edges, FLOOR, dim
    multiply = LaunchPlan(_weight_gradients_kernel, (programs,), (*sizes, *blocks, precision), WARPS, REGISTERS[1])
    return expand, multiply, programs


def convolve(
    x: Tensor, weights: Tensor, theta: Tensor, neighbors: Tensor, order: Tensor | None, offsets: Tensor,
    skip: Tensor | None, bias: Tensor | None, gaussians: Gaussians | None = None,
) -> Tensor:  # fmt: skip
    """The convolution on the graph; with ``order``, on the reversed graph, with each Θ_m and the skip transposed.
    ``gaussians`` are written into the weights first."""
    if order is None and x.shape[-1] == 1:
        return single_channel.convolve(x, weights, theta, neighbors, offsets, skip, bias, gaussians)
    y = x.new_empty(*x.shape[:-2], offsets.shape[1] - 1, theta.shape[1 if order is not None else 2])
    z = _gather(x, weights, len(theta), neighbors, order, offsets, gaussians)
    skip = None if skip is None else skip.contiguous()
    multiply_terms(y, OwnTerm(x, None, skip, bias), z, theta.contiguous(), order is not None)
    return y


def gradients(
    grad_y: Tensor, needs: tuple[bool, ...], x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern,
    skip: Tensor | None, fork: Fork, fork_x: Fork, gaussians: Gaussians | None,
) -> tuple[Tensor | None, Tensor | None, tuple[Tensor | None, ...]]:  # fmt: skip
    """The needed gradients of x and of the weights, the latter in float32, and those of Θ, the skip and the bias in
    parts; with ``gaussians``, those of μ and σ in parts instead of that of the weights. ``fork_x`` is for the branch
    of x, if it ends before the others."""
    needs_x, needs_weights, needs_theta, needs_skip, needs_bias = needs
    if not needs_x and x.shape[-1] == 1 and single_channel.has_gradients(theta):
        return None, *single_channel.gradients(grad_y, needs, x, weights, theta, pattern, gaussians)
    theta, skip = theta.contiguous(), None if skip is None else skip.contiguous()
    slots, is_square = len(theta), pattern.num_senders == pattern.num_receivers
    has_own = needs_theta and is_square and (needs_skip or needs_bias)

    def through_senders() -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        if not (needs_x or needs_theta):
            return None, None, None
        backwards = pattern.receivers, pattern.by_sender, pattern.sender_offsets
        h = _gather(grad_y, weights, slots, *backwards, has_own=has_own)
        parts, sums = over_rows(x, h, needs_theta, has_own and needs_bias, len(h))
        if not needs_x:
            return None, parts, sums
        grad_x = torch.empty_like(x)
        multiply_terms(grad_x, OwnTerm(grad_y, None, skip, None), h[:slots], theta, True)
        return grad_x, parts, sums

    own: tuple[Tensor | None, Tensor | None] = (None, None)
    if not has_own:
        own = fork(over_rows, x, grad_y, needs_skip, needs_bias)
    grad_x, theta_parts, bias_parts = fork_x(through_senders)
    if has_own and theta_parts is not None:
        own = theta_parts[:, slots] if needs_skip else None, bias_parts
        theta_parts = theta_parts[:, :slots]
    grad_weights = of_mean = of_scale = None
    if needs_weights:
        grad_weights, of_mean, of_scale = _weight_gradients(grad_y, x, weights, theta, pattern, gaussians)
    return grad_x, grad_weights, (theta_parts, *own, of_mean, of_scale)
