"""Batches of stored graphs on CUDA, in three kernels; with torch alone it takes a hundred small ones."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.triton.launch import SIZES, ceil_div, launch, power_of_two

BLOCK = 64


@triton.jit
def _find(o_p, offsets, items, num_items, BLOCK_B: tl.constexpr):
    """The graph of the batch that each place belongs to, where that graph starts, the stored row of the place, the
    number of places that are not padding, and where each graph ends."""
    o_b = tl.arange(0, BLOCK_B)
    m_b = o_b < num_items
    b_item = tl.load(items + o_b, mask=m_b, other=0)
    b_first = tl.load(offsets + b_item, mask=m_b, other=0)
    b_count = tl.load(offsets + b_item + 1, mask=m_b, other=0) - b_first
    b_end = tl.cumsum(b_count, axis=0)
    b_before = (b_end[None, :] <= o_p[:, None]) & m_b[None, :]
    b_graph = tl.minimum(tl.sum(b_before.to(tl.int64), axis=1), num_items - 1)
    b_start = tl.sum(tl.where(b_before, b_count[None, :], 0), axis=1)
    b_row = tl.load(offsets + tl.load(items + b_graph)) + o_p - b_start
    return b_graph, b_start, b_row, tl.sum(b_count, axis=0), b_end


@triton.jit(do_not_specialize=SIZES)
def _rows_kernel(
    offsets, items, starts, graphs, rows, real, num_items, room, BLOCK_B: tl.constexpr, BLOCK_P: tl.constexpr
):
    i_p = tl.program_id(0)
    o_p = (i_p * BLOCK_P + tl.arange(0, BLOCK_P)).to(tl.int64)
    m_p = o_p < room
    b_graph, _, b_row, b_total, b_end = _find(o_p, offsets, items, num_items, BLOCK_B)
    b_real = o_p < b_total
    tl.store(graphs + o_p, b_graph, mask=m_p)
    tl.store(rows + o_p, tl.where(b_real, b_row, 0), mask=m_p)
    tl.store(real + o_p, b_real, mask=m_p)
    if i_p == 0:
        o_b = tl.arange(0, BLOCK_B)
        tl.store(starts + 1 + o_b, b_end, mask=o_b < num_items)
        tl.store(starts + o_b, o_b.to(tl.int64) * 0, mask=o_b < 1)


def packed_rows(offsets: Tensor, items: Tensor, room: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    num_items = len(items)
    starts = offsets.new_empty(num_items + 1)
    graphs, rows = offsets.new_empty(room), offsets.new_empty(room)
    real = torch.empty(room, dtype=torch.bool, device=offsets.device)
    arguments = (offsets, items, starts, graphs, rows, real, num_items, room, power_of_two(num_items), BLOCK)
    launch(_rows_kernel, (max(1, ceil_div(room, BLOCK)),), arguments)
    return starts, graphs, rows, real


@triton.jit(do_not_specialize=SIZES)
def _edges_kernel(
    offsets, items, vertex_starts, stored_senders, stored_receivers, stored_order, senders, receivers, order,
    num_items, room, LOOPS: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    o_p = (tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)).to(tl.int64)
    m_p = o_p < room
    b_graph, b_start, b_row, b_total, _ = _find(o_p, offsets, items, num_items, BLOCK_B)
    b_real = o_p < b_total
    b_row = tl.where(b_real, b_row, 0)
    b_base = tl.load(vertex_starts + b_graph)
    b_loop = tl.load(vertex_starts + num_items) + tl.maximum(o_p - b_total, 0) // LOOPS
    b_sender = tl.load(stored_senders + b_row, mask=b_real, other=0).to(tl.int64) + b_base
    b_receiver = tl.load(stored_receivers + b_row, mask=b_real, other=0).to(tl.int64) + b_base
    b_place = tl.load(stored_order + b_row, mask=b_real, other=0).to(tl.int64) + b_start
    tl.store(senders + o_p, tl.where(b_real, b_sender, b_loop), mask=m_p)
    tl.store(receivers + o_p, tl.where(b_real, b_receiver, b_loop), mask=m_p)
    tl.store(order + o_p, tl.where(b_real, b_place, o_p), mask=m_p)


def packed_edges(
    offsets: Tensor, items: Tensor, vertex_starts: Tensor, senders: Tensor, receivers: Tensor, by_sender: Tensor,
    room: int, loops: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    out = [offsets.new_empty(room) for _ in range(3)]
    arguments = (
        offsets, items, vertex_starts, senders, receivers, by_sender, *out,
        len(items), room, loops, power_of_two(len(items)), BLOCK,
    )  # fmt: skip
    if room:
        launch(_edges_kernel, (ceil_div(room, BLOCK),), arguments)
    return out[0], out[1], out[2]


@triton.jit(do_not_specialize=SIZES)
def _segments_kernel(
    vertex_starts, edge_starts, graphs, rows, first_in, first_out, into, out,
    num_items, num_vertices, room, LOOPS: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    o_v = (tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)).to(tl.int64)
    b_verts, b_edges = tl.load(vertex_starts + num_items), tl.load(edge_starts + num_items)
    m_v = (o_v < b_verts) & (o_v < num_vertices)
    b_start = tl.load(edge_starts + tl.load(graphs + o_v, mask=m_v, other=0), mask=m_v, other=0)
    b_row = tl.load(rows + o_v, mask=m_v, other=0)
    b_padding = tl.minimum(b_edges + tl.maximum(o_v - b_verts, 0) * LOOPS, room)
    b_in = b_start + tl.load(first_in + b_row, mask=m_v, other=0).to(tl.int64)
    b_out = b_start + tl.load(first_out + b_row, mask=m_v, other=0).to(tl.int64)
    tl.store(into + o_v, tl.where(m_v, b_in, b_padding), mask=o_v <= num_vertices)
    tl.store(out + o_v, tl.where(m_v, b_out, b_padding), mask=o_v <= num_vertices)


def packed_segments(
    vertex_starts: Tensor, edge_starts: Tensor, graphs: Tensor, rows: Tensor, first_in: Tensor, first_out: Tensor,
    room: int, loops: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    verts = len(rows)
    into, out = edge_starts.new_empty(1, verts + 1), edge_starts.new_empty(1, verts + 1)
    arguments = (
        vertex_starts, edge_starts, graphs, rows, first_in, first_out, into, out,
        len(vertex_starts) - 1, verts, room, loops, BLOCK,
    )  # fmt: skip
    launch(_segments_kernel, (ceil_div(verts + 1, BLOCK),), arguments)
    return into, out
