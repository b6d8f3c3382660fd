"""Linear layers on CUDA: small ones in one kernel each way, others by cuBLAS, in halves where that is faster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from geoskip.kernels.branches import branches
from geoskip.kernels.triton import halves
from geoskip.kernels.triton.blocks import product
from geoskip.kernels.triton.launch import CACHE_SIZE, SIZES, LaunchPlan, Shape, ceil_div, precision
from geoskip.kernels.triton.products import OwnTerm, add_parts, multiply_terms, over_rows

# Up to this many rows, inputs and outputs, a linear layer is small. Rows, inputs and outputs of a block of its
# gradients.
SMALL, LINEAR_TILES = 256, (16, 32, 32)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if not _is_small(x, weight):
        if not halves.pays(x, weight):
            return functional.linear(x, weight, bias)
        return halves.product(x.view(-1, x.shape[-1]), weight, bias).view(*x.shape[:-1], len(weight))
    y = x.new_empty(*x.shape[:-1], weight.shape[0])
    multiply_terms(y, OwnTerm(x, None, weight, bias), x.new_empty(0, *x.shape), weight, True)
    return y


def linear_gradients(
    grad_y: Tensor, needs: Sequence[bool], x: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor | None, ...]:
    """As branches of a captured graph: torch computes the three one after the other, each too small to fill a card.
    Small ones are one kernel."""
    grad_y, num_rows = grad_y.contiguous(), x.shape[:-1].numel()
    grad_x = grad_weight = grad_bias = None
    if _is_small(x, weight):
        like = zip((x, weight, bias), needs, strict=True)
        grads = [torch.empty_like(t) if need and t is not None else None for t, need in like]
        # Without programs for the gradient of x, the address of x stands for it.
        outputs = x if grads[0] is None else grads[0], *grads[1:]
        _linear_plan(num_rows, weight.shape, *needs, precision())(grad_y, x, weight, *outputs)
        return tuple(grads)
    with branches(x) as fork:
        if needs[2]:
            (grad_bias,) = fork(lambda: add_parts(over_rows(grad_y, grad_y, False, True)[1:], [bias]))
        if halves.pays(x, weight):
            rows, of_rows = x.view(num_rows, -1), grad_y.view(num_rows, -1)
            grad_x, grad_weight = halves.product_gradients(of_rows, needs[0], needs[1], rows, weight)
            return grad_x if grad_x is None else grad_x.view(x.shape), grad_weight, grad_bias
        if needs[1]:
            grad_weight = fork(lambda: grad_y.view(num_rows, len(weight)).t() @ x.view(num_rows, weight.shape[1]))
        if needs[0]:
            grad_x = grad_y @ weight
    return grad_x, grad_weight, grad_bias


def _is_small(x: Tensor, weight: Tensor) -> bool:
    """Whether a layer has few programs in any case; cuBLAS would take three kernels for it."""
    channels = x.shape[-1]
    return 0 < x.numel() <= SMALL * channels and 0 < weight.shape[0] <= SMALL and channels <= SMALL


@triton.jit(do_not_specialize=SIZES)
def _linear_gradients_kernel(
    grad_y, x, weight, grad_x, grad_weight, grad_bias, num_rows, num_tiles, K, N,
    NEEDS_WEIGHT: tl.constexpr, NEEDS_BIAS: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    i_p, blocks = tl.program_id(0), tl.cdiv(K, BLOCK_K)
    # The first programs compute tiles of the gradient of x, the others of that of the weight.
    is_x = i_p < num_tiles
    i_t = tl.where(is_x, i_p, i_p - num_tiles)
    o_k = i_t % blocks * BLOCK_K + tl.arange(0, BLOCK_K)
    m_k = o_k < K
    if is_x:
        o_r = i_t // blocks * BLOCK_R + tl.arange(0, BLOCK_R)
        m_r = o_r < num_rows
        b_gx = tl.zeros([BLOCK_R, BLOCK_K], dtype=tl.float32)
        for i_n in range(0, N, BLOCK_N):
            o_n = i_n + tl.arange(0, BLOCK_N)
            m_n = o_n < N
            b_gy = tl.load(grad_y + o_r[:, None] * N + o_n[None, :], mask=m_r[:, None] & m_n[None, :], other=0.0)
            b_w = tl.load(weight + o_n[:, None] * K + o_k[None, :], mask=m_n[:, None] & m_k[None, :], other=0.0)
            b_gx += product(b_gy, b_w, PRECISION)
        o_x = o_r[:, None] * K + o_k[None, :]
        tl.store(grad_x + o_x, b_gx.to(x.dtype.element_ty), mask=m_r[:, None] & m_k[None, :])
    else:
        o_n = i_t // blocks * BLOCK_N + tl.arange(0, BLOCK_N)
        m_n = o_n < N
        b_gw = tl.zeros([BLOCK_N, BLOCK_K], dtype=tl.float32)
        b_sum = tl.zeros([BLOCK_R, BLOCK_N], dtype=tl.float32)
        for i_r in range(0, num_rows, BLOCK_R):
            o_r = i_r + tl.arange(0, BLOCK_R)
            m_r = o_r < num_rows
            b_gy = tl.load(grad_y + o_r[:, None] * N + o_n[None, :], mask=m_r[:, None] & m_n[None, :], other=0.0)
            b_sum += b_gy.to(tl.float32)
            if NEEDS_WEIGHT:
                b_x = tl.load(x + o_r[:, None] * K + o_k[None, :], mask=m_r[:, None] & m_k[None, :], other=0.0)
                b_gw += product(tl.trans(b_gy), b_x, PRECISION)
        if NEEDS_WEIGHT:
            o_w = o_n[:, None] * K + o_k[None, :]
            tl.store(grad_weight + o_w, b_gw.to(x.dtype.element_ty), mask=m_n[:, None] & m_k[None, :])
        if NEEDS_BIAS:
            # Programs of other columns write the same numbers.
            tl.store(grad_bias + o_n, tl.sum(b_sum, axis=0).to(x.dtype.element_ty), mask=m_n)


@lru_cache(CACHE_SIZE)
def _linear_plan(
    num_rows: int, weight: Shape, needs_x: bool, needs_weight: bool, needs_bias: bool, precision: str
) -> LaunchPlan:
    """How to launch the kernel of the needed gradients of a small layer."""
    out, channels = weight
    tiles = [ceil_div(size, block) for size, block in zip((num_rows, channels, out), LINEAR_TILES, strict=True)]
    of_x = tiles[0] * tiles[1] if needs_x else 0
    of_weight = tiles[2] * tiles[1] if needs_weight or needs_bias else 0
    numbers = num_rows, of_x, channels, out, needs_weight, needs_bias, *LINEAR_TILES, precision
    return LaunchPlan(_linear_gradients_kernel, (of_x + of_weight,), numbers)
