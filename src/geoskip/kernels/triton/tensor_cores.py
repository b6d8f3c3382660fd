"""Products of blocks on the tensor cores."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _split(block):
    """A float32 block as a sum of two that TF32 holds: the leading 11 bits of each number, and the rest."""
    b_lead = (block.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
    return b_lead, block - b_lead


@triton.jit
def product(a, b, PRECISION: tl.constexpr):
    """a b in float32. At float32 accuracy it takes three products in TF32; the fourth, of the two rests, is below
    the rounding of the first. Triton's own ``tf32x3`` does the same, but spends most of its time on infinities.
    Longer sums are left to the caller: the tensor cores round each addition towards zero."""
    return product_of_parts((a,), (b,), 0, 1, PRECISION)


@triton.jit
def product_of_parts(a, b, FIRST: tl.constexpr, PARTS: tl.constexpr, PRECISION: tl.constexpr):
    """The same of two blocks that are cut along the summed axis, a from ``FIRST`` on in a longer tuple."""
    b_sum = tl.zeros([a[FIRST].shape[0], b[0].shape[1]], dtype=tl.float32)
    if PRECISION == "tf32x3" and b[0].dtype == tl.float32:
        for p in tl.static_range(PARTS):
            a_lead, a_rest = _split(a[FIRST + p].to(tl.float32))
            b_lead, b_rest = _split(b[p])
            b_sum = tl.dot(a_rest, b_lead, b_sum, input_precision="tf32")
            b_sum = tl.dot(a_lead, b_rest, b_sum, input_precision="tf32")
            b_sum = tl.dot(a_lead, b_lead, b_sum, input_precision="tf32")
    else:
        for p in tl.static_range(PARTS):
            b_sum = tl.dot(a[FIRST + p].to(b[p].dtype), b[p], b_sum, input_precision="tf32")
    return b_sum


@triton.jit
def in_layout_of_loads(block, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The same values. What comes out of a product lies in registers as the tensor cores leave it; multiplied
    with loaded features, the compiler would move those into that layout, for each neighbor anew. A scan along
    an axis of length 1 moves this block instead, once."""
    return tl.reshape(tl.cumsum(tl.reshape(block, [ROWS, COLUMNS, 1]), axis=2), [ROWS, COLUMNS])
