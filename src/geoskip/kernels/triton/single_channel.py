r"""Convolutions of one channel, such as the first on superpixels: what a vertex gathers is a number for each slot.

.. math:: z_{im} = \sum_j w_m(i,j)\, x_j, \qquad y_i = \sum_m z_{im} \Theta_m + x_i A + b

Without a gradient of x, no sum over the edges out of a vertex is needed, and one kernel computes all gradients from

.. math:: \bar\Theta_m = \sum_i z_{im}\, \bar y_i, \qquad \bar w_m(i,j) = \langle \Theta_m, \bar y_i \rangle\, x_j

A program takes one vertex after the other. Its blocks [slots, neighbors] and [slots, channels of y] have one layout,
so that sums over their columns stay where they are needed.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.pattern import Pattern
from geoskip.kernels.reference import FLOOR
from geoskip.kernels.triton.blocks import as_index, index_at, zeros_of
from geoskip.kernels.triton.gaussians import Gaussians
from geoskip.kernels.triton.launch import CACHE_SIZE, SIZES, LaunchPlan, ceil_div, power_of_two

# Neighbors at a time, and the most channels of y.
NEIGHBORS, COLUMNS = 32, 32
# Programs along the vertices, forward and backward, and their warps.
PROGRAMS, WARPS = (2112, 528), (1, 2)


@triton.jit
def _gaussians_of(mean, scale, o_m, m_m, floor, DIM: tl.constexpr):
    """μ, and 1 / (σ² + ε), of each slot and coordinate."""
    b_means, b_precisions = (), ()
    for d in tl.static_range(DIM):
        b_mean = tl.load(mean + o_m * DIM + d, mask=m_m, other=0.0).to(tl.float32)
        b_scale = tl.load(scale + o_m * DIM + d, mask=m_m, other=1.0).to(tl.float32)
        b_means = b_means + (b_mean[:, None],)
        b_precisions = b_precisions + ((1.0 / (b_scale * b_scale + floor))[:, None],)
    return b_means, b_precisions


@triton.jit
def _offsets_from(b_means, pseudo, o_e, m_e, DIM: tl.constexpr):
    """u - μ of each slot and edge."""
    b_off = ()
    for d in tl.static_range(DIM):
        b_u = tl.load(pseudo + o_e * DIM + d, mask=m_e, other=0.0).to(tl.float32)
        b_off = b_off + (b_u[None, :] - b_means[d],)
    return b_off


@triton.jit
def _weights_of(p_w, m_w, b_off, b_precisions, DIM: tl.constexpr):
    """The weights, 0 where there is no edge: computed from offsets, or loaded if there are none."""
    if DIM:
        b_sum = b_off[0] * b_off[0] * b_precisions[0]
        for d in tl.static_range(1, DIM):
            b_sum += b_off[d] * b_off[d] * b_precisions[d]
        b_w = tl.where(m_w, tl.exp(-0.5 * b_sum), 0.0)
    else:
        b_w = tl.load(p_w, mask=m_w, other=0.0).to(tl.float32)
    return b_w


@triton.jit(do_not_specialize=(*SIZES, "stride_wm"))
def _convolve_kernel(
    x, weights, theta, skip, bias, y, senders, offsets, pseudo, mean, scale,
    num_receivers, M, O, stride_wm, floor, DIM: tl.constexpr, HAS_SKIP: tl.constexpr, HAS_BIAS: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_O: tl.constexpr,
):  # fmt: skip
    o_m, o_o = tl.arange(0, BLOCK_M), tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    m_m, m_o = o_m < M, o_o < O
    m_theta = m_m[:, None] & m_o[None, :]
    b_theta = tl.load(theta + o_m[:, None] * O + o_o[None, :], mask=m_theta, other=0.0).to(tl.float32)
    b_skip = tl.load(skip + o_o, mask=m_o, other=0.0).to(tl.float32) if HAS_SKIP else tl.zeros([BLOCK_O], tl.float32)
    b_bias = tl.load(bias + o_o, mask=m_o, other=0.0).to(tl.float32) if HAS_BIAS else tl.zeros([BLOCK_O], tl.float32)
    b_means, b_precisions = _gaussians_of(mean, scale, o_m, m_m, floor, DIM)
    for i_v in range(tl.program_id(0), num_receivers, tl.num_programs(0)):
        i_first, i_last = as_index(tl.load(offsets + i_v), False), as_index(tl.load(offsets + i_v + 1), False)
        b_z = tl.zeros([BLOCK_M], dtype=tl.float32)
        for i_k in range(i_first, i_last, BLOCK_K):
            o_e = i_k + tl.arange(0, BLOCK_K)
            m_e = o_e < i_last
            b_x = tl.load(x + index_at(senders + o_e, m_e, False), mask=m_e, other=0.0).to(tl.float32)
            p_w, m_w = weights + o_m[:, None] * stride_wm + o_e[None, :], m_m[:, None] & m_e[None, :]
            b_w = _weights_of(p_w, m_w, _offsets_from(b_means, pseudo, o_e, m_e, DIM), b_precisions, DIM)
            if DIM:
                # Programs of other channels write the same numbers.
                tl.store(p_w, b_w, mask=m_w)
            b_z += tl.sum(b_w * b_x[None, :], axis=1)
        b_y = tl.sum(b_z[:, None] * b_theta, axis=0) + b_bias
        if HAS_SKIP:
            b_y += tl.load(x + i_v).to(tl.float32) * b_skip
        tl.store(y + i_v * O + o_o, b_y.to(y.dtype.element_ty), mask=m_o)


def convolve(
    x: Tensor, weights: Tensor, theta: Tensor, senders: Tensor, offsets: Tensor, skip: Tensor | None,
    bias: Tensor | None, gaussians: Gaussians | None,
) -> Tensor:  # fmt: skip
    """y. ``gaussians`` are written into the weights."""
    (slots, _, out), num_receivers = theta.shape, offsets.shape[1] - 1
    y = x.new_empty(*x.shape[:-2], num_receivers, out)
    basis = gaussians or (None, None, None)
    dim = 0 if gaussians is None else gaussians[1].shape[1]
    plan = _convolve_plan(num_receivers, slots, out, weights.shape[1], dim, skip is not None, bias is not None)
    plan(x, weights, theta.contiguous(), None if skip is None else skip.contiguous(), bias, y, senders, offsets, *basis)
    return y


@lru_cache(CACHE_SIZE)
def _convolve_plan(
    num_receivers: int, slots: int, out: int, num_edges: int, dim: int, has_skip: bool, has_bias: bool
) -> LaunchPlan:
    blocks = NEIGHBORS, power_of_two(slots, 16), power_of_two(out, 16, COLUMNS)
    numbers = num_receivers, slots, out, num_edges, FLOOR, dim, has_skip, has_bias, *blocks
    grid = min(num_receivers, PROGRAMS[0]), ceil_div(out, blocks[-1])
    return LaunchPlan(_convolve_kernel, grid, numbers, WARPS[0])


@triton.jit(do_not_specialize=(*SIZES, "stride_wm"))
def _gradients_kernel(
    grad_y, x, weights, theta, senders, offsets, pseudo, mean, scale,
    grad_weights, grad_theta, grad_skip, grad_bias, grad_mean, grad_scale,
    num_receivers, M, O, stride_wm, floor, DIM: tl.constexpr, NEEDS_WEIGHTS: tl.constexpr, NEEDS_THETA: tl.constexpr,
    NEEDS_SKIP: tl.constexpr, NEEDS_BIAS: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_O: tl.constexpr,
):  # fmt: skip
    i_p, o_m, o_o = tl.program_id(0), tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_O)
    m_m, m_o = o_m < M, o_o < O
    o_theta, m_theta = o_m[:, None] * O + o_o[None, :], m_m[:, None] & m_o[None, :]
    if NEEDS_WEIGHTS:
        b_theta = tl.load(theta + o_theta, mask=m_theta, other=0.0).to(tl.float32)
    b_means, b_precisions = _gaussians_of(mean, scale, o_m, m_m, floor, DIM)
    b_gmean, b_gscale = zeros_of(DIM, BLOCK_M, BLOCK_K), zeros_of(DIM, BLOCK_M, BLOCK_K)
    b_gtheta = tl.zeros([BLOCK_M, BLOCK_O], dtype=tl.float32)
    b_gskip, b_gbias = tl.zeros([BLOCK_O], dtype=tl.float32), tl.zeros([BLOCK_O], dtype=tl.float32)
    for i_v in range(i_p, num_receivers, tl.num_programs(0)):
        i_first, i_last = as_index(tl.load(offsets + i_v), False), as_index(tl.load(offsets + i_v + 1), False)
        b_gy = tl.load(grad_y + i_v * O + o_o, mask=m_o, other=0.0).to(tl.float32)
        b_z = tl.zeros([BLOCK_M], dtype=tl.float32)
        if NEEDS_WEIGHTS:
            b_gz = tl.sum(b_theta * b_gy[None, :], axis=1)[:, None]
        for i_k in range(i_first, i_last, BLOCK_K):
            o_e = i_k + tl.arange(0, BLOCK_K)
            m_e = o_e < i_last
            b_x = tl.load(x + index_at(senders + o_e, m_e, False), mask=m_e, other=0.0).to(tl.float32)
            o_w, m_w = o_m[:, None] * stride_wm + o_e[None, :], m_m[:, None] & m_e[None, :]
            if DIM or NEEDS_THETA:
                b_off = _offsets_from(b_means, pseudo, o_e, m_e, DIM)
                b_wx = _weights_of(weights + o_w, m_w, b_off, b_precisions, DIM) * b_x[None, :]
                b_z += tl.sum(b_wx, axis=1)
            if DIM:
                b_pull, b_more_means, b_more_scales = b_gz * b_wx, (), ()
                for d in tl.static_range(DIM):
                    b_more_means = b_more_means + (b_gmean[d] + b_pull * b_off[d],)
                    b_more_scales = b_more_scales + (b_gscale[d] + b_pull * b_off[d] * b_off[d],)
                b_gmean, b_gscale = b_more_means, b_more_scales
            elif NEEDS_WEIGHTS:
                tl.store(grad_weights + o_w, b_gz * b_x[None, :], mask=m_w)
        if NEEDS_THETA:
            b_gtheta += b_z[:, None] * b_gy[None, :]
        if NEEDS_SKIP:
            b_gskip += tl.load(x + i_v).to(tl.float32) * b_gy
        b_gbias += b_gy
    for d in tl.static_range(DIM):
        o_out = (i_p * M + o_m) * DIM + d
        b_scale = tl.load(scale + o_m * DIM + d, mask=m_m, other=1.0).to(tl.float32)
        b_precision = tl.sum(b_precisions[d], axis=1)
        tl.store(grad_mean + o_out, tl.sum(b_gmean[d], axis=1) * b_precision, mask=m_m)
        b_factor = b_precision * b_precision * b_scale
        tl.store(grad_scale + o_out, tl.sum(b_gscale[d], axis=1) * b_factor, mask=m_m)
    if NEEDS_THETA:
        tl.store(grad_theta + i_p * M * O + o_theta, b_gtheta, mask=m_theta)
    if NEEDS_SKIP:
        tl.store(grad_skip + i_p * O + o_o, b_gskip, mask=m_o)
    if NEEDS_BIAS:
        tl.store(grad_bias + i_p * O + o_o, b_gbias, mask=m_o)


def has_gradients(theta: Tensor) -> bool:
    """Whether there is a kernel of the gradients: a program sums those of all channels of y."""
    return theta.shape[2] <= COLUMNS


def gradients(
    grad_y: Tensor, needs: tuple[bool, ...], x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern,
    gaussians: Gaussians | None,
) -> tuple[Tensor | None, tuple[Tensor | None, ...]]:  # fmt: skip
    """The needed gradients except that of x: of the weights, in float32, and those of Θ, the skip and the bias in
    parts; with ``gaussians``, those of μ and σ in parts instead of that of the weights."""
    _, needs_weights, needs_theta, needs_skip, needs_bias = needs
    slots, _, out = theta.shape
    basis: tuple[Tensor | None, ...] = (None, None, None)
    of_weights, dim = None, 0
    if needs_weights and gaussians is not None:
        basis, dim = gaussians, gaussians[1].shape[1]
    elif needs_weights:
        of_weights = torch.empty_like(weights, dtype=torch.float32)
    plan, parts = _gradients_plan(pattern.num_receivers, slots, out, weights.shape[1], dim, *needs[1:])
    shapes = (slots, 1, out), (1, out), (out,), (slots, dim), (slots, dim)
    wanted = needs_theta, needs_skip, needs_bias, dim > 0, dim > 0
    sums = [
        x.new_empty(parts, *shape, dtype=torch.float32) if is_wanted else None
        for shape, is_wanted in zip(shapes, wanted, strict=True)
    ]
    plan(grad_y, x, weights, theta.contiguous(), pattern.senders, pattern.offsets, *basis, of_weights, *sums)
    return of_weights, tuple(sums)


@lru_cache(CACHE_SIZE)
def _gradients_plan(
    num_receivers: int, slots: int, out: int, num_edges: int, dim: int, needs_weights: bool, needs_theta: bool,
    needs_skip: bool, needs_bias: bool,
) -> tuple[LaunchPlan, int]:  # fmt: skip
    """How to launch the kernel, and how many parts there are."""
    parts, needs = min(num_receivers, PROGRAMS[1]), (needs_weights, needs_theta, needs_skip, needs_bias)
    blocks = NEIGHBORS, power_of_two(slots, 16), power_of_two(out, 16)
    numbers = num_receivers, slots, out, num_edges, FLOOR, dim, *needs, *blocks
    return LaunchPlan(_gradients_kernel, (parts,), numbers, WARPS[1]), parts
