"""Reading what an edge brings.

Channels may be read in parts of fewer columns, so that a thread holds fewer rows and more of each: it then reads fewer
weights, and a sum over the channels crosses fewer threads.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def as_index(i, WIDE: tl.constexpr):
    """In 32 bits where these suffice, which makes for shorter arithmetic."""
    return i.to(tl.int64) if WIDE else i.to(tl.int32)


@triton.jit
def index_at(p_index, is_there, WIDE: tl.constexpr):
    """Stored indices, 0 where there is none."""
    return as_index(tl.load(p_index, mask=is_there, other=0), WIDE)


@triton.jit
def features_of(p_rows, o_c, C, m_b, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """Features of one vertex in all items, as parts of so many columns each."""
    b_x = ()
    for p in tl.static_range(PARTS):
        o_p = o_c + p * WIDTH
        m_p = m_b[:, None] & (o_p < C)[None, :]
        b_x = b_x + (tl.load(p_rows + o_p[None, :], mask=m_p, other=0.0).to(tl.float32),)
    return b_x


@triton.jit
def weights_of(p_w, stride_wm, o_b, m_b, PER_ITEM: tl.constexpr, SLOTS: tl.constexpr):
    """Weights of one edge: for each slot one, or one of each item."""
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
    """z_m + w_m x for each slot; the parts of a slot lie next to each other."""
    b_more = ()
    for s in tl.static_range(SLOTS):
        for p in tl.static_range(PARTS):
            b_more = b_more + (b_z[s * PARTS + p] + b_w[s] * b_x[p],)
    return b_more
