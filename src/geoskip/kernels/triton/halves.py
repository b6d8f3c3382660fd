"""Products of large float32 matrices on the tensor cores, in float16.

A matrix, scaled so that its largest number lies between 2¹⁴ and 2¹⁵, is the sum of two in float16: rounded, and the
rest. Together they hold 22 bits of a number, or whatever is above 2⁻⁴⁰ of the largest one. Three products of these
halves, added up in float32, replace one product of float32; the fourth, of the two rests, is below their rounding.
cuBLAS multiplies float16 twice as fast as TF32, and float32 itself without tensor cores.

The tensor cores round each addition towards zero, so the error of a sum grows with its length. The product of the
leading halves is computed in chunks, which are then added up in float32. A product with a rest is 2⁻¹¹ times smaller,
and so is its error: it needs no chunks.

If a number is infinite or NaN, everything becomes NaN; in :func:`product`, of the left operand, the row alone.
Subnormal numbers are numbers like any other.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.triton.launch import SIZES, ceil_div, is_tf32, launch, power_of_two

# Multiplications from which on halves are used: with fewer, splitting takes longer than it saves.
ENOUGH_PRODUCTS: float = 2**30
# Terms of a sum that the tensor cores add up. At 256, 16 additions of 16 terms, a long sum is as accurate as cuBLAS
# computes it in float32. Rows are padded to a multiple of it.
CHUNK = 256
# Columns must be whole 16 bytes of float16.
COLUMNS_STEP = 8
BLOCK = 1024


def pays(x: Tensor, weight: Tensor) -> bool:
    """Whether x Wᵀ and its gradients are computed in halves: not where the user has allowed TF32. The sums of x Wᵀ are
    not computed in chunks, so x must not have more columns than a chunk."""
    if x.numel() * len(weight) < max(ENOUGH_PRODUCTS, 1):
        return False
    columns = x.shape[-1]
    # The kernels number the entries of a padded matrix in 32 bits.
    entries = _padded(max(x.numel() // columns, len(weight))) * columns
    fits = columns % COLUMNS_STEP == 0 and columns <= CHUNK and entries < 2**31
    return fits and x.dtype == torch.float32 and not is_tf32()


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
    padded = _padded(num_rows)
    out = torch.empty(padded, 3 * columns, device=x.device, dtype=torch.float16)
    arguments = x, top, out, num_rows, padded, columns, is_left, BLOCK
    launch(_split_kernel, (ceil_div(padded * columns, BLOCK),), arguments)
    return out


def _padded(num_rows: int) -> int:
    return num_rows + -num_rows % CHUNK


@triton.jit(do_not_specialize=SIZES)
def _split_rows_kernel(x, exponents, out, C, BLOCK: tl.constexpr):
    i_r = tl.program_id(0)
    p_x, p_out = x + i_r.to(tl.int64) * C, out + i_r.to(tl.int64) * 3 * C
    o_c = tl.arange(0, BLOCK)
    b_bits = tl.zeros([BLOCK], dtype=tl.int32)
    for k in range(0, C, BLOCK):
        b_x = tl.load(p_x + k + o_c, mask=k + o_c < C, other=0.0)
        # Without their signs, numbers are in the order of their bits, and NaN is the largest.
        b_bits = tl.maximum(b_bits, b_x.to(tl.int32, bitcast=True) & 0x7FFFFFFF)
    e = tl.maximum(tl.max(b_bits, axis=0) >> 23, 15)
    tl.store(exponents + i_r, e)
    for k in range(0, C, BLOCK):
        m_c = k + o_c < C
        b_lead, b_rest = split(tl.load(p_x + k + o_c, mask=m_c, other=0.0), e)
        tl.store(p_out + k + o_c, b_rest, mask=m_c)
        tl.store(p_out + C + k + o_c, b_lead, mask=m_c)
        tl.store(p_out + 2 * C + k + o_c, b_lead, mask=m_c)


@triton.jit(do_not_specialize=SIZES)
def _unscale_kernel(scaled, exponents, top, bias, y, stride, N, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    i_r, o_n = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    m_n = o_n < N
    b_y = unscaled(tl.load(scaled + i_r * stride + o_n, mask=m_n, other=0.0), tl.load(exponents + i_r), exponent(top))
    if HAS_BIAS:
        b_y += tl.load(bias + o_n, mask=m_n, other=0.0)
    tl.store(y + i_r * N + o_n, b_y, mask=m_n)


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b. Each row of x has a scale of its own, so that rows do not depend on each other."""
    num_rows, columns = x.shape
    exponents = torch.empty(num_rows, device=x.device, dtype=torch.int32)
    left = torch.empty(num_rows, 3 * columns, device=x.device, dtype=torch.float16)
    launch(_split_rows_kernel, (num_rows,), (x, exponents, left, columns, power_of_two(columns, 16, BLOCK)))
    (top,) = largest(weight)
    scaled = scores(left, halves(weight, top, False))
    y = torch.empty(num_rows, len(weight), device=x.device, dtype=torch.float32)
    block = power_of_two(len(weight), 16, BLOCK)
    arguments = scaled, exponents, top, bias, y, scaled.shape[1], len(weight), bias is not None, block
    launch(_unscale_kernel, (num_rows, ceil_div(len(weight), block)), arguments)
    return y


@triton.jit(do_not_specialize=SIZES)
def _split_gradient_kernel(grad_y, top, out, num_rows, stride, N, BLOCK: tl.constexpr):
    i_r, o_n = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    i_row = i_r.to(tl.int64)
    b_g = tl.load(grad_y + i_row * N + o_n, mask=o_n < tl.where(i_r < num_rows, N, 0), other=0.0)
    b_lead, b_rest = split(b_g, exponent(top))
    tl.store(out + i_row * 2 * stride + o_n, b_lead, mask=o_n < stride)
    tl.store(out + (i_row * 2 + 1) * stride + o_n, b_rest, mask=o_n < stride)


def product_gradients(
    grad_y: Tensor, needs_x: bool, needs_weight: bool, x: Tensor, weight: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """The needed gradients of :func:`product`."""
    if not (needs_x or needs_weight):
        return None, None
    top, top_x, top_weight = largest(grad_y, x, weight)
    (num_rows, out), rows, stride = grad_y.shape, _padded(len(x)), _padded(len(weight))
    gradient = torch.empty(rows, 2 * stride, device=x.device, dtype=torch.float16)
    block = power_of_two(stride, 16, BLOCK)
    arguments = grad_y, top, gradient, num_rows, stride, out, block
    launch(_split_gradient_kernel, (rows, ceil_div(stride, block)), arguments)
    grad_x = grad_weight = None
    if needs_x:
        grad_x = gradient_of_left(gradient, halves(weight, top_weight, False), (top, top_weight), None, num_rows)
    if needs_weight:
        grad_weight = gradient_of_right(gradient, halves(x, top_x, True), (top, top_x), None, out)
    return grad_x, grad_weight


def scores(left: Tensor, right: Tensor) -> Tensor:
    """x Wᵀ, still scaled, of :func:`halves` of both."""
    if not left.is_cuda:
        return left.float() @ right.float().t()
    return torch.mm(left, right.t(), out_dtype=torch.float32)


@triton.jit(do_not_specialize=SIZES)
def _combine_kernel(
    of_leading, of_rests, top_1, top_2, factor, out, num_rows, num_padded, C, num_parts,
    HAS_FACTOR: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    o = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    # Multiples of C, of which Triton knows whether 16 divides it: then reads are wide.
    m, stride = o < tl.cast(num_rows, tl.int64) * C, tl.cast(num_padded, tl.int64) * C
    b_small = tl.load(of_rests + o, mask=m, other=0.0) + tl.load(of_rests + stride + o, mask=m, other=0.0)
    b_sum = tl.zeros([BLOCK], dtype=tl.float32)
    for i in range(num_parts):
        b_sum += tl.load(of_leading + i * stride + o, mask=m, other=0.0)
    b_out = unscaled(b_sum + b_small, exponent(top_1), exponent(top_2))
    if HAS_FACTOR:
        b_out *= tl.load(factor)
    tl.store(out + o, b_out, mask=m)


Tops = tuple[Tensor, Tensor]


def gradient_of_left(gradient: Tensor, right: Tensor, tops: Tops, factor: Tensor | None, rows: int) -> Tensor:
    """Ḡ W of the halves of Ḡ [rows, (leading, rest)] and of W, times ``factor``, without the padding of the rows."""
    gradient, right = gradient.unflatten(1, (2, -1)), right.unflatten(1, (3, -1))
    return _product(gradient.transpose(0, 1), right[:, 1:], tops, factor, rows)


def gradient_of_right(gradient: Tensor, left: Tensor, tops: Tops, factor: Tensor | None, rows: int) -> Tensor:
    """Ḡᵀ x of the halves of Ḡ [rows, (leading, rest)] and of x, times ``factor``, without the padding of the rows."""
    gradient, left = gradient.unflatten(1, (2, -1)), left.unflatten(1, (3, -1))
    return _product(gradient.permute(1, 2, 0), left[:, :2], tops, factor, rows)


def _product(a: Tensor, b: Tensor, tops: Tops, factor: Tensor | None, rows: int) -> Tensor:
    """Of [(leading, rest), rows, terms] and [terms, (rest, leading), columns]. The sums are added in a fixed order."""
    of_rests = _bmm(a, b.transpose(0, 1))
    of_leading = _bmm(a[0].unflatten(1, (-1, CHUNK)).transpose(0, 1), b[:, 1].unflatten(0, (-1, CHUNK)))
    chunks, padded, columns = of_leading.shape
    out = torch.empty(rows, columns, device=a.device, dtype=torch.float32)
    sizes = rows, padded, columns, chunks, factor is not None
    arguments = of_leading, of_rests, *tops, factor, out, *sizes, BLOCK
    launch(_combine_kernel, (ceil_div(out.numel(), BLOCK),), arguments)
    return out


def _bmm(a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a, b, out_dtype=torch.float32) if a.is_cuda else a.float() @ b.float()
