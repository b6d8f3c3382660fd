"""Products on CUDA: of a sparse matrix with every item of a batch, of several terms with a matrix each, and of two tall
matrices over their rows.

The last are the gradients of what all vertices share. General matrix products split them badly, because they are
short in both other axes: here each program sums a part of the rows, and :func:`add_parts` adds the parts of all
gradients in one launch, in a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.triton.blocks import product, zeros_of
from geoskip.kernels.triton.launch import (
    CACHE_SIZE,
    ENOUGH_BLOCKS,
    SIZES,
    LaunchPlan,
    Shape,
    ceil_div,
    power_of_two,
    precision,
    shares,
)

# Programs that share the rows: as many as an H200 runs at a time, which is fewer if each has several terms. Fewer than
# that leave memory idle while they multiply.
PROGRAMS, TERM_PROGRAMS = 528, 264
# Rows of a block; up to this many rows of several terms, blocks are lower.
ROWS, SMALL = 32, 4096
# The most terms at a time, for all of which x is read once, and the most partial sums.
MAX_TERMS, MAX_PARTIAL = 4, 1 << 21
# Numbers of a block of parts, its rows if there are many or few parts, its warps, and how many gradients one launch
# adds up.
PART_BLOCK, PART_ROWS, FEW_ROWS, PART_WARPS, MAX_SUMS = 8192, 256, 16, 8, 6
# Numbers that a program of a sparse product computes, its neighbors at a time, and its warps. With more rows, more of
# its neighbors are in the cache already; graphs that would have fewer programs than this take the second choice.
SPMM_TILES, SPMM_PROGRAMS = ((4096, 2, 16), (512, 4, 4)), 528


@triton.jit(do_not_specialize=SIZES)
def _spmm_kernel(
    x, weights, minus, y, neighbors, order, offsets, num_senders, num_receivers, C, scale,
    HAS_ORDER: tl.constexpr, HAS_MINUS: tl.constexpr, AT_ONCE: tl.constexpr, BLOCK_V: tl.constexpr,
    BLOCK_C: tl.constexpr,
):  # fmt: skip
    i_v, i_b, i_c = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    o_v = i_v * BLOCK_V + tl.arange(0, BLOCK_V)
    m_v = o_v < num_receivers
    o_c = i_c * BLOCK_C + tl.arange(0, BLOCK_C)
    m_c = o_c < C
    x += i_b * num_senders * C
    b_start = tl.load(offsets + o_v, mask=m_v, other=0)
    b_degree = tl.load(offsets + o_v + 1, mask=m_v, other=0) - b_start
    b_y = tl.zeros([BLOCK_V, BLOCK_C], dtype=tl.float32)
    for k in range(0, tl.max(b_degree, axis=0), AT_ONCE):
        # All loads of a kind before the first that needs one of them, so that memory answers them together.
        m_e, o_e = (), ()
        for n in tl.static_range(AT_ONCE):
            m_e = m_e + (k + n < b_degree,)
            if HAS_ORDER:
                o_e = o_e + (tl.load(order + b_start + k + n, mask=m_e[n], other=0),)
            else:
                o_e = o_e + (b_start + k + n,)
        b_j, b_w = (), ()
        for n in tl.static_range(AT_ONCE):
            b_j = b_j + (tl.load(neighbors + o_e[n], mask=m_e[n], other=0),)
            b_w = b_w + (tl.load(weights + o_e[n], mask=m_e[n], other=0.0).to(tl.float32),)
        b_x = ()
        for n in tl.static_range(AT_ONCE):
            # Triton 3.6 cannot compile the same of m_e.
            m_x = (k + n < b_degree[:, None]) & m_c[None, :]
            b_x = b_x + (tl.load(x + b_j[n][:, None] * C + o_c[None, :], mask=m_x, other=0.0).to(tl.float32),)
        for n in tl.static_range(AT_ONCE):
            b_y += b_w[n][:, None] * b_x[n]
    b_y *= scale
    o_y = (i_b * num_receivers + o_v[:, None]) * C + o_c[None, :]
    m_y = m_v[:, None] & m_c[None, :]
    if HAS_MINUS:
        b_y -= tl.load(minus + o_y, mask=m_y, other=0.0).to(tl.float32)
    tl.store(y + o_y, b_y.to(y.dtype.element_ty), mask=m_y)


def spmm(
    x: Tensor, weights: Tensor, neighbors: Tensor, order: Tensor | None, offsets: Tensor, scale: float = 1.0,
    minus: Tensor | None = None, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """``scale * W x - minus``. Row i of W has the edges ``offsets[0, i] : offsets[0, i + 1]``, or of ``order``. All
    tensors are contiguous; ``out`` may be ``minus``, but not x."""
    shape, plan = spmm_plan(x.shape, offsets.shape, scale, order is not None, minus is not None)
    y = x.new_empty(*shape) if out is None else out
    if plan is not None:
        plan(x, weights, minus, y, neighbors, order, offsets)
    return y


@lru_cache(CACHE_SIZE)
def spmm_plan(
    x: Shape, offsets: Shape, scale: float, has_order: bool, has_minus: bool
) -> tuple[Shape, LaunchPlan | None]:
    """The shape of y, and how to launch the kernel; None if y is empty."""
    *items, num_senders, channels = x
    batch, num_receivers = prod(items), offsets[1] - 1
    shape = *items, num_receivers, channels
    if not prod(shape):
        return shape, None
    grid, at_once, block_v, block_c, warps = _spmm_tiles(batch, num_receivers, channels)
    numbers = num_senders, num_receivers, channels, scale, has_order, has_minus, at_once, block_v, block_c
    return shape, LaunchPlan(_spmm_kernel, grid, numbers, warps)


def _spmm_tiles(batch: int, num_receivers: int, channels: int) -> tuple[tuple[int, int, int], int, int, int, int]:
    """The grid, the neighbors at a time, the rows and columns of a block, and the warps."""
    c = power_of_two(channels, 1, 128)
    columns = ceil_div(channels, c)
    for numbers, at_once, warps in SPMM_TILES:
        v = max(1, min(numbers // c, 128))
        grid = ceil_div(num_receivers, v), batch, columns
        if grid[0] * batch * columns >= SPMM_PROGRAMS:
            break
    return grid, at_once, v, c, warps


@triton.jit(do_not_specialize=SIZES)
def _multiply_kernel(
    x, terms, center, skip, theta, bias, y, num_rows, num_terms, K, N, num_blocks, stride_k, stride_n,
    HAS_CENTER: tl.constexpr, HAS_SKIP: tl.constexpr, HAS_BIAS: tl.constexpr, ADDS: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    i_r, i_n = tl.program_id(0), tl.program_id(1)
    o_r = i_r * BLOCK_R + tl.arange(0, BLOCK_R)
    m_r = o_r < num_rows
    o_r = o_r.to(tl.int64)
    o_n = i_n * BLOCK_N + tl.arange(0, BLOCK_N)
    m_n = o_n < N
    o_y = o_r[:, None] * N + o_n[None, :]
    m_y = m_r[:, None] & m_n[None, :]
    b_y = tl.zeros([BLOCK_R, BLOCK_N], dtype=tl.float32)
    if HAS_CENTER or HAS_SKIP:
        for i_k in range(num_blocks):
            o_k = i_k * BLOCK_K + tl.arange(0, BLOCK_K)
            m_k = o_k < K
            b_x = tl.load(x + o_r[:, None] * K + o_k[None, :], mask=m_r[:, None] & m_k[None, :], other=0.0)
            o_m, m_m = o_k[:, None] * stride_k + o_n[None, :] * stride_n, m_k[:, None] & m_n[None, :]
            if HAS_CENTER:
                b_m = tl.load(center + o_m, mask=m_m, other=0.0)
                if HAS_SKIP:
                    b_m += tl.load(skip + o_m, mask=m_m, other=0.0)
            else:
                b_m = tl.load(skip + o_m, mask=m_m, other=0.0)
            b_y += product(b_x, b_m, PRECISION)
    # One loop over the blocks of all terms, so that those of the next term are loaded ahead.
    for i in range(num_terms * num_blocks):
        o_k = i % num_blocks * BLOCK_K + tl.arange(0, BLOCK_K)
        m_k = o_k < K
        o_t = tl.cast(i // num_blocks, tl.int64) * K
        p_term = terms + o_t * num_rows + o_r[:, None] * K + o_k[None, :]
        p_theta = theta + o_t * N + o_k[:, None] * stride_k + o_n[None, :] * stride_n
        b_term = tl.load(p_term, mask=m_r[:, None] & m_k[None, :], other=0.0)
        b_theta = tl.load(p_theta, mask=m_k[:, None] & m_n[None, :], other=0.0)
        b_y += product(b_term, b_theta, PRECISION)
    if HAS_BIAS:
        b_y += tl.load(bias + o_n, mask=m_n, other=0.0).to(tl.float32)[None, :]
    if ADDS:
        b_y += tl.load(y + o_y, mask=m_y, other=0.0).to(tl.float32)
    tl.store(y + o_y, b_y.to(y.dtype.element_ty), mask=m_y)


class OwnTerm(NamedTuple):
    """x Θ_0 + x A + b, where each matrix and b may be missing."""

    x: Tensor
    center: Tensor | None
    skip: Tensor | None
    bias: Tensor | None


def multiply_terms(y: Tensor, own: OwnTerm | None, terms: Tensor, theta: Tensor, transposed: bool) -> None:
    """Write the product of x, and the sum of those of terms [slots, *rows, channels] with Θ, into y; without ``own``,
    add to y. ``transposed`` is whether all matrices are to be."""
    x, center, skip, bias = (terms, None, None, None) if own is None else own
    kinds = center is not None, skip is not None, bias is not None, own is None
    plan = _multiply_plan(y.shape, terms.shape[0], terms.shape[-1], transposed, kinds, precision())
    if plan is not None:
        plan(x, terms, center, skip, theta, bias, y)


@lru_cache(CACHE_SIZE)
def _multiply_plan(
    y: Shape, num_terms: int, inner: int, transposed: bool, kinds: tuple[bool, ...], precision: str
) -> LaunchPlan | None:
    """How to launch the kernel; None if y is empty. ``kinds`` are whether there is a center, a skip and a bias, and
    whether to add to y."""
    *rows, outer = y
    num_rows = prod(rows)
    if not num_rows * outer:
        return None
    r, k, n, warps = _multiply_tiles(num_rows, inner, outer)
    strides = (1, inner) if transposed else (outer, 1)
    numbers = num_rows, num_terms, inner, outer, ceil_div(inner, k), *strides, *kinds, r, k, n, precision
    return LaunchPlan(_multiply_kernel, (ceil_div(num_rows, r), ceil_div(outer, n)), numbers, warps)


def _multiply_tiles(num_rows: int, inner: int, outer: int) -> tuple[int, int, int, int]:
    """Rows of a block, its channels of the terms and of y, and warps."""
    k, n = power_of_two(inner, 16, 32), power_of_two(outer, 16, 64)
    if ceil_div(num_rows, 32) * ceil_div(outer, n) < ENOUGH_BLOCKS:
        return 16, power_of_two(inner, 16, 64), n, 4
    # Wide graphs are often small: they need more programs.
    return 64 if n <= 32 else 32, k, n, 4


@triton.jit(do_not_specialize=SIZES)
def _over_rows_kernel(
    x, g, products, sums, num_rows, C, O, num_terms, num_parts,
    NEEDS_PRODUCT: tl.constexpr, NEEDS_SUM: tl.constexpr, TERMS: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_O: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    # Programs of the same rows follow each other, so that the cache has the rows of x.
    columns = tl.cdiv(O, BLOCK_O)
    i_c, i_p = tl.program_id(1), tl.program_id(2)
    i_o, i_t = tl.program_id(0) % columns, tl.program_id(0) // columns * TERMS
    o_c, o_o = i_c * BLOCK_C + tl.arange(0, BLOCK_C), i_o * BLOCK_O + tl.arange(0, BLOCK_O)
    m_c, m_o = o_c < C, o_o < O
    b_product = zeros_of(TERMS, BLOCK_C, BLOCK_O)
    b_sum = tl.zeros([BLOCK_R, BLOCK_O], dtype=tl.float32)
    for i_r in range(i_p * BLOCK_R, num_rows, num_parts * BLOCK_R):
        o_r = i_r + tl.arange(0, BLOCK_R)
        m_r = o_r < num_rows
        o_r = o_r.to(tl.int64)
        b_g = ()
        for t in tl.static_range(TERMS):
            m_g = m_r if TERMS == 1 else o_r < tl.where(i_t + t < num_terms, num_rows, 0)
            p_g = g + (i_t + t).to(tl.int64) * num_rows * O + o_r[:, None] * O + o_o[None, :]
            b_g = b_g + (tl.load(p_g, mask=m_g[:, None] & m_o[None, :], other=0.0),)
        if NEEDS_SUM:
            for t in tl.static_range(TERMS):
                b_sum += tl.where(i_t + t == num_terms - 1, b_g[t].to(tl.float32), 0.0)
        if NEEDS_PRODUCT:
            b_x = tl.load(x + o_r[:, None] * C + o_c[None, :], mask=m_r[:, None] & m_c[None, :], other=0.0)
            b_x = tl.trans(b_x)
            b_more = ()
            for t in tl.static_range(TERMS):
                b_more = b_more + (b_product[t] + product(b_x.to(b_g[t].dtype), b_g[t], PRECISION),)
            b_product = b_more
    if NEEDS_PRODUCT:
        for t in tl.static_range(TERMS):
            o_out = ((i_p.to(tl.int64) * num_terms + i_t + t) * C + o_c[:, None]) * O + o_o[None, :]
            m_out = m_c if TERMS == 1 else o_c < tl.where(i_t + t < num_terms, C, 0)
            tl.store(products + o_out, b_product[t], mask=m_out[:, None] & m_o[None, :])
    if NEEDS_SUM:
        # Programs of other columns of x write the same numbers.
        m_sum = o_o < tl.where(i_t + TERMS >= num_terms, O, 0)
        tl.store(sums + i_p * O + o_o, tl.sum(b_sum, axis=0), mask=m_sum)


def over_rows(
    x: Tensor, g: Tensor, needs_product: bool, needs_sum: bool, num_terms: int = 1
) -> tuple[Tensor | None, Tensor | None]:
    """xᵀ g and the sums of the columns of g, of x [*rows, in] and g [*rows, out], in float32 and in parts: [parts,
    terms, in, out] and [parts, out]. For the sums alone, x may have other rows. There can be several terms, g [terms,
    *rows, out]; then the sums are those of the last one."""
    if not (needs_product or needs_sum):
        return None, None
    shape, out = g.shape, g.shape[-1]
    num_rows, channels = prod(shape[:-1]) // num_terms, x.shape[-1]
    if not channels * num_rows * out:
        zeros = x.new_zeros(1, num_terms, channels, out, dtype=torch.float32)
        return zeros if needs_product else None, zeros[:, -1].sum(1) if needs_sum else None
    parts, plan = _row_plan(num_rows, channels, out, num_terms, needs_product, needs_sum, precision())
    products = x.new_empty(parts, num_terms, channels, out, dtype=torch.float32) if needs_product else None
    sums = x.new_empty(parts, out, dtype=torch.float32) if needs_sum else None
    plan(x, g, products, sums)
    return products, sums


@lru_cache(CACHE_SIZE)
def _row_plan(
    num_rows: int, channels: int, out: int, num_terms: int, needs_product: bool, needs_sum: bool, precision: str
) -> tuple[int, LaunchPlan]:
    """How many parts there are, and how to launch the kernel."""
    parts, groups, columns, *tiles, warps = _row_tiles(num_rows, channels, out, num_terms, needs_product)
    numbers = num_rows, channels, out, num_terms, parts, needs_product, needs_sum, *tiles, precision
    return parts, LaunchPlan(_over_rows_kernel, (groups, columns, parts), numbers, warps)


@triton.jit
def _add_columns(parts, y, i_c, num_parts, N, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """One block of the columns of parts [num_parts, N], if there is a block ``i_c``; else nothing."""
    if (i_c >= 0) & (i_c * COLUMNS < N):
        o_c = i_c * COLUMNS + tl.arange(0, COLUMNS)
        m_c = o_c < N
        b_sum = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
        for i_r in range(0, num_parts, ROWS):
            o_r = i_r + tl.arange(0, ROWS)
            m_r = o_r < num_parts
            p_part = parts + o_r[:, None].to(tl.int64) * stride + o_c[None, :]
            b_sum += tl.load(p_part, mask=m_r[:, None] & m_c[None, :], other=0.0)
        tl.store(y + o_c, tl.sum(b_sum, axis=0).to(y.dtype.element_ty), mask=m_c)
    return i_c - tl.cdiv(N, COLUMNS)


_COUNTS = tuple(f"{name}_{k}" for k in range(MAX_SUMS) for name in ("num", "N", "stride"))


@triton.jit(do_not_specialize=_COUNTS)
def _add_parts_kernel(
    p_0, p_1, p_2, p_3, p_4, p_5, y_0, y_1, y_2, y_3, y_4, y_5,
    num_0, N_0, stride_0, num_1, N_1, stride_1, num_2, N_2, stride_2, num_3, N_3, stride_3, num_4, N_4, stride_4,
    num_5, N_5, stride_5, ROWS_0: tl.constexpr, ROWS_1: tl.constexpr, ROWS_2: tl.constexpr, ROWS_3: tl.constexpr,
    ROWS_4: tl.constexpr, ROWS_5: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    # The programs of each sum follow those of the sum before it.
    i_c = tl.program_id(0)
    i_c = _add_columns(p_0, y_0, i_c, num_0, N_0, stride_0, ROWS_0, BLOCK // ROWS_0)
    i_c = _add_columns(p_1, y_1, i_c, num_1, N_1, stride_1, ROWS_1, BLOCK // ROWS_1)
    i_c = _add_columns(p_2, y_2, i_c, num_2, N_2, stride_2, ROWS_2, BLOCK // ROWS_2)
    i_c = _add_columns(p_3, y_3, i_c, num_3, N_3, stride_3, ROWS_3, BLOCK // ROWS_3)
    i_c = _add_columns(p_4, y_4, i_c, num_4, N_4, stride_4, ROWS_4, BLOCK // ROWS_4)
    _add_columns(p_5, y_5, i_c, num_5, N_5, stride_5, ROWS_5, BLOCK // ROWS_5)


def add_parts(parts: Sequence[Tensor | None], like: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The sum of each tensor over its first axis, with the shape and dtype of the tensor in ``like``; None for None.
    Parts [parts, numbers] are in the order in which ``like`` lies in memory, others in that of its axes. Each part is
    contiguous."""
    sums: list[Tensor | None] = []
    given: list[Tensor] = []
    outputs: list[Tensor] = []
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
    _add_parts(given, outputs)
    return sums


def add_parts_into(sums: Sequence[tuple[Tensor | None, Tensor | None]]) -> None:
    """Write the sum of each first tensor over its first axis into the second, which is contiguous. Pairs with None are
    left out."""
    present = [(parts, y) for parts, y in sums if parts is not None and y is not None]
    _add_parts([parts for parts, _ in present], [y for _, y in present])


def _add_parts(parts: list[Tensor], sums: list[Tensor]) -> None:
    for first in range(0, len(parts), MAX_SUMS):
        given, outputs = parts[first : first + MAX_SUMS], sums[first : first + MAX_SUMS]
        plan = _plan_of_sums(*[part.shape for part in given], *[part.stride() for part in given])
        unused = MAX_SUMS - len(given)
        plan(*given, *given[:1] * unused, *outputs, *outputs[:1] * unused)


@lru_cache(CACHE_SIZE)
def _plan_of_sums(*layouts: tuple[int, ...]) -> LaunchPlan:
    """How to add parts with these shapes and, in the second half, these strides."""
    half = len(layouts) // 2
    counts = [(s[0], prod(s[1:]), strides[0]) for s, strides in zip(layouts[:half], layouts[half:], strict=True)]
    rows = [FEW_ROWS if num_parts <= FEW_ROWS else PART_ROWS for num_parts, _, _ in counts]
    blocks = sum(ceil_div(length, PART_BLOCK // high) for (_, length, _), high in zip(counts, rows, strict=True))
    unused = MAX_SUMS - len(counts)
    numbers = (*[n for count in counts for n in count], *[0] * (3 * unused), *rows, *[FEW_ROWS] * unused, PART_BLOCK)
    return LaunchPlan(_add_parts_kernel, (max(1, blocks),), numbers, PART_WARPS)


def _row_tiles(num_rows: int, channels: int, out: int, num_terms: int, needs_product: bool) -> tuple[int, ...]:
    """Programs along the rows, along the terms and columns of g, and along the columns of x; terms at a time; rows,
    columns of x and columns of g of a block; and warps."""
    # With 64 columns of x, Triton would choose instructions that want both factors transposed.
    c, o = power_of_two(channels, 16, 32) if needs_product else 16, power_of_two(out, 16, 64)
    at_once = ceil_div(num_terms, ceil_div(num_terms, MAX_TERMS)) if c * o <= 1024 else 1
    groups, columns = ceil_div(num_terms, at_once) * ceil_div(out, o), ceil_div(channels, c) if needs_product else 1
    parts = shares(ceil_div(num_rows, ROWS), PROGRAMS if at_once == 1 else TERM_PROGRAMS, groups * columns)
    if needs_product:
        parts = max(1, min(parts, MAX_PARTIAL // (num_terms * channels * out)))
    rows = FEW_ROWS if num_terms > 1 and num_rows <= SMALL else ROWS
    return parts, groups, columns, at_once, rows, c, o, 4 if c * o >= 512 else 2
