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
    if PRECISION == "tf32x3" and a.dtype == tl.float32:
        a_lead, a_rest = _split(a)
        b_lead, b_rest = _split(b)
        b_sum = tl.dot(a_rest, b_lead, input_precision="tf32")
        b_sum = tl.dot(a_lead, b_rest, b_sum, input_precision="tf32")
        return tl.dot(a_lead, b_lead, b_sum, input_precision="tf32")
    return tl.dot(a, b, input_precision="tf32")


@triton.jit
def in_layout_of_loads(block, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The same values. What comes out of a product lies in registers as the tensor cores leave it; multiplied
    with loaded features, the compiler would move those into that layout, for each neighbour anew. A scan along
    an axis of length 1 moves this block instead, once."""
    return tl.reshape(tl.cumsum(tl.reshape(block, [ROWS, COLUMNS, 1]), axis=2), [ROWS, COLUMNS])
