"""Adam on CUDA: all parameters in one kernel, which also looks whether their gradients are finite, and one that takes
notes. torch's fused Adam raises β to the step's power in every thread, which takes longer than the update itself.

Parameters lie wherever they lie: kernels read their addresses from a table. Those of the gradients, which are new in
every step, are arguments of a kernel that writes them into it, so that a captured step needs nothing from the host.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.triton.launch import launch
from geoskip.kernels.triton.tiles import power_of_two

# Numbers of a program, and the gradients whose addresses one launch brings.
BLOCK, AT_ONCE = 1024, 32
# Of the table of addresses, after the rows of parameters and of the two means.
STEP, GRADIENT = 3, 4


class Place(NamedTuple):
    """Of a parameter: its address, those of the running means of its gradient and of the square, and of its steps so
    far, a float; and how many numbers it has."""

    addresses: tuple[int, ...]
    size: int

    @classmethod
    def of(cls, parameter: Tensor, mean: Tensor, square: Tensor, step: Tensor) -> Place:
        return cls(tuple(tensor.data_ptr() for tensor in (parameter, mean, square, step)), parameter.numel())


class Rule(NamedTuple):
    """Adam's constants; the weight decay is added to the gradient."""

    beta_1: float
    beta_2: float
    eps: float
    decay: float


class Table:
    """Where parameters and moments lie; it holds while none of them is moved.

    Attributes:
        addresses: int64 [5, tensors].
        sizes: int64 [tensors], how many numbers each has.
        pieces: int64 [2, programs], the tensor that a program works on and the first of its numbers.
        rates: [2, tensors], of this step: the rate over 1 - β₁ᵗ, and the root of 1 - β₂ᵗ.
        fine: int32 [programs], whether a program's gradients were finite.
    """

    def __init__(self, places: Sequence[Place], device: torch.device) -> None:
        sizes = [place.size for place in places]
        rows = [list(row) for row in zip(*(place.addresses for place in places), strict=True)]
        self.addresses = torch.tensor([*rows, [0] * len(places)], dtype=torch.int64, device=device)
        pieces = [(tensor, first) for tensor, size in enumerate(sizes) for first in range(0, size, BLOCK)]
        self.sizes = torch.tensor(sizes, dtype=torch.int64, device=device)
        self.pieces = torch.tensor(pieces, dtype=torch.int64, device=device).t().contiguous()
        self.rates = torch.empty(2, len(places), dtype=torch.float32, device=device)
        self.fine = torch.empty(len(pieces), dtype=torch.int32, device=device)


@triton.jit(do_not_specialize=(*(f"g_{n}" for n in range(AT_ONCE)), "first", "num_tensors"))
def _begin_kernel(
    addresses, rates, rate,
    g_0, g_1, g_2, g_3, g_4, g_5, g_6, g_7, g_8, g_9, g_10, g_11, g_12, g_13, g_14, g_15,
    g_16, g_17, g_18, g_19, g_20, g_21, g_22, g_23, g_24, g_25, g_26, g_27, g_28, g_29, g_30, g_31,
    first, num_tensors, ROW_STEP: tl.constexpr, ROW_GRADIENT: tl.constexpr,
    LOG_1: tl.constexpr, LOG_2: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    gradients = (
        g_0, g_1, g_2, g_3, g_4, g_5, g_6, g_7, g_8, g_9, g_10, g_11, g_12, g_13, g_14, g_15,
        g_16, g_17, g_18, g_19, g_20, g_21, g_22, g_23, g_24, g_25, g_26, g_27, g_28, g_29, g_30, g_31,
    )  # fmt: skip
    for n in tl.static_range(AT_ONCE):
        address = gradients[n].to(tl.int64)
        tl.store(addresses + ROW_GRADIENT * num_tensors + first + n, address, mask=first + n < num_tensors)
    o_t = first + tl.arange(0, AT_ONCE)
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
    addresses, sizes, pieces, rates, fine, num_tensors, num_programs,
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
    # Of the square, which the moments take: one that overflows would stop a weight for good.
    tl.store(fine + i_p, tl.min((b_g * b_g < float("inf")).to(tl.int32), axis=0))
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
def _note_kernel(fine, loss, last, total, step, fault, num_programs, count, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    b_fine = tl.full([BLOCK], 1, dtype=tl.int32)
    for i in range(0, num_programs, BLOCK):
        b_fine = tl.minimum(b_fine, tl.load(fine + i + o, mask=i + o < num_programs, other=1))
    b_loss, b_step, b_fault = tl.load(loss), tl.load(step), tl.load(fault)
    is_fine = (tl.min(b_fine, axis=0) > 0) & (tl.abs(b_loss) < float("inf"))
    tl.store(fault, tl.where((b_fault < 0) & (is_fine == 0), b_step, b_fault))
    tl.store(step, b_step + 1)
    tl.store(last, b_loss)
    tl.store(total, tl.load(total) + b_loss.to(tl.float64) * count)


def adam(table: Table, gradients: Sequence[Tensor], rate: Tensor, rule: Rule) -> None:
    """One step of every parameter of a table; ``rate`` is on the device. ``table.fine`` says where gradients were
    finite."""
    num_tensors, num_programs = len(gradients), len(table.fine)
    for first in range(0, num_tensors, AT_ONCE):
        some = list(gradients[first : first + AT_ONCE])
        # The places that are left over take any address: it is not stored.
        some += some[-1:] * (AT_ONCE - len(some))
        arguments = (
            table.addresses, table.rates, rate, *some, first, num_tensors,
            STEP, GRADIENT, math.log(rule.beta_1), math.log(rule.beta_2), AT_ONCE,
        )  # fmt: skip
        launch(_begin_kernel, (1,), arguments, 1)
    arguments = table.addresses, table.sizes, table.pieces, table.rates, table.fine, num_tensors, num_programs
    launch(_adam_kernel, (num_programs,), (*arguments, *rule, BLOCK), 4)


def note(table: Table, loss: Tensor, count: int, notes: Sequence[Tensor]) -> None:
    """After a step: ``notes`` are the last loss, the sum of losses, each times ``count``, in float64, the number of
    steps, and the first of them whose loss or gradients were not finite, -1 before there is one, in int64."""
    num_programs = len(table.fine)
    block = power_of_two(num_programs, 16, 1024)
    launch(_note_kernel, (1,), (table.fine, loss, *notes, num_programs, count, block), 4)
