"""Kernels that only training uses: the cross-entropy of a classifier's last layer, and Adam."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from geoskip.kernels.triton import halves
from geoskip.kernels.triton.halves import exponent, split, unscaled
from geoskip.kernels.triton.launch import (
    SIZES,
    ceil_div,
    launch,
    power_of_two,
)

# Programs of the cross-entropy, which sum the gradient of the bias over their rows: two for each multiprocessor.
ENTROPY_PROGRAMS = 264
# Columns at a time: a row of scores is held in blocks of this size, which waste less than one large power of two.
ENTROPY_BLOCK = 1024
# With more classes than this, two programs no longer fit on a multiprocessor.
MAX_BOUND = 7 * ENTROPY_BLOCK
# Tensor cores want rows of whole 32 bytes: classes, such as 6890, are padded to a multiple of this.
CLASSES_STEP = 8
# Numbers of a program of Adam, and gradients whose addresses one launch passes.
ADAM_BLOCK, ADAM_GRADIENTS = 1024, 32
# Rows of Adam's table of addresses, after those of the parameters and of the two moments.
STEP, GRADIENT = 3, 4


def linear_cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, shares: Tensor
) -> tuple[Tensor | None, ...]:
    """The loss; the gradients of the scores and of the bias; the weight, padded or in halves; and, if it is in halves,
    x in halves and the largest numbers of x, of the weight and of the shares. The scores are stored once and
    overwritten with their gradient."""
    if halves.pays(x, weight):
        tops = halves.largest(x, weight, shares.float())
        left, right = halves.halves(x, tops[0], True), halves.halves(weight, tops[1], False)
        scores = halves.scores(left, right)
        return *_entropy(scores, bias, labels, shares, len(weight), tops), right, left, *tops
    wide = functional.pad(weight, (0, 0, 0, -len(weight) % CLASSES_STEP))
    return *_entropy(x @ wide.t(), bias, labels, shares, len(weight)), wide, None, None, None, None


def linear_cross_entropy_gradients(
    grad: Tensor, needs: Sequence[bool], x: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor,
    shares: Tensor, grad_scores: Tensor, grad_bias: Tensor, right: Tensor, left: Tensor | None, top_x: Tensor | None,
    top_weight: Tensor | None, top_shares: Tensor | None,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    # Not a matrix product first: in a new thread of autograd cuBLAS has no context yet, and warns.
    grad_bias, factor = (grad_bias * grad).to(x.dtype), grad.to(grad_scores.dtype)
    grad_x = grad_weight = None
    if left is not None and top_x is not None and top_weight is not None and top_shares is not None:
        in_halves = grad_scores.view(torch.float16)
        if needs[0]:
            grad_x = halves.gradient_of_left(in_halves, right, (top_shares, top_weight), factor, len(x))
        if needs[1]:
            grad_weight = halves.gradient_of_right(in_halves, left, (top_shares, top_x), factor, len(weight))
    else:
        grad_x = (grad_scores @ right) * factor if needs[0] else None
        grad_weight = (grad_scores.t() @ x)[: len(weight)] * factor if needs[1] else None
    return grad_x, grad_weight, grad_bias if needs[2] else None, None, None


@triton.jit
def _row_of(scores, o_row, limit, o_c, BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    """The columns of a row up to ``limit``, in blocks."""
    b_row = ()
    for n in tl.static_range(BLOCKS):
        b_one = tl.load(scores + o_row + n * BLOCK + o_c, mask=n * BLOCK + o_c < limit, other=0.0)
        b_row = b_row + (b_one.to(tl.float32),)
    return b_row


@triton.jit
def _add_both(a_1, b_1, a_2, b_2):
    return a_1 + a_2, b_1 + b_2


@triton.jit(do_not_specialize=SIZES)
def _entropy_kernel(
    scores, bias, labels, shares, losses, grad_bias, in_halves, top_x, top_weight, top_shares,
    num_labels, num_rows, stride, num_parts, HALVES: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i_p = tl.program_id(0)
    o_c = tl.arange(0, BLOCK)
    if HALVES:
        e_x, e_weight, e_shares = exponent(top_x), exponent(top_weight), exponent(top_shares)
    b_sum = ()
    for _ in tl.static_range(BLOCKS):
        b_sum = b_sum + (tl.zeros([BLOCK], dtype=tl.float32),)
    b_next = _row_of(scores, tl.cast(i_p, tl.int64) * stride, stride, o_c, BLOCKS, BLOCK)
    for i_r in range(i_p, num_rows, num_parts):
        o_row, i_next = tl.cast(i_r, tl.int64) * stride, i_r + num_parts
        i_label = tl.load(labels + i_r, mask=i_r < num_labels, other=-1)
        b_share = tl.load(shares + i_r, mask=i_r < num_labels, other=0.0).to(tl.float32)
        b_share = tl.where(i_label < 0, 0.0, b_share)
        # The next row is loaded while this one is worked on; nothing is read beyond the last.
        b_row = b_next
        limit = tl.where(i_next < num_rows, stride, 0)
        b_next = _row_of(scores, tl.cast(i_next, tl.int64) * stride, limit, o_c, BLOCKS, BLOCK)
        b_score = ()
        b_top = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
        for n in tl.static_range(BLOCKS):
            b_bias = tl.load(bias + n * BLOCK + o_c, mask=n * BLOCK + o_c < stride, other=float("-inf"))
            if HALVES:
                b_score = b_score + (unscaled(b_row[n], e_x, e_weight) + b_bias,)
            else:
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
            if HALVES:
                b_lead, b_rest = split(b_grad, e_shares)
                tl.store(in_halves + 2 * o_row + o_n, b_lead, mask=o_n < stride)
                tl.store(in_halves + 2 * o_row + stride + o_n, b_rest, mask=o_n < stride)
            else:
                tl.store(scores + o_row + o_n, b_grad.to(scores.dtype.element_ty), mask=o_n < stride)
            b_more = b_more + (b_sum[n] + b_grad,)
        b_sum = b_more
    for n in tl.static_range(BLOCKS):
        o_n = n * BLOCK + o_c
        tl.store(grad_bias + i_p * stride + o_n, b_sum[n], mask=o_n < stride)


def _entropy(
    scores: Tensor, bias: Tensor | None, labels: Tensor, shares: Tensor, num_classes: int, tops: tuple[Tensor, ...] = ()
) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of the losses; the scores, overwritten with their gradient; and the gradient of the bias.

    The scores are padded beyond ``num_classes``. Those of :func:`halves.scores` are also padded beyond the labels, and
    are overwritten with halves."""
    rows, stride = scores.shape
    parts = min(rows, ENTROPY_PROGRAMS)
    losses = torch.empty(rows, device=scores.device, dtype=torch.float32)
    grad_bias = torch.empty(parts, stride, device=scores.device, dtype=torch.float32)
    if bias is None:
        bias = torch.zeros(num_classes, device=scores.device)
    # Minus infinity excludes the padding, so that no mask splits the reads into small ones.
    bias = functional.pad(bias.float(), (0, stride - num_classes), value=float("-inf"))
    block = power_of_two(stride, 16, ENTROPY_BLOCK)
    in_halves = (scores.view(torch.float16), *tops) if tops else (None,) * 4
    arguments = (
        scores, bias, labels, shares, losses, grad_bias, *in_halves,
        len(labels), rows, stride, parts, bool(tops), ceil_div(stride, block), block,
    )  # fmt: skip
    warps, registers = (8, 128) if stride <= MAX_BOUND else (16, None)
    if rows:
        launch(_entropy_kernel, (parts,), arguments, warps if block == ENTROPY_BLOCK else 4, registers=registers)
    return losses.sum(), scores, grad_bias.sum(0)[:num_classes]


def locate(parameter: Tensor, mean: Tensor, square: Tensor, step: Tensor) -> tuple[int, ...]:
    """The addresses of a parameter, of the running means of its gradient and of the gradient's square, and of its
    number of steps, a float; and the size of the parameter."""
    return *(tensor.data_ptr() for tensor in (parameter, mean, square, step)), parameter.numel()


class AdamTable:
    """Where parameters and moments are in memory; valid while none of them moves.

    The addresses of the gradients, which change in every step, are arguments of a kernel that writes them into the
    table, so that a captured step needs nothing from the host.

    Attributes:
        addresses: int64 [5, tensors].
        sizes: int64 [tensors], how many numbers each has.
        pieces: int64 [2, programs], the tensor that a program works on and the first of its numbers.
        rates: [2, tensors], of this step: the rate over 1 - β₁ᵗ, and the root of 1 - β₂ᵗ.
        finite: int32 [programs], whether a program's gradients were finite.
    """

    def __init__(self, located: Sequence[tuple[int, ...]], device: torch.device) -> None:
        *rows, sizes = ([*row] for row in zip(*located, strict=True))
        pieces = [(tensor, first) for tensor, size in enumerate(sizes) for first in range(0, size, ADAM_BLOCK)]
        self.addresses = torch.tensor([*rows, [0] * len(sizes)], dtype=torch.int64, device=device)
        self.sizes = torch.tensor(sizes, dtype=torch.int64, device=device)
        self.pieces = torch.tensor(pieces, dtype=torch.int64, device=device).t().contiguous()
        self.rates = torch.empty(2, len(sizes), dtype=torch.float32, device=device)
        self.finite = torch.empty(len(pieces), dtype=torch.int32, device=device)


@triton.jit(do_not_specialize=(*(f"g_{n}" for n in range(ADAM_GRADIENTS)), "first", "num_tensors"))
def _begin_kernel(
    addresses, rates, rate,
    g_0, g_1, g_2, g_3, g_4, g_5, g_6, g_7, g_8, g_9, g_10, g_11, g_12, g_13, g_14, g_15,
    g_16, g_17, g_18, g_19, g_20, g_21, g_22, g_23, g_24, g_25, g_26, g_27, g_28, g_29, g_30, g_31,
    first, num_tensors, ROW_STEP: tl.constexpr, ROW_GRADIENT: tl.constexpr,
    LOG_1: tl.constexpr, LOG_2: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    gradients = (
        g_0, g_1, g_2, g_3, g_4, g_5, g_6, g_7, g_8, g_9, g_10, g_11, g_12, g_13, g_14, g_15,
        g_16, g_17, g_18, g_19, g_20, g_21, g_22, g_23, g_24, g_25, g_26, g_27, g_28, g_29, g_30, g_31,
    )  # fmt: skip
    for n in tl.static_range(COUNT):
        address = gradients[n].to(tl.int64)
        tl.store(addresses + ROW_GRADIENT * num_tensors + first + n, address, mask=first + n < num_tensors)
    o_t = first + tl.arange(0, COUNT)
    m_t = o_t < num_tensors
    p_step = tl.load(addresses + ROW_STEP * num_tensors + o_t, mask=m_t, other=0).to(tl.pointer_type(tl.float32))
    b_step = tl.load(p_step, mask=m_t, other=0.0) + 1.0
    tl.store(p_step, b_step, mask=m_t)
    b_step = b_step.to(tl.float64)
    # In double precision: 1 - βᵗ of the first steps is a small difference.
    b_mean, b_square = 1.0 - tl.exp(b_step * LOG_1), tl.sqrt(1.0 - tl.exp(b_step * LOG_2))
    tl.store(rates + o_t, (tl.load(rate).to(tl.float64) / b_mean).to(tl.float32), mask=m_t)
    tl.store(rates + num_tensors + o_t, b_square.to(tl.float32), mask=m_t)


@triton.jit(do_not_specialize=("num_tensors", "num_programs"))
def _adam_kernel(
    addresses, sizes, pieces, rates, finite, num_tensors, num_programs,
    BETA_1: tl.constexpr, BETA_2: tl.constexpr, EPS: tl.constexpr, DECAY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i_p = tl.program_id(0)
    i_t = tl.load(pieces + i_p)
    o = tl.load(pieces + num_programs + i_p) + tl.arange(0, BLOCK)
    m = o < tl.load(sizes + i_t)
    addresses += i_t
    p_p = tl.load(addresses).to(tl.pointer_type(tl.float32)) + o
    p_m = tl.load(addresses + num_tensors).to(tl.pointer_type(tl.float32)) + o
    p_v = tl.load(addresses + 2 * num_tensors).to(tl.pointer_type(tl.float32)) + o
    p_g = tl.load(addresses + 4 * num_tensors).to(tl.pointer_type(tl.float32)) + o
    b_p, b_m, b_v = tl.load(p_p, mask=m), tl.load(p_m, mask=m), tl.load(p_v, mask=m)
    b_g = tl.load(p_g, mask=m, other=0.0)
    # The square is tested, because it enters a moment: one that overflows would stop a weight forever.
    tl.store(finite + i_p, tl.min((b_g * b_g < float("inf")).to(tl.int32), axis=0))
    if DECAY != 0:
        b_g += DECAY * b_p
    b_m = BETA_1 * b_m + (1 - BETA_1) * b_g
    b_v = BETA_2 * b_v + (1 - BETA_2) * b_g * b_g
    b_root = tl.sqrt_rn(b_v) / tl.load(rates + num_tensors + i_t) + EPS
    b_p -= tl.load(rates + i_t) * b_m / b_root
    tl.store(p_m, b_m, mask=m)
    tl.store(p_v, b_v, mask=m)
    tl.store(p_p, b_p, mask=m)


@triton.jit(do_not_specialize=("num_programs", "count"))
def _record_kernel(finite, loss, last, total, step, fault, num_programs, count, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    b_finite = tl.full([BLOCK], 1, dtype=tl.int32)
    for i in range(0, num_programs, BLOCK):
        b_finite = tl.minimum(b_finite, tl.load(finite + i + o, mask=i + o < num_programs, other=1))
    b_loss, b_step, b_fault = tl.load(loss), tl.load(step), tl.load(fault)
    is_finite = (tl.min(b_finite, axis=0) > 0) & (tl.abs(b_loss) < float("inf"))
    tl.store(fault, tl.where((b_fault < 0) & (is_finite == 0), b_step, b_fault))
    tl.store(step, b_step + 1)
    tl.store(last, b_loss)
    tl.store(total, tl.load(total) + b_loss.to(tl.float64) * count)


def adam(
    table: AdamTable, gradients: Sequence[Tensor], rate: Tensor, betas: tuple[float, float], eps: float,
    weight_decay: float,
) -> None:  # fmt: skip
    """One step of Adam for every parameter of a table, with the weight decay added to the gradients. ``rate`` is on the
    device. ``table.finite`` tells which gradients were finite.

    torch's fused Adam raises β to the power of the step in every thread, which takes longer than the update itself.
    """
    num_tensors, num_programs = len(gradients), len(table.finite)
    for first in range(0, num_tensors, ADAM_GRADIENTS):
        part = list(gradients[first : first + ADAM_GRADIENTS])
        # Arguments that are left over take any address: it is not stored.
        part += part[-1:] * (ADAM_GRADIENTS - len(part))
        arguments = (
            table.addresses, table.rates, rate, *part, first, num_tensors,
            STEP, GRADIENT, math.log(betas[0]), math.log(betas[1]), ADAM_GRADIENTS,
        )  # fmt: skip
        launch(_begin_kernel, (1,), arguments, 1)
    arguments = table.addresses, table.sizes, table.pieces, table.rates, table.finite, num_tensors, num_programs
    launch(_adam_kernel, (num_programs,), (*arguments, *betas, eps, weight_decay, ADAM_BLOCK), 4)


def record_step(table: AdamTable, loss: Tensor, count: int, progress: Sequence[Tensor]) -> None:
    """After a step, update ``progress``: the last loss; the sum of the losses, each times ``count``, in float64; the
    number of steps; and the first step whose loss or gradients were not finite, -1 while there is none."""
    num_programs = len(table.finite)
    block = power_of_two(num_programs, 16, 1024)
    launch(_record_kernel, (1,), (table.finite, loss, *progress, num_programs, count, block), 4)
