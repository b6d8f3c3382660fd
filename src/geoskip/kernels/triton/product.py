"""A sparse matrix times every item of a batch, on CUDA."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.triton.launch import launch
from geoskip.kernels.triton.tiles import SIZES, ceil_div, power_of_two


@triton.jit(do_not_specialize=SIZES)
def _product_kernel(
    x, weights, minus, y, neighbors, order, offsets, num_senders, num_receivers, C, scale,
    HAS_ORDER: tl.constexpr, HAS_MINUS: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    i_v, i_b, i_c = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    o_v = i_v * BLOCK_V + tl.arange(0, BLOCK_V)
    m_v = o_v < num_receivers
    o_c = i_c * BLOCK_C + tl.arange(0, BLOCK_C)
    m_c = o_c < C
    x += i_b * num_senders * C
    b_start = tl.load(offsets + o_v, mask=m_v, other=0)
    b_degree = tl.load(offsets + o_v + 1, mask=m_v, other=0) - b_start
    b_y = tl.zeros([BLOCK_V, BLOCK_C], dtype=tl.float32)
    for k in range(tl.max(b_degree, axis=0)):
        m_e = k < b_degree
        o_e = b_start + k
        if HAS_ORDER:
            o_e = tl.load(order + o_e, mask=m_e, other=0)
        b_j = tl.load(neighbors + o_e, mask=m_e, other=0)
        b_w = tl.load(weights + o_e, mask=m_e, other=0.0).to(tl.float32)
        b_x = tl.load(x + b_j[:, None] * C + o_c[None, :], mask=(k < b_degree[:, None]) & m_c[None, :], other=0.0)
        b_y += b_w[:, None] * b_x.to(tl.float32)
    b_y *= scale
    o_y = (i_b * num_receivers + o_v[:, None]) * C + o_c[None, :]
    m_y = m_v[:, None] & m_c[None, :]
    if HAS_MINUS:
        b_y -= tl.load(minus + o_y, mask=m_y, other=0.0).to(tl.float32)
    tl.store(y + o_y, b_y.to(y.dtype.element_ty), mask=m_y)


def product(
    x: Tensor,
    weights: Tensor,
    neighbors: Tensor,
    order: Tensor | None,
    offsets: Tensor,
    scale: float = 1.0,
    minus: Tensor | None = None,
) -> Tensor:
    """``scale * W x - minus``; the order of a weight and the order of summing are given apart, as in convolve."""
    batch, num_senders, channels = x.shape
    num_receivers = offsets.shape[1] - 1
    y = x.new_empty(batch, num_receivers, channels)
    if y.numel() == 0:
        return y
    block_c = power_of_two(channels, 1, 128)
    block_v = max(1, min(64, 2048 // block_c))
    arguments = (
        x, weights, minus, y, neighbors, order, offsets, num_senders, num_receivers, channels, scale,
        order is not None, minus is not None, block_v, block_c,
    )  # fmt: skip
    launch(_product_kernel, (ceil_div(num_receivers, block_v), batch, ceil_div(channels, block_c)), arguments, 4)
    return y
