"""Device functions that several kernels share: what an edge contributes, and products on the tensor cores.

Channels can be read in parts of fewer columns. A thread then holds fewer rows and more columns of each: it reads fewer
weights, and a sum over the channels crosses fewer threads.

Bodies of loops in loops are functions here and in the modules of the kernels: Triton's front end goes through the body
of a loop twice, and so through a body in three loops eight times, but through a function once. PTX has the same
instructions.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def as_index(i, WIDE: tl.constexpr):
    """An index in 32 bits if that is enough: the arithmetic is shorter."""
    return i.to(tl.int64) if WIDE else i.to(tl.int32)


@triton.jit
def index_at(p_index, is_there, WIDE: tl.constexpr):
    """Stored indices, 0 where there is none."""
    return as_index(tl.load(p_index, mask=is_there, other=0), WIDE)


@triton.jit
def features_of(p_rows, o_c, C, m_b, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """Features of one vertex in all items, in parts of ``WIDTH`` columns."""
    b_x = ()
    for p in tl.static_range(PARTS):
        o_p = o_c + p * WIDTH
        m_p = m_b[:, None] & (o_p < C)[None, :]
        b_x = b_x + (tl.load(p_rows + o_p[None, :], mask=m_p, other=0.0).to(tl.float32),)
    return b_x


@triton.jit
def weights_of(p_w, stride_wm, o_b, m_b, PER_ITEM: tl.constexpr, SLOTS: tl.constexpr):
    """Weights of one edge: for each slot one, or one per item."""
    b_w = ()
    for s in tl.static_range(SLOTS):
        p_slot = p_w + tl.cast(s, tl.int64) * stride_wm
        if PER_ITEM:
            b_w = b_w + (tl.load(p_slot + o_b, mask=m_b, other=0.0).to(tl.float32)[:, None],)
        else:
            b_w = b_w + (tl.load(p_slot).to(tl.float32),)
    return b_w


@triton.jit
def zeros_of(COUNT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    b_zeros = ()
    for _ in tl.static_range(COUNT):
        b_zeros = b_zeros + (tl.zeros([ROWS, COLUMNS], dtype=tl.float32),)
    return b_zeros


@triton.jit
def plus_weighted(b_z, b_w, b_x, SLOTS: tl.constexpr, PARTS: tl.constexpr):
    """z_m + w_m x for each slot; the parts of a slot are next to each other."""
    b_more = ()
    for s in tl.static_range(SLOTS):
        for p in tl.static_range(PARTS):
            b_more = b_more + (b_z[s * PARTS + p] + b_w[s] * b_x[p],)
    return b_more


@triton.jit
def from_center(epsilon, p_own, m_own):
    """z of one slot before the sum over the neighbors: 1 + ε times the features of the vertex itself."""
    b_own = tl.load(p_own, mask=m_own, other=0.0).to(tl.float32)
    return ((1.0 + tl.load(epsilon).to(tl.float32)) * b_own,)


@triton.jit
def relu(block):
    """NaN stays NaN, as in torch."""
    return tl.where(block < 0, 0.0, block)


@triton.jit
def _split(block):
    """A float32 block as a sum of two that TF32 can hold: the leading 11 bits of each number, and the rest."""
    b_lead = (block.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
    return b_lead, block - b_lead


@triton.jit
def product(a, b, PRECISION: tl.constexpr):
    """a b in float32. Float32 accuracy takes three products in TF32; the fourth, of the two rests, is below the
    rounding of the first. Triton's own ``tf32x3`` does the same, but spends most of its time on infinities.
    The caller adds up longer sums, because the tensor cores round each addition towards zero."""
    return product_of_parts((a,), (b,), 0, 1, PRECISION)


@triton.jit
def product_of_parts(a, b, FIRST: tl.constexpr, PARTS: tl.constexpr, PRECISION: tl.constexpr):
    """The product of two blocks that are split along the summed axis, a from ``FIRST`` on in a longer tuple."""
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
def plus_transposed_products(b_sum, b_z, b_gy, SLOTS: tl.constexpr, PRECISION: tl.constexpr):
    """A sum for each slot, plus zᵀ times the gradient of y."""
    b_more = ()
    for s in tl.static_range(SLOTS):
        b_more = b_more + (b_sum[s] + product(tl.trans(b_z[s]).to(b_gy.dtype), b_gy, PRECISION),)
    return b_more


@triton.jit
def in_layout_of_loads(block, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The same values in another register layout. The result of a product is in the layout of the tensor cores; if it
    is multiplied with loaded features, the compiler converts those, again for each neighbor. A scan along an axis of
    length 1 converts this block instead, once."""
    return tl.reshape(tl.cumsum(tl.reshape(block, [ROWS, COLUMNS, 1]), axis=2), [ROWS, COLUMNS])
