"""The Gaussian basis on CUDA: its weights, and the gradients of u, μ and σ that they depend on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.reference import FLOOR
from geoskip.kernels.triton.blocks import as_index
from geoskip.kernels.triton.launch import CACHE_SIZE, SIZES, LaunchPlan, Shape, ceil_div, power_of_two

# u [edges, dim], μ and σ [slots, dim].
Gaussians = tuple[Tensor, Tensor, Tensor]


@triton.jit
def gaussian_block(pseudo, mean, scale, o_m, m_m, o_e, m_e, D, floor):
    """The weights of slots ``o_m`` and edges ``o_e``."""
    b_sum = tl.zeros([o_m.shape[0], o_e.shape[0]], dtype=tl.float32)
    for d in range(D):
        b_u = tl.load(pseudo + o_e * D + d, mask=m_e, other=0.0).to(tl.float32)
        b_mean = tl.load(mean + o_m * D + d, mask=m_m, other=0.0).to(tl.float32)
        b_scale = tl.load(scale + o_m * D + d, mask=m_m, other=1.0).to(tl.float32)
        b_off = b_u[None, :] - b_mean[:, None]
        b_sum += b_off * b_off / (b_scale * b_scale + floor)[:, None]
    return tl.exp(-0.5 * b_sum)


@triton.jit
def gaussian_pulls(b_gmean, b_gscale, b_g, pseudo, mean, scale, o_m, m_m, o_e, m_e, floor, DIM: tl.constexpr):
    """What edges add to the gradients of μ and, without its factor σ, of σ, for each dimension; ``b_g`` [slots, edges]
    is the gradient of the weights times the weights."""
    b_means, b_scales = (), ()
    for d in tl.static_range(DIM):
        b_mean = tl.load(mean + o_m * DIM + d, mask=m_m, other=0.0).to(tl.float32)[:, None]
        b_scale = tl.load(scale + o_m * DIM + d, mask=m_m, other=1.0).to(tl.float32)[:, None]
        b_variance = b_scale * b_scale + floor
        b_off = tl.load(pseudo + o_e * DIM + d, mask=m_e, other=0.0).to(tl.float32)[None, :] - b_mean
        b_pull = b_g * b_off / b_variance
        b_means = b_means + (b_gmean[d] + b_pull,)
        b_scales = b_scales + (b_gscale[d] + b_pull * b_off / b_variance,)
    return b_means, b_scales


@triton.jit(do_not_specialize=SIZES)
def _gaussian_kernel(
    pseudo, mean, scale, weights, num_edges, M, D, floor, BLOCK_E: tl.constexpr, BLOCK_M: tl.constexpr
):
    o_e = tl.program_id(0).to(tl.int64) * BLOCK_E + tl.arange(0, BLOCK_E)
    o_m = tl.arange(0, BLOCK_M).to(tl.int64)
    m_e, m_m = o_e < num_edges, o_m < M
    b_w = gaussian_block(pseudo, mean, scale, o_m, m_m, o_e, m_e, D, floor)
    tl.store(weights + o_m[:, None] * num_edges + o_e[None, :], b_w, mask=m_m[:, None] & m_e[None, :])


def empty_gaussian(pseudo: Tensor, mean: Tensor) -> Tensor:
    """Space for the weights [slots, edges] of pseudo-coordinates [edges, dim]."""
    return pseudo.new_empty(mean.shape[0], pseudo.shape[0], dtype=torch.float32)


def fill_gaussian(weights: Tensor, pseudo: Tensor, mean: Tensor, scale: Tensor) -> None:
    """Compute the weights."""
    plan = _gaussian_plan(pseudo.shape, mean.shape[0])
    if plan is not None:
        plan(pseudo, mean, scale, weights)


@lru_cache(CACHE_SIZE)
def _gaussian_plan(pseudo: Shape, slots: int) -> LaunchPlan | None:
    """How to launch the kernel; None if there are no weights."""
    num_edges, dim = pseudo
    block_m = power_of_two(slots)
    block_e = max(1, 2048 // block_m)
    numbers = num_edges, slots, dim, FLOOR, block_e, block_m
    plan = LaunchPlan(_gaussian_kernel, (ceil_div(num_edges, block_e),), numbers)
    return plan if slots * num_edges else None


@triton.jit(do_not_specialize=SIZES)
def _gaussian_gradients_kernel(
    grad, weights, pseudo, mean, scale, grad_mean, grad_scale, grad_pseudo, num_edges, M, D, floor, num_parts,
    NEEDS_PSEUDO: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    i_p, d = tl.program_id(0), tl.program_id(1)
    o_m = tl.arange(0, BLOCK_M).to(tl.int64)
    m_m = o_m < M
    b_mean = tl.load(mean + o_m * D + d, mask=m_m, other=0.0).to(tl.float32)[None, :]
    b_scale = tl.load(scale + o_m * D + d, mask=m_m, other=1.0).to(tl.float32)[None, :]
    b_variance = b_scale * b_scale + floor
    b_gmean = tl.zeros([BLOCK_E, BLOCK_M], dtype=tl.float32)
    b_gscale = tl.zeros([BLOCK_E, BLOCK_M], dtype=tl.float32)
    for i_e in range(i_p, tl.cdiv(num_edges, BLOCK_E), num_parts):
        o_e = i_e * BLOCK_E + tl.arange(0, BLOCK_E).to(tl.int64)
        m_e = o_e < num_edges
        m_em = m_e[:, None] & m_m[None, :]
        o_em = o_m[None, :] * num_edges + o_e[:, None]
        b_g = tl.load(grad + o_em, mask=m_em, other=0.0) * tl.load(weights + o_em, mask=m_em, other=0.0)
        b_off = tl.load(pseudo + o_e * D + d, mask=m_e, other=0.0).to(tl.float32)[:, None] - b_mean
        b_pull = b_g * b_off / b_variance
        b_gmean += b_pull
        b_gscale += b_pull * b_off / b_variance
        if NEEDS_PSEUDO:
            tl.store(grad_pseudo + o_e * D + d, -tl.sum(b_pull, axis=1), mask=m_e)
    o_out = (i_p * M + o_m) * D + d
    tl.store(grad_mean + o_out, tl.sum(b_gmean, axis=0), mask=m_m)
    tl.store(grad_scale + o_out, tl.sum(b_gscale * b_scale, axis=0), mask=m_m)


def gaussian_gradients(
    grad: Tensor, weights: Tensor, pseudo: Tensor, mean: Tensor, scale: Tensor, needs: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """The gradient of the pseudo-coordinates, if needed, and those of μ and σ in parts."""
    shape, plan = _gaussian_gradients_plan(pseudo.shape, mean.shape[0], needs[0])
    grad_mean, grad_scale = grad.new_empty(*shape), grad.new_empty(*shape)
    grad_pseudo = torch.empty_like(pseudo, dtype=torch.float32) if needs[0] else None
    plan(grad, weights, pseudo, mean, scale, grad_mean, grad_scale, grad_pseudo)
    pseudo_gradient = None if grad_pseudo is None else grad_pseudo.to(pseudo.dtype)
    return pseudo_gradient, grad_mean if needs[1] else None, grad_scale if needs[2] else None


@lru_cache(CACHE_SIZE)
def _gaussian_gradients_plan(pseudo: Shape, slots: int, needs_pseudo: bool) -> tuple[Shape, LaunchPlan]:
    """The shape of the parts, and how to launch the kernel."""
    num_edges, dim = pseudo
    block_m = power_of_two(slots)
    block_e = max(1, 1024 // block_m)
    parts = max(1, min(256, ceil_div(num_edges, block_e)))
    numbers = num_edges, slots, dim, FLOOR, parts, needs_pseudo, block_e, block_m
    return (parts, slots, dim), LaunchPlan(_gaussian_gradients_kernel, (parts, dim), numbers)


@triton.jit
def gaussian_sums(
    grad, weights, pseudo, mean, scale, grad_mean, grad_scale, i_part, i_m, i_first, i_last, stride_wm, M, floor,
    SLOTS: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A part of the gradients of μ and σ: of some slots, over consecutive edges. A thread has an edge at a time."""
    BLOCK: tl.constexpr = 128
    b_gmean, b_gscale = (), ()
    for _ in tl.static_range(SLOTS * DIM):
        b_gmean = b_gmean + (tl.zeros([BLOCK], dtype=tl.float32),)
        b_gscale = b_gscale + (tl.zeros([BLOCK], dtype=tl.float32),)
    for i_e in range(i_first, i_last, BLOCK):
        o_e = i_e + tl.arange(0, BLOCK)
        m_e = o_e < i_last
        b_means, b_scales = (), ()
        for s in tl.static_range(SLOTS):
            o_slot = tl.cast(i_m + s, tl.int64) * stride_wm
            b_g = tl.load(grad + o_slot + o_e, mask=m_e, other=0.0)
            b_g *= tl.load(weights + o_slot + o_e, mask=m_e, other=0.0)
            for d in tl.static_range(DIM):
                b_scale = tl.load(scale + (i_m + s) * DIM + d).to(tl.float32)
                b_variance = b_scale * b_scale + floor
                b_off = tl.load(pseudo + as_index(o_e, WIDE) * DIM + d, mask=m_e, other=0.0).to(tl.float32)
                b_off -= tl.load(mean + (i_m + s) * DIM + d).to(tl.float32)
                b_pull = b_g * b_off / b_variance
                b_means = b_means + (b_gmean[s * DIM + d] + b_pull,)
                b_scales = b_scales + (b_gscale[s * DIM + d] + b_pull * b_off / b_variance,)
        b_gmean, b_gscale = b_means, b_scales
    for s in tl.static_range(SLOTS):
        for d in tl.static_range(DIM):
            o_out = (i_part * M + i_m + s) * DIM + d
            b_scale = tl.load(scale + (i_m + s) * DIM + d).to(tl.float32)
            tl.store(grad_mean + o_out, tl.sum(b_gmean[s * DIM + d], axis=0))
            tl.store(grad_scale + o_out, tl.sum(b_gscale[s * DIM + d], axis=0) * b_scale)
