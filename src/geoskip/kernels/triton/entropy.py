"""Cross-entropy on CUDA: one pass over the scores gives the losses and leaves the gradients in the scores' place."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

from geoskip.kernels.triton.launch import launch
from geoskip.kernels.triton.tiles import ceil_div, power_of_two

# Programs add up the gradient of the bias over their rows: two for each multiprocessor, few enough to sum again.
PROGRAMS = 264
# Columns at a time: a row is held in blocks of these, which waste less than one block of a power of two.
BLOCK = 1024
# From so many classes on, two programs no longer fit on a multiprocessor.
MOST_BOUND = 7 * BLOCK


@triton.jit
def _row_of(scores, o_row, limit, o_c, BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    """A row as blocks of columns, as far as ``limit``."""
    b_row = ()
    for n in tl.static_range(BLOCKS):
        b_one = tl.load(scores + o_row + n * BLOCK + o_c, mask=n * BLOCK + o_c < limit, other=0.0)
        b_row = b_row + (b_one.to(tl.float32),)
    return b_row


@triton.jit
def _add_both(a_1, b_1, a_2, b_2):
    return a_1 + a_2, b_1 + b_2


@triton.jit(do_not_specialize=("num_rows", "num_parts"))
def _entropy_kernel(
    scores, bias, labels, shares, losses, grad_bias, num_rows, stride, num_parts,
    BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i_p = tl.program_id(0)
    o_c = tl.arange(0, BLOCK)
    b_sum = ()
    for _ in tl.static_range(BLOCKS):
        b_sum = b_sum + (tl.zeros([BLOCK], dtype=tl.float32),)
    b_next = _row_of(scores, tl.cast(i_p, tl.int64) * stride, stride, o_c, BLOCKS, BLOCK)
    for i_r in range(i_p, num_rows, num_parts):
        o_row, i_next = tl.cast(i_r, tl.int64) * stride, i_r + num_parts
        i_label = tl.load(labels + i_r)
        b_share = tl.where(i_label < 0, 0.0, tl.load(shares + i_r).to(tl.float32))
        # The next row is on its way while this one is worked on; nothing is read beyond the last.
        b_row = b_next
        limit = tl.where(i_next < num_rows, stride, 0)
        b_next = _row_of(scores, tl.cast(i_next, tl.int64) * stride, limit, o_c, BLOCKS, BLOCK)
        b_score = ()
        b_top = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
        for n in tl.static_range(BLOCKS):
            b_bias = tl.load(bias + n * BLOCK + o_c, mask=n * BLOCK + o_c < stride, other=float("-inf"))
            b_score = b_score + (b_row[n] + b_bias,)
            b_top = tl.maximum(b_top, b_score[n])
        b_most = tl.max(b_top, axis=0)
        b_exp = ()
        b_part, b_at = tl.zeros([BLOCK], dtype=tl.float32), tl.zeros([BLOCK], dtype=tl.float32)
        for n in tl.static_range(BLOCKS):
            b_exp = b_exp + (tl.exp(b_score[n] - b_most),)
            b_part += b_exp[n]
            b_at += tl.where(n * BLOCK + o_c == i_label, b_score[n], 0.0)
        b_total, b_own = tl.reduce((b_part, b_at), 0, _add_both)
        tl.store(losses + i_r, tl.where(i_label < 0, 0.0, b_share * (tl.log(b_total) + b_most - b_own)))
        b_factor = b_share / b_total
        b_more = ()
        for n in tl.static_range(BLOCKS):
            o_n = n * BLOCK + o_c
            b_grad = b_exp[n] * b_factor - tl.where(o_n == i_label, b_share, 0.0)
            tl.store(scores + o_row + o_n, b_grad.to(scores.dtype.element_ty), mask=o_n < stride)
            b_more = b_more + (b_sum[n] + b_grad,)
        b_sum = b_more
    for n in tl.static_range(BLOCKS):
        o_n = n * BLOCK + o_c
        tl.store(grad_bias + i_p * stride + o_n, b_sum[n], mask=o_n < stride)


def entropy(scores: Tensor, bias: Tensor | None, labels: Tensor, shares: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Losses Σ of scores + bias in rows padded beyond ``classes``, and the gradient of the bias; ``scores`` is
    overwritten with its own gradient."""
    rows, stride = scores.shape
    parts = min(rows, PROGRAMS)
    losses = torch.empty(rows, device=scores.device, dtype=torch.float32)
    grad_bias = torch.empty(parts, stride, device=scores.device, dtype=torch.float32)
    # Minus infinity keeps the padding out, so that no other mask cuts the reads into small ones.
    if bias is None:
        bias = torch.zeros(classes, device=scores.device)
    bias = pad(bias.float(), (0, stride - classes), value=float("-inf"))
    block = power_of_two(stride, 16, BLOCK)
    arguments = (scores, bias, labels, shares, losses, grad_bias, rows, stride, parts, ceil_div(stride, block), block)
    warps, registers = (8, 128) if stride <= MOST_BOUND else (16, None)
    if rows:
        launch(_entropy_kernel, (parts,), arguments, warps if block == BLOCK else 4, registers=registers)
    return losses.sum(), grad_bias.sum(0)[:classes]
