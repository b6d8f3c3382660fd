"""The Gaussian basis on CUDA: its weights, and the gradients of what they depend on."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.triton.launch import launch
from geoskip.kernels.triton.tiles import ceil_div, power_of_two


@triton.jit
def _gaussian_kernel(
    pseudo, mean, scale, weights, num_edges, M, D, floor, BLOCK_E: tl.constexpr, BLOCK_M: tl.constexpr
):
    o_e = tl.program_id(0).to(tl.int64) * BLOCK_E + tl.arange(0, BLOCK_E)
    m_e = o_e < num_edges
    o_m = tl.arange(0, BLOCK_M).to(tl.int64)
    m_m = o_m < M
    b_sum = tl.zeros([BLOCK_E, BLOCK_M], dtype=tl.float32)
    for d in range(D):
        b_u = tl.load(pseudo + o_e * D + d, mask=m_e, other=0.0).to(tl.float32)
        b_mean = tl.load(mean + o_m * D + d, mask=m_m, other=0.0).to(tl.float32)
        b_scale = tl.load(scale + o_m * D + d, mask=m_m, other=1.0).to(tl.float32)
        b_off = b_u[:, None] - b_mean[None, :]
        b_sum += b_off * b_off / (b_scale * b_scale + floor)[None, :]
    o_out = o_m[None, :] * num_edges + o_e[:, None]
    tl.store(weights + o_out, tl.exp(-0.5 * b_sum), mask=m_e[:, None] & m_m[None, :])


def gaussian(pseudo: Tensor, mean: Tensor, scale: Tensor, floor: float) -> Tensor:
    (num_edges, dim), slots = pseudo.shape, mean.shape[0]
    weights = torch.empty(slots, num_edges, device=pseudo.device, dtype=torch.float32)
    if weights.numel():
        block_m = power_of_two(slots)
        block_e = max(1, 2048 // block_m)
        arguments = (pseudo, mean, scale, weights, num_edges, slots, dim, floor, block_e, block_m)
        launch(_gaussian_kernel, (ceil_div(num_edges, block_e),), arguments)
    return weights


@triton.jit
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
    grad: Tensor, weights: Tensor, pseudo: Tensor, mean: Tensor, scale: Tensor, floor: float, needs_pseudo: bool
) -> tuple[Tensor, Tensor, Tensor]:
    (num_edges, dim), slots = pseudo.shape, mean.shape[0]
    block_m = power_of_two(slots)
    block_e = max(1, 1024 // block_m)
    parts = max(1, min(256, ceil_div(num_edges, block_e)))
    partial = torch.empty(2, parts, slots, dim, device=grad.device, dtype=torch.float32)
    grad_pseudo = torch.empty_like(pseudo if needs_pseudo else pseudo[:0], dtype=torch.float32)
    arguments = (
        grad, weights, pseudo, mean, scale, partial[0], partial[1], grad_pseudo, num_edges, slots, dim, floor, parts,
        needs_pseudo, block_e, block_m,
    )  # fmt: skip
    launch(_gaussian_gradients_kernel, (parts, dim), arguments)
    # Two sums: operators of torch may not return two views of one tensor.
    return grad_pseudo.to(pseudo.dtype), partial[0].sum(0).to(mean.dtype), partial[1].sum(0).to(scale.dtype)
