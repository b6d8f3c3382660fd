"""Gaussian and softmax bases on CUDA: their weights, and the gradients of what they depend on."""

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
    o_m = tl.arange(0, BLOCK_M)
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
    o_m = tl.arange(0, BLOCK_M)
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
    return grad_pseudo.to(pseudo.dtype), partial[0].sum(0).to(mean.dtype), partial[1].sum(0).to(scale.dtype)


@triton.jit
def _softmax_kernel(
    sender_scores, receiver_scores, offset, edge_scale, weights, senders, receivers, num_rows, num_vertices, batch, M,
    OPPOSITE: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    # A row is an edge of an item; rows of one edge lie next to each other.
    o_r = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    m_r = o_r < num_rows
    o_e, o_b = o_r // batch, o_r % batch
    o_m = tl.arange(0, BLOCK_M)
    m_m = o_m < M
    m_rm = m_r[:, None] & m_m[None, :]
    b_j = o_b * num_vertices + tl.load(senders + o_e, mask=m_r, other=0)
    b_i = o_b * num_vertices + tl.load(receivers + o_e, mask=m_r, other=0)
    b_logit = tl.load(sender_scores + b_j[:, None] * M + o_m[None, :], mask=m_rm, other=0.0).to(tl.float32)
    b_other = tl.load(receiver_scores + b_i[:, None] * M + o_m[None, :], mask=m_rm, other=0.0).to(tl.float32)
    b_logit += -b_other if OPPOSITE else b_other
    b_logit += tl.load(offset + o_m, mask=m_m, other=0.0).to(tl.float32)[None, :]
    b_logit = tl.where(m_m[None, :], b_logit, float("-inf"))
    b_exp = tl.exp(b_logit - tl.max(b_logit, axis=1)[:, None])
    b_share = tl.load(edge_scale + o_e, mask=m_r, other=0.0).to(tl.float32) / tl.sum(b_exp, axis=1)
    tl.store(weights + o_m[None, :] * num_rows + o_r[:, None], b_exp * b_share[:, None], mask=m_rm)


def softmax(
    sender_scores: Tensor,
    receiver_scores: Tensor | None,
    offset: Tensor,
    edge_scale: Tensor,
    senders: Tensor,
    receivers: Tensor,
) -> Tensor:
    """Without scores of the receivers they are minus those of the senders."""
    (batch, num_vertices, slots), num_edges = sender_scores.shape, senders.shape[0]
    weights = torch.empty(slots, num_edges, batch, device=senders.device, dtype=torch.float32)
    if weights.numel():
        block_m = power_of_two(slots)
        block_r = max(1, 2048 // block_m)
        arguments = (
            sender_scores, sender_scores if receiver_scores is None else receiver_scores, offset, edge_scale,
            weights, senders, receivers,
            num_edges * batch, num_vertices, batch, slots, receiver_scores is None, block_r, block_m,
        )  # fmt: skip
        launch(_softmax_kernel, (ceil_div(num_edges * batch, block_r),), arguments)
    return weights


@triton.jit
def _softmax_gradients_kernel(
    grad, weights, edge_scale, out, order, offsets, num_edges, num_vertices, batch, M,
    HAS_ORDER: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    # A row is a vertex of an item; rows of one vertex lie next to each other.
    o_r = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    o_v, o_b = o_r // batch, o_r % batch
    m_v = o_v < num_vertices
    o_m = tl.arange(0, BLOCK_M).to(tl.int64)
    m_m = o_m < M
    b_start = tl.load(offsets + o_v, mask=m_v, other=0)
    b_degree = tl.load(offsets + o_v + 1, mask=m_v, other=0) - b_start
    b_sum = tl.zeros([BLOCK_R, BLOCK_M], dtype=tl.float32)
    for k in range(tl.max(b_degree, axis=0)):
        m_e = k < b_degree
        o_e = b_start + k
        if HAS_ORDER:
            o_e = tl.load(order + o_e, mask=m_e, other=0)
        m_em = (k < b_degree[:, None]) & m_m[None, :]
        o_em = (o_m[None, :] * num_edges + o_e[:, None]) * batch + o_b[:, None]
        b_w = tl.load(weights + o_em, mask=m_em, other=0.0)
        b_g = tl.load(grad + o_em, mask=m_em, other=0.0)
        b_scale = tl.load(edge_scale + o_e, mask=m_e, other=1.0).to(tl.float32)
        b_mean = tl.sum(b_w * b_g, axis=1) / tl.where(b_scale == 0, 1.0, b_scale)
        b_sum += b_w * (b_g - b_mean[:, None])
    o_out = (o_b * num_vertices + o_v)[:, None] * M + o_m[None, :]
    tl.store(out + o_out, b_sum, mask=m_v[:, None] & m_m[None, :])


def softmax_gradients(
    grad: Tensor, weights: Tensor, edge_scale: Tensor, order: Tensor | None, offsets: Tensor
) -> Tensor:
    """Gradient of the scores at one end of the edges: at the receivers, or with ``order`` at the senders."""
    (slots, num_edges, batch), num_vertices = weights.shape, offsets.shape[1] - 1
    out = torch.empty(batch, num_vertices, slots, device=grad.device, dtype=torch.float32)
    if out.numel():
        block_m = power_of_two(slots)
        block_r = max(1, 1024 // block_m)
        arguments = (
            grad, weights, edge_scale, out, order, offsets, num_edges, num_vertices, batch, slots,
            order is not None, block_r, block_m,
        )  # fmt: skip
        launch(_softmax_gradients_kernel, (ceil_div(num_vertices * batch, block_r),), arguments)
    return out
