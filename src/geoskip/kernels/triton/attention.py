"""The softmax basis on CUDA: its weights, and the gradients of the scores and of the attention that they depend on.

Scores and softmax weights are stored with the items of a batch next to each other, so that the rows of an edge, one
for each item, are read and written together.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from geoskip.kernels.pattern import Pattern, sizes_of
from geoskip.kernels.triton.blocks import as_index, product
from geoskip.kernels.triton.launch import (
    CACHE_SIZE,
    ENOUGH_ITEMS,
    SIZES,
    LaunchPlan,
    Shape,
    ceil_div,
    launch,
    power_of_two,
    precision,
    shares,
)

# Rows of a program of the softmax: one for each thread of two warps.
ROWS = 64
# Threads that share the edges of a row, if there are few rows: then the edges that they read are next to each other.
SHARES = 8
# The most slots that a thread holds; the time to compile grows with their square.
MAX_HELD = 32
# Up to this many numbers, 32 bits hold every offset, including those of the rows beyond the last.
MAX_NARROW = 2**31 - ROWS
# Programs of the products over all rows, as many as an H200 runs at a time; the rows of a block of theirs; and the most
# numbers of a sum that a program holds.
PROGRAMS, PRODUCT_ROWS, MAX_PRODUCT = 396, 32, 2048


@triton.jit(do_not_specialize=SIZES)
def _scores_kernel(
    x, attention, scores, batch, num_vertices, C, M,
    BLOCK_B: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_M: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    i_v, i_b = tl.program_id(0).to(tl.int64), tl.program_id(1)
    o_b = i_b * BLOCK_B + tl.arange(0, BLOCK_B)
    m_b = o_b < batch
    o_m = tl.arange(0, BLOCK_M)
    m_m = o_m < M
    p_x = x + (o_b[:, None].to(tl.int64) * num_vertices + i_v) * C
    b_sum = tl.zeros([BLOCK_B, BLOCK_M], dtype=tl.float32)
    for i_c in range(0, C, BLOCK_C):
        o_c = i_c + tl.arange(0, BLOCK_C)
        m_c = o_c < C
        b_x = tl.load(p_x + o_c[None, :], mask=m_b[:, None] & m_c[None, :], other=0.0)
        b_a = tl.load(attention + o_m[None, :] * C + o_c[:, None], mask=m_m[None, :] & m_c[:, None], other=0.0)
        b_sum += product(b_x, b_a, PRECISION)
    o_out = (i_v * M + o_m[None, :]) * batch + o_b[:, None]
    tl.store(scores + o_out, b_sum, mask=m_b[:, None] & m_m[None, :])


def attention_scores(x: Tensor, attention: Tensor) -> Tensor:
    """⟨a_m, x⟩ of every vertex, [vertices, slots, batch] (without the last axis if x has no batch), of x [*batch,
    vertices, in] and a [slots, in]."""
    if x.dim() == 2:
        return functional.linear(x, attention)
    (batch, num_vertices, channels), slots = sizes_of(x), attention.shape[0]
    if batch < ENOUGH_ITEMS:
        scores = (x @ attention.t()).view(batch, num_vertices, slots)
        return scores.permute(1, 2, 0).contiguous()
    scores = x.new_empty(num_vertices, slots, batch, dtype=torch.float32)
    b, c, m = power_of_two(batch, 16, 32), power_of_two(channels, 16, 64), power_of_two(slots, 16)
    arguments = x, attention, scores, batch, num_vertices, channels, slots, b, c, m, precision()
    launch(_scores_kernel, (num_vertices, ceil_div(batch, b)), arguments, warps=1 if m * c <= 512 else 4)
    return scores


@triton.jit
def _logit(p_j, p_i, offset, m, batch, m_r, OPPOSITE: tl.constexpr):
    """The logit of a slot in every row, from the scores of both ends."""
    b_one = tl.load(p_j + m * batch, mask=m_r, other=0.0).to(tl.float32)
    b_other = tl.load(p_i + m * batch, mask=m_r, other=0.0).to(tl.float32)
    b_one += -b_other if OPPOSITE else b_other
    return b_one + tl.load(offset + m).to(tl.float32)


@triton.jit(do_not_specialize=SIZES)
def _softmax_kernel(
    sender_scores, receiver_scores, offset, edge_scale, weights, senders, receivers, num_rows, batch,
    OPPOSITE: tl.constexpr, M: tl.constexpr, HELD: tl.constexpr, BLOCK_R: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    # A row is an edge of an item. The rows of an edge are next to each other, and a thread has all slots of its row.
    o_r = as_index(tl.program_id(0), WIDE) * BLOCK_R + tl.arange(0, BLOCK_R)
    m_r = o_r < num_rows
    o_e, o_b = o_r // batch, o_r % batch
    p_j = sender_scores + as_index(tl.load(senders + o_e, mask=m_r, other=0), WIDE) * M * batch + o_b
    p_i = receiver_scores + as_index(tl.load(receivers + o_e, mask=m_r, other=0), WIDE) * M * batch + o_b
    b_scale = tl.load(edge_scale + o_e, mask=m_r, other=0.0).to(tl.float32)
    b_sum = tl.zeros([BLOCK_R], dtype=tl.float32)
    if HELD:
        b_logit = ()
        for m in tl.static_range(M):
            b_logit = b_logit + (_logit(p_j, p_i, offset, m, batch, m_r, OPPOSITE),)
        b_most = b_logit[0]
        for m in tl.static_range(1, M):
            b_most = tl.maximum(b_most, b_logit[m])
        b_exp = ()
        for m in tl.static_range(M):
            b_exp = b_exp + (tl.exp(b_logit[m] - b_most),)
            b_sum += b_exp[m]
        b_share = b_scale / b_sum
        for m in tl.static_range(M):
            tl.store(weights + tl.cast(m, tl.int64) * num_rows + o_r, b_exp[m] * b_share, mask=m_r)
    else:
        b_most = _logit(p_j, p_i, offset, 0, batch, m_r, OPPOSITE)
        for m in range(1, M):
            b_most = tl.maximum(b_most, _logit(p_j, p_i, offset, m, batch, m_r, OPPOSITE))
        for m in range(M):
            b_sum += tl.exp(_logit(p_j, p_i, offset, m, batch, m_r, OPPOSITE) - b_most)
        b_share = b_scale / b_sum
        for m in range(M):
            b_one = tl.exp(_logit(p_j, p_i, offset, m, batch, m_r, OPPOSITE) - b_most)
            tl.store(weights + tl.cast(m, tl.int64) * num_rows + o_r, b_one * b_share, mask=m_r)


def softmax(
    at_senders: Tensor, at_receivers: Tensor | None, offset: Tensor, edge_scale: Tensor, pattern: Pattern
) -> Tensor:
    """Weights [slots, edges, batch or 1] of :func:`attention_scores`. Without scores at the receivers, those are minus
    the scores at the senders."""
    senders = pattern.senders
    shape, plan = _softmax_plan(at_senders.shape, senders.shape[0], at_receivers is None)
    weights = at_senders.new_empty(*shape, dtype=torch.float32)
    if plan is not None:
        other = at_senders if at_receivers is None else at_receivers
        plan(at_senders, other, offset, edge_scale, weights, senders, pattern.receivers)
    return weights


@lru_cache(CACHE_SIZE)
def _softmax_plan(scores: Shape, num_edges: int, opposite: bool) -> tuple[Shape, LaunchPlan | None]:
    """The shape of the weights, and how to launch the kernel; None if there are no weights."""
    num_vertices, slots, *items = scores
    batch = prod(items)
    num_rows, wide = num_edges * batch, max(num_edges, num_vertices) * slots * batch > MAX_NARROW
    numbers = num_rows, batch, opposite, slots, slots <= MAX_HELD, ROWS, wide
    plan = LaunchPlan(_softmax_kernel, (ceil_div(num_rows, ROWS),), numbers, ROWS // 32)
    return (slots, num_edges, batch), plan if slots * num_rows else None


@triton.jit
def _as_columns(b, COUNT: tl.constexpr, LEVELS: tl.constexpr, BLOCK_R: tl.constexpr):
    """Blocks of rows as the columns of one block, joined by the highest bit of their number first."""
    for level in tl.static_range(LEVELS):
        b_half = ()
        for n in tl.static_range(COUNT >> (level + 1)):
            b_half = b_half + (tl.join(b[n], b[n + (COUNT >> (level + 1))]),)
        b = b_half
    return tl.reshape(b[0], [BLOCK_R, COUNT])


@triton.jit
def _score_gradients(
    grad, weights, edge_scale, order, offsets, o_v, o_b, o_s, m_v, i_m, num_edges, batch,
    HAS_ORDER: tl.constexpr, M: tl.constexpr, HELD: tl.constexpr, COUNT: tl.constexpr, SHARES: tl.constexpr,
    BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Sums over the edges of each row's vertex at one of their ends, as COUNT blocks: one for each of HELD slots, and
    zeros. The threads of a row share its edges: each has a part of the sums."""
    b_start = as_index(tl.load(offsets + o_v, mask=m_v, other=0), WIDE)
    b_degree = as_index(tl.load(offsets + o_v + 1, mask=m_v, other=0), WIDE) - b_start
    b_sum = ()
    for _ in tl.static_range(COUNT):
        b_sum = b_sum + (tl.zeros([BLOCK], dtype=tl.float32),)
    for k in range(0, tl.max(b_degree, axis=0), SHARES):
        m_e = k + o_s < b_degree
        o_e = b_start + k + o_s
        if HAS_ORDER:
            o_e = as_index(tl.load(order + o_e, mask=m_e, other=0), WIDE)
        o_w = o_e * batch + o_b
        b_w, b_g = (), ()
        for m in tl.static_range(HELD):
            o_slot = tl.cast(i_m + m, tl.int64) * num_edges * batch
            m_slot = m_e if HELD == M else k + o_s < tl.where(i_m + m < M, b_degree, 0)
            b_w = b_w + (tl.load(weights + o_slot + o_w, mask=m_slot, other=0.0),)
            b_g = b_g + (tl.load(grad + o_slot + o_w, mask=m_slot, other=0.0),)
        b_mean = tl.zeros([BLOCK], dtype=tl.float32)
        if HELD == M:
            for m in tl.static_range(M):
                b_mean += b_w[m] * b_g[m]
        else:
            for m in range(M):
                o_slot = tl.cast(m, tl.int64) * num_edges * batch
                b_one = tl.load(weights + o_slot + o_w, mask=m_e, other=0.0)
                b_mean += b_one * tl.load(grad + o_slot + o_w, mask=m_e, other=0.0)
        b_scale = tl.load(edge_scale + o_e, mask=m_e, other=1.0).to(tl.float32)
        b_mean = b_mean / tl.where(b_scale == 0, 1.0, b_scale)
        b_more = ()
        for m in tl.static_range(HELD):
            b_more = b_more + (b_sum[m] + b_w[m] * (b_g[m] - b_mean),)
        b_sum = b_more + b_sum[HELD:]
    return b_sum


@triton.jit(do_not_specialize=SIZES)
def _softmax_gradients_kernel(
    grad, weights, edge_scale, at_senders, at_receivers, by_sender, offsets, sender_offsets,
    num_edges, num_vertices, batch,
    OPPOSITE: tl.constexpr, M: tl.constexpr, HELD: tl.constexpr, COUNT: tl.constexpr, LEVELS: tl.constexpr,
    SHARES: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    # A row is a vertex of an item. The rows of a vertex are next to each other, and SHARES threads have HELD slots of
    # each.
    BLOCK_R: tl.constexpr = BLOCK // SHARES
    i_m, i_r = tl.program_id(1) * HELD, as_index(tl.program_id(0).to(tl.int64) * BLOCK_R, WIDE)
    o_thread = tl.arange(0, BLOCK)
    o_r, o_s = i_r + o_thread // SHARES, o_thread % SHARES
    o_v, o_b = o_r // batch, o_r % batch
    m_v = o_v < num_vertices
    b_in = _score_gradients(
        grad, weights, edge_scale, by_sender, offsets, o_v, o_b, o_s, m_v, i_m, num_edges, batch,
        False, M, HELD, COUNT, SHARES, BLOCK, WIDE,
    )  # fmt: skip
    b_out = _score_gradients(
        grad, weights, edge_scale, by_sender, sender_offsets, o_v, o_b, o_s, m_v, i_m, num_edges, batch,
        True, M, HELD, COUNT, SHARES, BLOCK, WIDE,
    )  # fmt: skip
    b_receivers, b_senders = _as_columns(b_in, COUNT, LEVELS, BLOCK), _as_columns(b_out, COUNT, LEVELS, BLOCK)
    if SHARES > 1:
        b_receivers = tl.sum(tl.reshape(b_receivers, [BLOCK_R, SHARES, COUNT]), axis=1)
        b_senders = tl.sum(tl.reshape(b_senders, [BLOCK_R, SHARES, COUNT]), axis=1)
        o_r = i_r + tl.arange(0, BLOCK_R)
        o_v, o_b = o_r // batch, o_r % batch
        m_v = o_v < num_vertices
    o_m = i_m + tl.arange(0, COUNT)
    o_score = (o_b.to(tl.int64) * num_vertices + o_v)[:, None] * M + o_m[None, :]
    m_score = m_v[:, None] & (o_m < tl.minimum(i_m + HELD, M))[None, :]
    if OPPOSITE:
        b_senders -= b_receivers
    tl.store(at_receivers + o_score, b_receivers, mask=m_score)
    tl.store(at_senders + o_score, b_senders, mask=m_score)


def softmax_gradients(
    grad: Tensor, weights: Tensor, edge_scale: Tensor, pattern: Pattern, opposite: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of the scores at the senders and of those at the receivers, [batch, vertices, slots]. If they are
    ``opposite``, the first is the gradient of the scores at the senders by both."""
    shape, plan = _softmax_gradients_plan(weights.shape, pattern.num_receivers, opposite)
    at_senders, at_receivers = grad.new_empty(*shape), grad.new_empty(*shape)
    if plan is not None:
        edges = pattern.by_sender, pattern.offsets, pattern.sender_offsets
        plan(grad, weights, edge_scale, at_senders, at_receivers, *edges)
    return at_senders, at_receivers


@lru_cache(CACHE_SIZE)
def _softmax_gradients_plan(weights: Shape, num_vertices: int, opposite: bool) -> tuple[Shape, LaunchPlan | None]:
    """The shape of the gradients, and how to launch the kernel; None if there are none."""
    slots, num_edges, batch = weights
    held, threads = min(slots, MAX_HELD), 1 if batch >= ENOUGH_ITEMS else SHARES
    count, wide = power_of_two(held), max(num_edges, num_vertices) * slots * batch > MAX_NARROW
    numbers = (
        num_edges, num_vertices, batch, opposite, slots, held, count, count.bit_length() - 1, threads, ROWS, wide,
    )  # fmt: skip
    grid = (ceil_div(num_vertices * batch, ROWS // threads), ceil_div(slots, held))
    plan = LaunchPlan(_softmax_gradients_kernel, grid, numbers, ROWS // 32)
    return (batch, num_vertices, slots), plan if batch * num_vertices * slots else None


@triton.jit(do_not_specialize=SIZES)
def _attention_gradients_kernel(
    x, at_senders, at_receivers, attention, receiver_attention, grad_x, products, receiver_products, sums,
    num_rows, C, M, num_parts, HAS_RECEIVERS: tl.constexpr, NEEDS_X: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_M: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    i_p, i_c = tl.program_id(0), tl.program_id(1)
    o_c, o_m = i_c * BLOCK_C + tl.arange(0, BLOCK_C), tl.arange(0, BLOCK_M)
    m_c, m_m = o_c < C, o_m < M
    o_a, m_a = o_m[:, None] * C + o_c[None, :], m_m[:, None] & m_c[None, :]
    b_a = tl.load(attention + o_a, mask=m_a, other=0.0)
    if HAS_RECEIVERS:
        b_receiver_a = tl.load(receiver_attention + o_a, mask=m_a, other=0.0)
    b_product = tl.zeros([BLOCK_M, BLOCK_C], dtype=tl.float32)
    b_receiver_product = tl.zeros([BLOCK_M, BLOCK_C], dtype=tl.float32)
    b_sum = tl.zeros([BLOCK_R, BLOCK_M], dtype=tl.float32)
    for i_r in range(i_p * BLOCK_R, num_rows, num_parts * BLOCK_R):
        o_r = i_r + tl.arange(0, BLOCK_R)
        m_r = o_r < num_rows
        o_r = o_r.to(tl.int64)
        o_x, m_x = o_r[:, None] * C + o_c[None, :], m_r[:, None] & m_c[None, :]
        o_s, m_s = o_r[:, None] * M + o_m[None, :], m_r[:, None] & m_m[None, :]
        b_x = tl.load(x + o_x, mask=m_x, other=0.0)
        b_s = tl.load(at_senders + o_s, mask=m_s, other=0.0)
        b_r = tl.load(at_receivers + o_s, mask=m_s, other=0.0)
        if NEEDS_X:
            b_gx = tl.load(grad_x + o_x, mask=m_x, other=0.0).to(tl.float32)
        b_sum += b_r
        b_product += product(tl.trans(b_s).to(b_x.dtype), b_x, PRECISION)
        if HAS_RECEIVERS:
            b_receiver_product += product(tl.trans(b_r).to(b_x.dtype), b_x, PRECISION)
        if NEEDS_X:
            b_gx += product(b_s, b_a, PRECISION)
            if HAS_RECEIVERS:
                b_gx += product(b_r, b_receiver_a, PRECISION)
            tl.store(grad_x + o_x, b_gx.to(grad_x.dtype.element_ty), mask=m_x)
    o_part = i_p.to(tl.int64) * M * C
    tl.store(products + o_part + o_a, b_product, mask=m_a)
    if HAS_RECEIVERS:
        tl.store(receiver_products + o_part + o_a, b_receiver_product, mask=m_a)
    # Programs of other columns write the same numbers.
    tl.store(sums + i_p * M + o_m, tl.sum(b_sum, axis=0), mask=m_m)


def attention_gradients(
    x: Tensor, at_senders: Tensor, at_receivers: Tensor, attention: Tensor, receiver_attention: Tensor | None,
    grad_x: Tensor | None,
) -> tuple[Tensor | None, Tensor | None, Tensor]:  # fmt: skip
    """Add the gradient of x through the scores to ``grad_x``, if that is given. Return the gradients of both attention
    matrices and of the offset in parts, of the gradients of the scores at both ends."""
    slots, channels = attention.shape
    num_rows = prod(x.shape[:-1])
    if not num_rows:
        zeros = x.new_zeros(1, slots, channels, dtype=torch.float32)
        return zeros, zeros, zeros.new_zeros(1, slots)
    has_receivers = receiver_attention is not None
    parts, plan = _attention_gradients_plan(num_rows, slots, channels, has_receivers, grad_x is not None, precision())
    products = x.new_empty(parts, slots, channels, dtype=torch.float32)
    receiver_products = torch.empty_like(products) if has_receivers else None
    sums = x.new_empty(parts, slots, dtype=torch.float32)
    plan(x, at_senders, at_receivers, attention, receiver_attention, grad_x, products, receiver_products, sums)
    return products, receiver_products, sums


@lru_cache(CACHE_SIZE)
def _attention_gradients_plan(
    num_rows: int, slots: int, channels: int, has_receivers: bool, needs_x: bool, precision: str
) -> tuple[int, LaunchPlan]:
    """How many parts there are, and how to launch the kernel."""
    m = power_of_two(slots, 16)
    c = power_of_two(channels, 16, max(16, min(64, MAX_PRODUCT // m)))
    columns = ceil_div(channels, c)
    parts = shares(ceil_div(num_rows, PRODUCT_ROWS), PROGRAMS, columns)
    numbers = num_rows, channels, slots, parts, has_receivers, needs_x, PRODUCT_ROWS, c, m, precision
    return parts, LaunchPlan(_attention_gradients_kernel, (parts, columns), numbers)
