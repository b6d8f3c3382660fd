"""Products of large float32 matrices on the tensor cores, in float16.

A matrix, scaled so that its largest number lies between 2¹⁴ and 2¹⁵, is the sum of two in float16: rounded, and the
rest. Together they hold 22 bits of a number, or whatever is above 2⁻⁴⁰ of the largest one. Three products of these
halves, added up in float32, replace one product of float32; the fourth, of the two rests, is below their rounding.
cuBLAS multiplies float16 twice as fast as TF32, and float32 itself without tensor cores.

The tensor cores round each addition towards zero, so the error of a sum grows with its length. The product of the
leading halves is computed in chunks, which are then added up in float32. A product with a rest is 2⁻¹¹ times smaller,
and so is its error: it needs no chunks.

If a number is infinite or NaN, everything becomes NaN. Subnormal numbers are numbers like any other.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.triton.launch import SIZES, ceil_div, is_tf32, launch

# Multiplications from which on halves are used: with fewer, splitting takes longer than it saves.
ENOUGH_PRODUCTS: float = 2**30
# Terms of a sum that the tensor cores add up. At 256, 16 additions of 16 terms, a long sum is as accurate as cuBLAS
# computes it in float32. Rows are padded to a multiple of it.
CHUNK = 256
# Columns must be whole 16 bytes of float16.
COLUMNS_STEP = 8
BLOCK = 1024


def pays(x: Tensor, weight: Tensor) -> bool:
    """Whether x Wᵀ and its gradients are computed in halves: not where the user has allowed TF32."""
    is_large = x.shape[0] * weight.numel() >= ENOUGH_PRODUCTS
    return is_large and x.dtype == torch.float32 and x.shape[1] % COLUMNS_STEP == 0 and not is_tf32()


def largest(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The largest magnitude of each, from which follows its scale."""
    return torch._foreach_norm(tensors, torch.inf)


@triton.jit
def exponent(p_largest):
    """Of the power of two above the largest number, as a float32 stores it; 255 if that is not finite."""
    return tl.maximum((tl.load(p_largest).to(tl.int32, bitcast=True) >> 23) & 255, 15)


@triton.jit
def power(e):
    return ((e + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def split(block, e):
    """The halves of numbers below the power of two that ``e`` stands for."""
    b_scaled = block * tl.where(e == 255, float("nan"), power(141 - e))
    b_lead = b_scaled.to(tl.float16)
    return b_lead, (b_scaled - b_lead.to(tl.float32)).to(tl.float16)


@triton.jit
def unscaled(block, e_1, e_2):
    """Sums of products of halves as they are without the scales: in two steps, neither of which can overflow alone."""
    e = e_1 + e_2 - 282
    return block * power(e // 2) * power(e - e // 2)


@triton.jit(do_not_specialize=SIZES)
def _split_kernel(x, top, out, num_rows, num_padded, C, IS_LEFT: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    o_r, o_c = o // C, o % C
    b_lead, b_rest = split(tl.load(x + o, mask=o_r < num_rows, other=0.0), exponent(top))
    p_out, m_out = out + o_r.to(tl.int64) * 3 * C + o_c, o_r < num_padded
    tl.store(p_out, b_rest if IS_LEFT else b_lead, mask=m_out)
    tl.store(p_out + C, b_lead if IS_LEFT else b_rest, mask=m_out)
    tl.store(p_out + 2 * C, b_lead, mask=m_out)


def halves(x: Tensor, top: Tensor, is_left: bool) -> Tensor:
    """[rows + padding, 3 columns] in float16 of [rows, columns]: (rest, leading, leading) for the left operand of a
    product, (leading, rest, leading) for the right one."""
    x = x.contiguous()
    num_rows, columns = x.shape
    padded = num_rows + -num_rows % CHUNK
    out = torch.empty(padded, 3 * columns, device=x.device, dtype=torch.float16)
    arguments = x, top, out, num_rows, padded, columns, is_left, BLOCK
    launch(_split_kernel, (ceil_div(padded * columns, BLOCK),), arguments)
    return out


def scores(left: Tensor, right: Tensor) -> Tensor:
    """x Wᵀ, still scaled, of :func:`halves` of both."""
    if not left.is_cuda:
        return left.float() @ right.float().t()
    return torch.mm(left, right.t(), out_dtype=torch.float32)


@triton.jit(do_not_specialize=SIZES)
def _combine_kernel(
    of_leading, of_rests, top_1, top_2, factor, out, num_rows, num_padded, C, num_parts, BLOCK: tl.constexpr
):  # fmt: skip
    o = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    # Multiples of C, of which Triton knows whether 16 divides it: then reads are wide.
    m, stride = o < tl.cast(num_rows, tl.int64) * C, tl.cast(num_padded, tl.int64) * C
    b_small = tl.load(of_rests + o, mask=m, other=0.0) + tl.load(of_rests + stride + o, mask=m, other=0.0)
    b_sum = tl.zeros([BLOCK], dtype=tl.float32)
    for i in range(num_parts):
        b_sum += tl.load(of_leading + i * stride + o, mask=m, other=0.0)
    b_out = unscaled(b_sum + b_small, exponent(top_1), exponent(top_2))
    tl.store(out + o, b_out * tl.load(factor), mask=m)


def gradient_of_left(gradient: Tensor, right: Tensor, tops: tuple[Tensor, Tensor], factor: Tensor, rows: int) -> Tensor:
    """Ḡ W of the halves of Ḡ [rows, (leading, rest)] and of W, times ``factor``, without the padding of the rows."""
    gradient, right = gradient.unflatten(1, (2, -1)), right.unflatten(1, (3, -1))
    return _product(gradient.transpose(0, 1), right[:, 1:], tops, factor, rows)


def gradient_of_right(gradient: Tensor, left: Tensor, tops: tuple[Tensor, Tensor], factor: Tensor, rows: int) -> Tensor:
    """Ḡᵀ x of the halves of Ḡ [rows, (leading, rest)] and of x, times ``factor``, without the padding of the rows."""
    gradient, left = gradient.unflatten(1, (2, -1)), left.unflatten(1, (3, -1))
    return _product(gradient.permute(1, 2, 0), left[:, :2], tops, factor, rows)


def _product(a: Tensor, b: Tensor, tops: tuple[Tensor, Tensor], factor: Tensor, rows: int) -> Tensor:
    """Of [(leading, rest), rows, terms] and [terms, (rest, leading), columns]. The sums are added in a fixed order."""
    of_rests = _bmm(a, b.transpose(0, 1))
    of_leading = _bmm(a[0].unflatten(1, (-1, CHUNK)).transpose(0, 1), b[:, 1].unflatten(0, (-1, CHUNK)))
    chunks, padded, columns = of_leading.shape
    out = torch.empty(rows, columns, device=a.device, dtype=torch.float32)
    arguments = of_leading, of_rests, *tops, factor, out, rows, padded, columns, chunks, BLOCK
    launch(_combine_kernel, (ceil_div(out.numel(), BLOCK),), arguments)
    return out


def _bmm(a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a, b, out_dtype=torch.float32) if a.is_cuda else a.float() @ b.float()
