r"""ChebNet's recursion on CUDA.

Forward, :math:`y = \sum_k T_k(L)\, x\, \Theta_k`: each term is computed from the last two, as one sparse product.
Terms are stored one after the other, as many as fit in the memory that is set aside for them, and one kernel
multiplies all of them into y. Backward, with :math:`G_k = T_k(L^\top)\, \partial y`, the same recursion gives both
gradients:

.. math:: \partial x = \sum_k G_k \Theta_k^\top, \qquad \partial \Theta_k = x^\top G_k
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.branches import branches, run_inline
from geoskip.kernels.pattern import Pattern
from geoskip.kernels.triton.blocks import product
from geoskip.kernels.triton.launch import (
    CACHE_SIZE,
    ENOUGH_BLOCKS,
    SIZES,
    ceil_div,
    launch,
    power_of_two,
    precision,
)
from geoskip.kernels.triton.products import add_parts_into, over_rows, spmm

# Terms that are stored at a time may take this many bytes.
TERMS_BYTES = 192 << 20

# Which edges a row of a sparse matrix has: neighbors, order and offsets, as :func:`spmm` takes them.
Edges = tuple[Tensor, Tensor | None, Tensor]


@triton.jit(do_not_specialize=SIZES)
def _multiply_kernel(
    x, terms, center, skip, theta, bias, y, num_rows, num_terms, K, N, num_blocks, stride_k, stride_n,
    HAS_CENTER: tl.constexpr, HAS_SKIP: tl.constexpr, HAS_BIAS: tl.constexpr, ADDS: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    i_r, i_n = tl.program_id(0), tl.program_id(1)
    o_r = i_r * BLOCK_R + tl.arange(0, BLOCK_R)
    m_r = o_r < num_rows
    o_r = o_r.to(tl.int64)
    o_n = i_n * BLOCK_N + tl.arange(0, BLOCK_N)
    m_n = o_n < N
    o_y = o_r[:, None] * N + o_n[None, :]
    m_y = m_r[:, None] & m_n[None, :]
    b_y = tl.zeros([BLOCK_R, BLOCK_N], dtype=tl.float32)
    if HAS_CENTER or HAS_SKIP:
        for i_k in range(num_blocks):
            o_k = i_k * BLOCK_K + tl.arange(0, BLOCK_K)
            m_k = o_k < K
            b_x = tl.load(x + o_r[:, None] * K + o_k[None, :], mask=m_r[:, None] & m_k[None, :], other=0.0)
            o_m, m_m = o_k[:, None] * stride_k + o_n[None, :] * stride_n, m_k[:, None] & m_n[None, :]
            if HAS_CENTER:
                b_m = tl.load(center + o_m, mask=m_m, other=0.0)
                if HAS_SKIP:
                    b_m += tl.load(skip + o_m, mask=m_m, other=0.0)
            else:
                b_m = tl.load(skip + o_m, mask=m_m, other=0.0)
            b_y += product(b_x, b_m, PRECISION)
    # One loop over the blocks of all terms, so that those of the next term are loaded ahead.
    for i in range(num_terms * num_blocks):
        o_k = i % num_blocks * BLOCK_K + tl.arange(0, BLOCK_K)
        m_k = o_k < K
        o_t = tl.cast(i // num_blocks, tl.int64) * K
        p_term = terms + o_t * num_rows + o_r[:, None] * K + o_k[None, :]
        p_theta = theta + o_t * N + o_k[:, None] * stride_k + o_n[None, :] * stride_n
        b_term = tl.load(p_term, mask=m_r[:, None] & m_k[None, :], other=0.0)
        b_theta = tl.load(p_theta, mask=m_k[:, None] & m_n[None, :], other=0.0)
        b_y += product(b_term, b_theta, PRECISION)
    if HAS_BIAS:
        b_y += tl.load(bias + o_n, mask=m_n, other=0.0).to(tl.float32)[None, :]
    if ADDS:
        b_y += tl.load(y + o_y, mask=m_y, other=0.0).to(tl.float32)
    tl.store(y + o_y, b_y.to(y.dtype.element_ty), mask=m_y)


class OwnTerm(NamedTuple):
    """x Θ_0 + x A + b, where each matrix and b may be missing."""

    x: Tensor
    center: Tensor | None
    skip: Tensor | None
    bias: Tensor | None


def multiply_terms(y: Tensor, own: OwnTerm | None, terms: Tensor, theta: Tensor, transposed: bool) -> None:
    """Write the product of x, and the sum of those of terms [slots, *rows, channels] with Θ, into y; without ``own``,
    add to y. ``transposed`` is whether all matrices are to be."""
    num_rows, inner, outer = y.shape[:-1].numel(), terms.shape[-1], y.shape[-1]
    if not y.numel():
        return
    x, center, skip, bias = (terms, None, None, None) if own is None else own
    r, k, n, warps = _multiply_tiles(num_rows, inner, outer)
    arguments = (
        x, terms, center, skip, theta, bias, y, num_rows, len(terms), inner, outer, ceil_div(inner, k),
        *((1, inner) if transposed else (outer, 1)),
        center is not None, skip is not None, bias is not None, own is None, r, k, n, precision(),
    )  # fmt: skip
    launch(_multiply_kernel, (ceil_div(num_rows, r), ceil_div(outer, n)), arguments, warps)


@lru_cache(CACHE_SIZE)
def _multiply_tiles(num_rows: int, inner: int, outer: int) -> tuple[int, int, int, int]:
    """Rows of a block, its channels of the terms and of y, and warps."""
    k, n = power_of_two(inner, 16, 32), power_of_two(outer, 16, 64)
    if ceil_div(num_rows, 32) * ceil_div(outer, n) < ENOUGH_BLOCKS:
        return 16, power_of_two(inner, 16, 64), n, 4
    # Wide graphs are often small: they need more programs.
    return 64 if n <= 32 else 32, k, n, 4


def chebyshev_convolution(
    x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern, first: int, skip: Tensor | None,
    bias: Tensor | None,
) -> Tensor:  # fmt: skip
    """y = Σ_m T_{m+first}(L) x Θ_m + x A + b of x [*batch, vertices, in], with the entries of L in weights [edges]."""
    y = x.new_empty(*x.shape[:-1], theta.shape[2])
    own: OwnTerm | None = OwnTerm(x, None if first else theta[0], skip, bias)
    edges = pattern.senders, None, pattern.offsets
    for low, high, terms in _terms(x, weights, edges, first, len(theta)):
        multiply_terms(y, own, terms, theta[low:high], False)
        own = None
    return y


def chebyshev_convolution_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, weights: Tensor, theta: Tensor, pattern: Pattern, first: int,
    skip: Tensor | None, bias: Tensor | None,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    grad_y, (needs_x, _, needs_theta, _, _, needs_skip, needs_bias) = grad_y.contiguous(), needs
    grad_x, grad_theta, grad_skip, grad_bias = (
        torch.empty_like(tensor) if need and tensor is not None else None
        for tensor, need in ((x, needs_x), (theta, needs_theta), (skip, needs_skip), (bias, needs_bias))
    )
    has_center = first == 0 and grad_theta is not None
    own: OwnTerm | None = OwnTerm(grad_y, None if first else theta[0], skip, None)
    edges = pattern.receivers, pattern.by_sender, pattern.sender_offsets
    with branches(x) as fork:
        products, columns = fork(lambda: over_rows(x, grad_y, has_center or needs_skip, needs_bias))
        sums = [(products, grad_skip), (columns, grad_bias)]
        if first == 0 and grad_theta is not None:
            # Both multiply x.
            sums.append((products, grad_theta[0]))
        if grad_x is not None or grad_theta is not None:
            for low, high, terms in _terms(grad_y, weights, edges, first, len(theta)):
                if grad_theta is not None and low < high:
                    # No branch reads terms that will be overwritten.
                    run = fork if high == len(theta) else run_inline
                    products, _ = run(partial(over_rows, x, terms, True, False, high - low))
                    sums.append((products, grad_theta[low:high]))
                if grad_x is not None:
                    multiply_terms(grad_x, own, terms, theta[low:high], True)
                    own = None
    add_parts_into(sums)
    return grad_x, None, grad_theta, None, None, grad_skip, grad_bias


def _terms(x: Tensor, weights: Tensor, edges: Edges, first: int, count: int) -> Iterator[tuple[int, int, Tensor]]:
    """T_{m+first}(L) x for each of ``count`` slots m, except T_0: as many at a time as memory allows, [slots,
    *x.shape], with the first of their slots and the one after the last. The next ones overwrite them. If T_0 is the
    only term, there is one empty share."""
    last = first + count - 1
    if last == 0:
        yield 1, 1, x.new_empty(0, *x.shape)
        return
    # Two at least: a term is written over the one before the last, which only the same row of it needs.
    shares = ceil_div(last, max(2, TERMS_BYTES // max(1, x.numel() * x.element_size())))
    at_once = ceil_div(last, shares)
    stored = x.new_empty(at_once, *x.shape)
    slots, before, term = stored.unbind(), x, x
    for lowest in range(1, last + 1, at_once):
        highest = min(lowest + at_once, last + 1)
        for k in range(lowest, highest):
            scale, minus = (1.0, None) if k == 1 else (2.0, before)
            before, term = term, spmm(term, weights, *edges, scale, minus, slots[k - lowest])
        low = max(lowest, first)
        if low < highest:
            yield low - first, highest - first, stored[low - lowest : highest - lowest]
