"""Weights of edges divided by those of their vertices, on CUDA: two kernels instead of sorts and many small ones."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.pattern import Pattern
from geoskip.kernels.triton.launch import SIZES, ceil_div, launch

# Vertices of a program and how many edges of each it reads at a time; edges of a program.
ROWS, COLUMNS = 16, 32
BLOCK = 256


@triton.jit(do_not_specialize=SIZES)
def _sums_kernel(
    weights, senders, offsets, sums, num_receivers, WITH_LOOPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    o_v = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    m_v = o_v < num_receivers
    b_first = tl.load(offsets + o_v, mask=m_v, other=0)
    b_degree = tl.load(offsets + o_v + 1, mask=m_v, other=0) - b_first
    b_sum = tl.zeros([ROWS], dtype=tl.float64)
    for k in range(0, tl.max(b_degree, axis=0), COLUMNS):
        o_k = k + tl.arange(0, COLUMNS)
        o_e = b_first[:, None] + o_k[None, :]
        m_e = o_k[None, :] < b_degree[:, None]
        if not WITH_LOOPS:
            m_e = m_e & (tl.load(senders + o_e, mask=m_e, other=0) != o_v[:, None])
        b_sum += tl.sum(tl.load(weights + o_e, mask=m_e, other=0.0).to(tl.float64), axis=1)
    tl.store(sums + o_v, b_sum, mask=m_v)


def _sums(pattern: Pattern, weights: Tensor, with_loops: bool) -> Tensor:
    """The sum of the weights of the edges into each vertex, in float64."""
    num_receivers = pattern.num_receivers
    sums = torch.empty(num_receivers, dtype=torch.float64, device=weights.device)
    arguments = (weights, pattern.senders, pattern.offsets, sums, num_receivers, with_loops, ROWS, COLUMNS)
    launch(_sums_kernel, (ceil_div(num_receivers, ROWS),), arguments)
    return sums


@triton.jit
def _inverse_root(b_sum):
    """0 for 0."""
    return tl.where(b_sum == 0, 0, 1 / tl.sqrt(tl.where(b_sum == 0, 1, b_sum)))


@triton.jit(do_not_specialize=SIZES)
def _normalize_kernel(
    weights, senders, receivers, sums, y, num_edges,
    IS_MEAN: tl.constexpr, WITH_LOOPS: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    o_e = tl.program_id(0).to(tl.int64) * BLOCK_E + tl.arange(0, BLOCK_E)
    m_e = o_e < num_edges
    b_weight = tl.load(weights + o_e, mask=m_e, other=0.0).to(tl.float64)
    b_receiver = tl.load(receivers + o_e, mask=m_e, other=0)
    b_sum = tl.load(sums + b_receiver, mask=m_e, other=1.0)
    if IS_MEAN:
        b_y = b_weight / b_sum
    else:
        b_sender = tl.load(senders + o_e, mask=m_e, other=0)
        b_root = _inverse_root(b_sum)
        b_y = b_weight * b_root * _inverse_root(tl.load(sums + b_sender, mask=m_e, other=1.0))
        if not WITH_LOOPS:
            b_y = tl.where(b_sender == b_receiver, b_weight, b_y)
    tl.store(y + o_e, b_y.to(y.dtype.element_ty), mask=m_e)


def _normalized(pattern: Pattern, weights: Tensor, is_mean: bool, with_loops: bool, dtype: torch.dtype) -> Tensor:
    y = torch.empty(pattern.num_edges, dtype=dtype, device=weights.device)
    arguments = (
        weights, pattern.senders, pattern.receivers, _sums(pattern, weights, with_loops), y, pattern.num_edges,
        is_mean, with_loops, BLOCK,
    )  # fmt: skip
    launch(_normalize_kernel, (ceil_div(pattern.num_edges, BLOCK),), arguments)
    return y


def mean_weights(pattern: Pattern, weights: Tensor) -> Tensor:
    """Weights divided by their sum at the receiver."""
    return _normalized(pattern, weights.contiguous(), True, True, weights.dtype)


def symmetric_weights(pattern: Pattern, weights: Tensor, with_loops: bool, dtype: torch.dtype) -> Tensor:
    """Weights divided by the roots of their sums at both ends, in float64 until the end; 1/√0 counts as 0. Unless
    ``with_loops``, sums leave out self-loops, whose weights stay as they are."""
    return _normalized(pattern, weights, False, with_loops, dtype)
