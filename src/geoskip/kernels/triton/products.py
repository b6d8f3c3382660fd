"""Products on CUDA: of a sparse matrix with every item of a batch, and of two tall matrices over their rows.

The latter are the gradients of what all vertices share. General matrix products split them badly, because they are
short in both other axes: here each program sums a part of the rows, and :func:`add_parts` adds the parts of all
gradients in one launch, in a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.pattern import sizes_of
from geoskip.kernels.triton.blocks import product
from geoskip.kernels.triton.launch import (
    CACHE_SIZE,
    SIZES,
    LaunchPlan,
    ceil_div,
    launch,
    power_of_two,
    precision,
    shares,
)

# Programs that share the rows, the rows of a block, and the most partial sums.
PROGRAMS, ROWS, MAX_PARTIAL = 264, 64, 1 << 21
# Rows and columns of a block of parts, and how many gradients one launch adds up.
PART_ROWS, PART_COLUMNS, MAX_SUMS = 64, 32, 6
# ChebNet's polynomials that are held at a time may take this many bytes.
TERMS_BYTES = 32 << 20


@triton.jit(do_not_specialize=SIZES)
def _spmm_kernel(
    x, weights, minus, y, neighbors, order, offsets, num_senders, num_receivers, C, stride_x, stride_m, stride_y, scale,
    HAS_ORDER: tl.constexpr, HAS_MINUS: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    i_v, i_b, i_c = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    o_v = i_v * BLOCK_V + tl.arange(0, BLOCK_V)
    m_v = o_v < num_receivers
    o_c = i_c * BLOCK_C + tl.arange(0, BLOCK_C)
    m_c = o_c < C
    x += i_b * num_senders * stride_x
    b_start = tl.load(offsets + o_v, mask=m_v, other=0)
    b_degree = tl.load(offsets + o_v + 1, mask=m_v, other=0) - b_start
    b_y = tl.zeros([BLOCK_V, BLOCK_C], dtype=tl.float32)
    for k in range(tl.max(b_degree, axis=0)):
        m_e = k < b_degree
        o_e = b_start + k
        if HAS_ORDER:
            o_e = tl.load(order + o_e, mask=m_e, other=0)
        b_j = tl.load(neighbors + o_e, mask=m_e, other=0)
        b_w = tl.load(weights + o_e, mask=m_e, other=0.0).to(tl.float32)
        m_x = (k < b_degree[:, None]) & m_c[None, :]
        b_x = tl.load(x + b_j[:, None] * stride_x + o_c[None, :], mask=m_x, other=0.0)
        b_y += b_w[:, None] * b_x.to(tl.float32)
    b_y *= scale
    o_row = i_b * num_receivers + o_v[:, None]
    m_y = m_v[:, None] & m_c[None, :]
    if HAS_MINUS:
        b_y -= tl.load(minus + o_row * stride_m + o_c[None, :], mask=m_y, other=0.0).to(tl.float32)
    tl.store(y + o_row * stride_y + o_c[None, :], b_y.to(y.dtype.element_ty), mask=m_y)


def spmm(
    x: Tensor, weights: Tensor, neighbors: Tensor, order: Tensor | None, offsets: Tensor, scale: float = 1.0,
    minus: Tensor | None = None, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """``scale * W x - minus``. Row i of W has the edges ``offsets[0, i] : offsets[0, i + 1]``, or of ``order``. Rows
    of x, ``minus`` and ``out`` are contiguous, with any distance from one to the next."""
    (batch, num_senders, channels), num_receivers = sizes_of(x), offsets.shape[1] - 1
    y = x.new_empty(*x.shape[:-2], num_receivers, channels) if out is None else out
    if y.numel() == 0:
        return y
    block_c = power_of_two(channels, 1, 128)
    block_v = max(1, min(64, 2048 // block_c))
    arguments = (
        x, weights, minus, y, neighbors, order, offsets, num_senders, num_receivers, channels,
        x.stride(-2), 0 if minus is None else minus.stride(-2), y.stride(-2), scale,
        order is not None, minus is not None, block_v, block_c,
    )  # fmt: skip
    launch(_spmm_kernel, (ceil_div(num_receivers, block_v), batch, ceil_div(channels, block_c)), arguments, 4)
    return y


@triton.jit(do_not_specialize=SIZES)
def _over_rows_kernel(
    x, g, products, sums, num_rows, C, O, num_parts,
    NEEDS_PRODUCT: tl.constexpr, NEEDS_SUM: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    i_p, i_c, i_o = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    o_c, o_o = i_c * BLOCK_C + tl.arange(0, BLOCK_C), i_o * BLOCK_O + tl.arange(0, BLOCK_O)
    m_c, m_o = o_c < C, o_o < O
    b_product = tl.zeros([BLOCK_C, BLOCK_O], dtype=tl.float32)
    b_sum = tl.zeros([BLOCK_R, BLOCK_O], dtype=tl.float32)
    for i_r in range(i_p * BLOCK_R, num_rows, num_parts * BLOCK_R):
        o_r = i_r + tl.arange(0, BLOCK_R)
        m_r = o_r < num_rows
        o_r = o_r.to(tl.int64)
        b_g = tl.load(g + o_r[:, None] * O + o_o[None, :], mask=m_r[:, None] & m_o[None, :], other=0.0)
        if NEEDS_SUM:
            b_sum += b_g.to(tl.float32)
        if NEEDS_PRODUCT:
            b_x = tl.load(x + o_r[:, None] * C + o_c[None, :], mask=m_r[:, None] & m_c[None, :], other=0.0)
            b_product += product(tl.trans(b_x).to(b_g.dtype), b_g, PRECISION)
    if NEEDS_PRODUCT:
        o_out = (i_p.to(tl.int64) * C + o_c[:, None]) * O + o_o[None, :]
        tl.store(products + o_out, b_product, mask=m_c[:, None] & m_o[None, :])
    if NEEDS_SUM:
        # Programs of other columns of x write the same numbers.
        tl.store(sums + i_p * O + o_o, tl.sum(b_sum, axis=0), mask=m_o)


def over_rows(x: Tensor, g: Tensor, needs_product: bool, needs_sum: bool) -> tuple[Tensor | None, Tensor | None]:
    """xᵀ g and the sums of the columns of g, of x [*rows, in] and g [*rows, out], in float32 and in parts: [parts, in,
    out] and [parts, out]. For the sums alone, x may have other rows."""
    if not (needs_product or needs_sum):
        return None, None
    channels, out = x.shape[-1], g.shape[-1]
    num_rows = g.shape[:-1].numel()
    if not channels * num_rows * out:
        zeros = x.new_zeros(1, channels, out, dtype=torch.float32)
        return zeros if needs_product else None, zeros.sum(1) if needs_sum else None
    parts, columns, c, o = _row_tiles(num_rows, channels, out, needs_product)
    products = x.new_empty(parts, channels, out, dtype=torch.float32) if needs_product else None
    sums = x.new_empty(parts, out, dtype=torch.float32) if needs_sum else None
    arguments = (
        x, g, products, sums, num_rows, channels, out, parts, needs_product, needs_sum, ROWS, c, o, precision()
    )  # fmt: skip
    launch(_over_rows_kernel, (parts, columns, ceil_div(out, o)), arguments, warps=2 if max(c, o) <= 32 else 4)
    return products, sums


@triton.jit
def _add_columns(parts, y, i_c, num_parts, N, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """One block of the columns of parts [num_parts, N], if there is a block ``i_c``; else nothing."""
    o_c = i_c * COLUMNS + tl.arange(0, COLUMNS)
    m_c = (o_c >= 0) & (o_c < N)
    b_sum = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    # The first number of a block tells whether it exists: other blocks have no rows.
    for i_r in range(0, tl.where((i_c >= 0) & (i_c * COLUMNS < N), num_parts, 0), ROWS):
        o_r = i_r + tl.arange(0, ROWS)
        m_r = o_r < num_parts
        p_part = parts + o_r[:, None].to(tl.int64) * N + o_c[None, :]
        b_sum += tl.load(p_part, mask=m_r[:, None] & m_c[None, :], other=0.0)
    tl.store(y + o_c, tl.sum(b_sum, axis=0).to(y.dtype.element_ty), mask=m_c)
    return i_c - tl.cdiv(N, COLUMNS)


_COUNTS = tuple(f"{name}_{k}" for k in range(MAX_SUMS) for name in ("num", "N"))


@triton.jit(do_not_specialize=_COUNTS)
def _add_parts_kernel(
    p_0, p_1, p_2, p_3, p_4, p_5, y_0, y_1, y_2, y_3, y_4, y_5,
    num_0, N_0, num_1, N_1, num_2, N_2, num_3, N_3, num_4, N_4, num_5, N_5, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    # The programs of each sum follow those of the sum before it.
    i_c = tl.program_id(0)
    i_c = _add_columns(p_0, y_0, i_c, num_0, N_0, ROWS, COLUMNS)
    i_c = _add_columns(p_1, y_1, i_c, num_1, N_1, ROWS, COLUMNS)
    i_c = _add_columns(p_2, y_2, i_c, num_2, N_2, ROWS, COLUMNS)
    i_c = _add_columns(p_3, y_3, i_c, num_3, N_3, ROWS, COLUMNS)
    i_c = _add_columns(p_4, y_4, i_c, num_4, N_4, ROWS, COLUMNS)
    _add_columns(p_5, y_5, i_c, num_5, N_5, ROWS, COLUMNS)


def add_parts(parts: Sequence[Tensor | None], like: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The sum of each tensor over its first axis, with the shape and dtype of the tensor in ``like``; None for None.
    Parts [parts, numbers] are in the order in which ``like`` lies in memory, others in that of its axes."""
    sums: list[Tensor | None] = []
    given, outputs = [], []
    for part, one in zip(parts, like, strict=True):
        if part is None or one is None:
            sums.append(None)
            continue
        if part.dim() == 2 or one.is_contiguous():
            y = torch.empty_like(one)
        else:
            y = torch.empty_like(one, memory_format=torch.contiguous_format)
        sums.append(y)
        given.append(part)
        outputs.append(y)
    if given:
        plan = _plan_of_sums(*[part.shape for part in given])
        unused = MAX_SUMS - len(given)
        plan(*given, *given[:1] * unused, *outputs, *outputs[:1] * unused)
    return sums


@lru_cache(CACHE_SIZE)
def _plan_of_sums(*shapes: tuple[int, ...]) -> LaunchPlan:
    """How to add parts of these shapes."""
    counts = [count for num_parts, *shape in shapes for count in (num_parts, prod(shape))]
    blocks = sum(ceil_div(length, PART_COLUMNS) for length in counts[1::2])
    numbers = (*counts, *[0] * (2 * MAX_SUMS - len(counts)), PART_ROWS, PART_COLUMNS)
    return LaunchPlan(_add_parts_kernel, (max(1, blocks),), numbers)


@lru_cache(CACHE_SIZE)
def _row_tiles(num_rows: int, channels: int, out: int, needs_product: bool) -> tuple[int, int, int, int]:
    """Programs along the rows and along the columns of x, and the columns of a block of x and of g."""
    blocks, o = ceil_div(num_rows, ROWS), power_of_two(out, 16, 64)
    if not needs_product:
        return shares(blocks, PROGRAMS, ceil_div(out, o)), 1, 16, o
    c = power_of_two(channels, 16, 64)
    columns = ceil_div(channels, c)
    parts = shares(blocks, PROGRAMS, columns * ceil_div(out, o))
    return max(1, min(parts, MAX_PARTIAL // (channels * out))), columns, c, o
