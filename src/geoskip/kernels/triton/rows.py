"""Sums over the rows of tall matrices, as the gradients of what all vertices share: a few large blocks of rows each,
which are added in one order. Matrix products of the usual kind cut these badly: they are short in both other axes."""

from __future__ import annotations

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels import cpu
from geoskip.kernels.triton.launch import launch
from geoskip.kernels.triton.tensor_cores import product
from geoskip.kernels.triton.tiles import KEPT, ceil_div, power_of_two, precision, shares

# Programs along the rows, and the most numbers of partial sums that they leave.
PROGRAMS, PARTIAL = 264, 1 << 21
ROWS = 64


@triton.jit(do_not_specialize=("num_rows", "num_parts"))
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
    """xᵀ g and the sums of the columns of g, of x [rows, in] and g [rows, out], in float32. For the sums alone x may
    have other rows."""
    channels, (num_rows, out) = x.shape[1], g.shape
    if not channels * num_rows * out:
        return cpu.over_rows(x, g, needs_product, needs_sum)
    parts, columns, c, o = tiles_of(num_rows, channels, out, needs_product)
    products = x.new_empty(parts, channels, out, dtype=torch.float32) if needs_product else None
    sums = x.new_empty(parts, out, dtype=torch.float32) if needs_sum else None
    arguments = (
        x, g, products, sums, num_rows, channels, out, parts, needs_product, needs_sum, ROWS, c, o, precision()
    )  # fmt: skip
    launch(_over_rows_kernel, (parts, columns, ceil_div(out, o)), arguments, warps=2 if max(c, o) <= 32 else 4)
    return None if products is None else products.sum(0), None if sums is None else sums.sum(0)


@lru_cache(KEPT)
def tiles_of(num_rows: int, channels: int, out: int, needs_product: bool) -> tuple[int, int, int, int]:
    """Programs along the rows and along the columns of x, and the columns of a block of x and of g."""
    blocks, o = ceil_div(num_rows, ROWS), power_of_two(out, 16, 64)
    if not needs_product:
        return shares(blocks, PROGRAMS, ceil_div(out, o)), 1, 16, o
    c = power_of_two(channels, 16, 64)
    columns = ceil_div(channels, c)
    parts = shares(blocks, PROGRAMS, columns * ceil_div(out, o))
    return max(1, min(parts, PARTIAL // (channels * out))), columns, c, o
