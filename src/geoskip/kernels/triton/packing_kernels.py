"""Batches of stored graphs on CUDA, one kernel per level; with torch alone it takes a hundred small ones.

A program gathers blocks of one graph. It adds up the sizes of the graphs before it, so that no place of the batch has
to search for its graph. The programs after those of the last graph write the padding.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.packing import Coordinates, GraphBatch, Rows, StoredGraphs
from geoskip.kernels.pattern import Pattern
from geoskip.kernels.triton.launch import SIZES, ceil_div, launch, power_of_two

BLOCK = 256
# Rows of programs for padding, as a share of those for graphs.
PADDING = 4


@triton.jit
def _locate(offsets, b_item, m_b, i_item, i_g, num_items, BLOCK_B: tl.constexpr):
    """Of the rows of graph ``i_g`` of a batch: the first stored one, where they begin in the batch, their number, and
    that of all graphs. After the last graph there are none; they begin where it ends."""
    b_count = tl.load(offsets + b_item + 1, mask=m_b, other=0) - tl.load(offsets + b_item, mask=m_b, other=0)
    i_start = tl.sum(tl.where(tl.arange(0, BLOCK_B) < i_g, b_count, 0), axis=0)
    i_first = tl.load(offsets + i_item)
    count = (tl.load(offsets + i_item + 1) - i_first).to(tl.int32)
    return i_first, i_start, tl.where(i_g < num_items, count, 0), tl.sum(b_count, axis=0)


@triton.jit
def _share(i_g, i_b, num_blocks, num_items):
    """The first block of a program, the distance to its next one, and whether it has any: the ``num_blocks`` programs
    of a graph take its blocks in turn, and all programs after the last graph those of the padding."""
    is_mine = (i_b >= 0) & (i_b < num_blocks)
    i_first = tl.where(i_g < num_items, i_b, (i_g - num_items) * num_blocks + i_b)
    stride = tl.where(i_g < num_items, num_blocks, (tl.num_programs(0) - num_items) * num_blocks)
    return tl.where(is_mine, i_first, 0), stride, is_mine


@triton.jit
def _quotient(a, b):
    """Rounded correctly, as torch does: ``/`` is an approximation in float32."""
    return tl.div_rn(a, b) if a.dtype == tl.float32 else a / b


@triton.jit
def _clamp(b):
    b = tl.where(b < 0, 0, b)
    return tl.where(b > 1, 1, b)


@triton.jit(do_not_specialize=SIZES)
def _graphs_kernel(
    items, vertex_offsets, edge_offsets, stored_senders, stored_receivers, stored_order, stored_in, stored_out,
    stored_x, stored_pos, scales, stored_weights,
    starts, graphs, rows, real, x, senders, receivers, order, into, out, numbers, pseudo, weights,
    num_items, num_vertices, num_edges, num_parts, C, D,
    HAS_VERTICES: tl.constexpr, HAS_X: tl.constexpr, BY_POSITION: tl.constexpr, BY_DEGREE: tl.constexpr,
    IS_SHARED: tl.constexpr, LOOPS: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    i_g, i_b = tl.program_id(0), tl.program_id(1)
    is_graph = i_g < num_items
    i_own = tl.minimum(i_g, num_items - 1)
    m_b = tl.arange(0, BLOCK_B) < num_items
    b_item = tl.load(items + tl.arange(0, BLOCK_B), mask=m_b, other=0)
    i_item = tl.load(items + i_own)
    v_first, v_start, v_count, v_total = _locate(vertex_offsets, b_item, m_b, i_item, i_g, num_items, BLOCK_B)
    e_first, e_start, e_count, e_total = _locate(edge_offsets, b_item, m_b, i_item, i_g, num_items, BLOCK_B)

    # The first programs of a graph take its vertices. Offsets of edges have an end, after the last padding vertex.
    i_share, stride, is_mine = _share(i_g, i_b, num_parts, num_items)
    v_left = tl.where(is_graph, v_count, (num_vertices + 1 - v_total).to(tl.int32))
    for k in range(i_share * BLOCK_P, tl.where(is_mine, v_left, 0), stride * BLOCK_P):
        o_k = k + tl.arange(0, BLOCK_P)
        m_k, m_own = o_k < v_left, o_k < v_count
        o_v, o_row = v_start + o_k, v_first + o_k
        b_end = tl.minimum(e_total + o_k.to(tl.int64) * LOOPS, num_edges)
        b_in = tl.load(stored_in + o_row, mask=m_own, other=0).to(tl.int64) + e_start
        b_out = tl.load(stored_out + o_row, mask=m_own, other=0).to(tl.int64) + e_start
        tl.store(into + o_v, tl.where(is_graph, b_in, b_end), mask=m_k)
        tl.store(out + o_v, tl.where(is_graph, b_out, b_end), mask=m_k)
        if HAS_VERTICES:
            m_v = m_k & (o_v < num_vertices)
            tl.store(graphs + o_v, o_v * 0 + i_own, mask=m_v)
            tl.store(rows + o_v, tl.where(is_graph, o_row, 0), mask=m_v)
            tl.store(real + o_v, m_own, mask=m_v)
            if HAS_X:
                for c in range(C):
                    b_x = tl.load(stored_x + o_row * C + c, mask=m_own, other=0.0)
                    tl.store(x + o_v * C + c, b_x, mask=m_v)
    if HAS_VERTICES:
        tl.store(starts + i_g, v_start, mask=(i_g <= num_items) & (i_b == 0))

    if BY_POSITION or BY_DEGREE:
        if IS_SHARED:
            i_largest = tl.max(tl.load(scales + b_item, mask=m_b, other=0.0), axis=0)
            i_scale = tl.where(i_largest > 0, i_largest, 1.0)
        else:
            i_scale = tl.load(scales + i_item)
    # The others take its edges.
    i_share, stride, is_mine = _share(i_g, i_b - num_parts, tl.num_programs(1) - num_parts, num_items)
    e_left = tl.where(is_graph, e_count, (num_edges - e_total).to(tl.int32))
    for k in range(i_share * BLOCK_P, tl.where(is_mine, e_left, 0), stride * BLOCK_P):
        o_k = k + tl.arange(0, BLOCK_P)
        m_k, m_own = o_k < e_left, o_k < e_count
        o_e, o_row = e_start + o_k, e_first + o_k
        b_loop = o_k // LOOPS
        b_sender = tl.load(stored_senders + o_row, mask=m_own, other=0).to(tl.int32)
        b_receiver = tl.load(stored_receivers + o_row, mask=m_own, other=0).to(tl.int32)
        b_order = tl.load(stored_order + o_row, mask=m_own, other=0).to(tl.int32)
        tl.store(senders + o_e, v_start + tl.where(is_graph, b_sender, b_loop), mask=m_k)
        tl.store(receivers + o_e, v_start + tl.where(is_graph, b_receiver, b_loop), mask=m_k)
        tl.store(order + o_e, e_start + tl.where(is_graph, b_order, o_k), mask=m_k)
        if HAS_VERTICES:
            tl.store(numbers + o_e, o_e, mask=m_k)
        else:
            b_weight = tl.load(stored_weights + o_row, mask=m_own, other=1)
            tl.store(weights + o_e, b_weight.to(tl.float32), mask=m_k)
        if BY_POSITION:
            for d in range(D):
                b_from = tl.load(stored_pos + (v_first + b_sender) * D + d, mask=m_own, other=0.0)
                b_to = tl.load(stored_pos + (v_first + b_receiver) * D + d, mask=m_own, other=0.0)
                b_relative = _quotient(b_from - b_to, 2 * i_scale) + 0.5
                tl.store(pseudo + o_e * D + d, _clamp(b_relative), mask=m_k)
        if BY_DEGREE:
            m_next = m_own & (b_receiver + 1 < v_count)
            b_first = tl.load(stored_in + v_first + b_receiver, mask=m_own, other=0).to(tl.int32)
            b_next = tl.load(stored_in + v_first + b_receiver + 1, mask=m_next, other=0).to(tl.int32)
            b_degree = tl.where(m_next, b_next, e_count) - b_first
            b_degree = tl.where(is_graph, b_degree, tl.minimum(e_left - b_loop * LOOPS, LOOPS))
            tl.store(pseudo + o_e, _clamp(_quotient(b_degree.to(i_scale.dtype), i_scale)), mask=m_k)


def packed_graphs(
    items: Tensor, stored: StoredGraphs, num_vertices: int, num_edges: int, loops: int, x: Tensor | None,
    coordinates: Coordinates | None,
) -> GraphBatch:  # fmt: skip
    verts = Rows(
        items.new_empty(len(items) + 1), items.new_empty(num_vertices), items.new_empty(num_vertices),
        torch.empty(num_vertices, dtype=torch.bool, device=items.device),
    )  # fmt: skip
    order = items.new_empty(num_edges)
    features = None if x is None else x.new_empty(num_vertices, x.shape[1])
    pseudo, pos = None, None
    if coordinates is not None:
        pos = coordinates.pos
        given, dim = (coordinates.scales, 1) if pos is None else (pos, pos.shape[1])
        pseudo = given.new_empty(num_edges, dim)
    outputs = verts.starts, verts.graphs, verts.rows, verts.real, features, order, pseudo, None
    pattern = _launch_graphs(items, stored, x, coordinates, None, outputs, num_vertices, num_edges, loops)
    return GraphBatch(verts, pattern, order, features, pseudo)


def packed_edges(
    items: Tensor, stored: StoredGraphs, num_vertices: int, num_edges: int, loops: int, weights: Tensor
) -> tuple[Pattern, Tensor]:
    found = torch.empty(num_edges, device=items.device)
    outputs = None, None, None, None, None, None, None, found
    pattern = _launch_graphs(items, stored, None, None, weights, outputs, num_vertices, num_edges, loops)
    return pattern, found


def _launch_graphs(
    items: Tensor, stored: StoredGraphs, x: Tensor | None, coordinates: Coordinates | None, weights: Tensor | None,
    outputs: tuple[Tensor | None, ...], num_vertices: int, num_edges: int, loops: int,
) -> Pattern:  # fmt: skip
    senders, receivers, by_sender = (items.new_empty(num_edges) for _ in range(3))
    into, out = (items.new_empty(1, num_vertices + 1) for _ in range(2))
    pos, scales, shared = (None, None, False) if coordinates is None else coordinates
    grid, parts = _grid(len(items), num_vertices, num_edges)
    arguments = (
        items, *stored, x, pos, scales, weights, *outputs[:5], senders, receivers, by_sender, into, out, *outputs[5:],
        len(items), num_vertices, num_edges, parts, 0 if x is None else x.shape[1], 0 if pos is None else pos.shape[1],
        weights is None, x is not None, pos is not None, scales is not None and pos is None, shared,
        loops, power_of_two(len(items)), BLOCK,
    )  # fmt: skip
    launch(_graphs_kernel, grid, arguments)
    return Pattern(senders, receivers, None, into, by_sender, out)


def _grid(num_items: int, first: int, second: int) -> tuple[tuple[int, int], int]:
    """Programs of each graph and of the padding, as many as an average graph has blocks of two kinds of rows; and how
    many of them are of the first kind."""
    parts = [max(1, ceil_div(ceil_div(num_rows, num_items), BLOCK)) for num_rows in (first, second)]
    return (num_items + ceil_div(num_items, PADDING), sum(parts)), parts[0]


@triton.jit(do_not_specialize=SIZES)
def _clusters_kernel(
    items, fine_offsets, coarse_offsets, stored_members, stored_targets, stored_first,
    senders, receivers, into, order, out,
    num_items, num_senders, num_receivers, num_rows, num_parts, BLOCK_B: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    i_g, i_b = tl.program_id(0), tl.program_id(1)
    is_graph = i_g < num_items
    m_b = tl.arange(0, BLOCK_B) < num_items
    b_item = tl.load(items + tl.arange(0, BLOCK_B), mask=m_b, other=0)
    i_item = tl.load(items + tl.minimum(i_g, num_items - 1))
    f_first, f_start, f_count, f_total = _locate(fine_offsets, b_item, m_b, i_item, i_g, num_items, BLOCK_B)
    c_first, c_start, c_count, c_total = _locate(coarse_offsets, b_item, m_b, i_item, i_g, num_items, BLOCK_B)

    # The first programs of a graph take its members, each of which is in one cluster. Offsets of senders have an end.
    i_share, stride, is_mine = _share(i_g, i_b, num_parts, num_items)
    f_left = tl.where(is_graph, f_count, (num_rows + 1 - f_total).to(tl.int32))
    for k in range(i_share * BLOCK_P, tl.where(is_mine, f_left, 0), stride * BLOCK_P):
        o_k = k + tl.arange(0, BLOCK_P)
        m_k, m_own = o_k < f_left, o_k < f_count
        o_p, o_row = f_start + o_k, f_first + o_k
        m_p = m_k & (o_p < num_rows)
        b_member = tl.load(stored_members + o_row, mask=m_own, other=0).to(tl.int64) + f_start
        b_target = tl.load(stored_targets + o_row, mask=m_own, other=0).to(tl.int64) + c_start
        b_padding = tl.minimum(c_start + o_k, num_receivers)
        tl.store(senders + o_p, tl.where(is_graph, b_member, num_senders - 1), mask=m_p)
        tl.store(receivers + o_p, tl.where(is_graph, b_target, b_padding), mask=m_p)
        tl.store(order + tl.where(is_graph, b_member, o_p), o_p, mask=m_p)
        tl.store(out + o_p, tl.minimum(o_p, f_total), mask=m_k & (o_p <= num_senders))

    # The others take its clusters.
    i_share, stride, is_mine = _share(i_g, i_b - num_parts, tl.num_programs(1) - num_parts, num_items)
    c_left = tl.where(is_graph, c_count, (num_receivers + 1 - c_total).to(tl.int32))
    for k in range(i_share * BLOCK_P, tl.where(is_mine, c_left, 0), stride * BLOCK_P):
        o_k = k + tl.arange(0, BLOCK_P)
        m_k = o_k < c_left
        b_first = tl.load(stored_first + c_first + o_k, mask=o_k < c_count, other=0).to(tl.int32)
        tl.store(into + c_start + o_k, f_start + tl.where(is_graph, b_first, o_k), mask=m_k)


def packed_clusters(
    items: Tensor, fine_offsets: Tensor, coarse_offsets: Tensor, members: Tensor, targets: Tensor, first_member: Tensor,
    num_fine: int, num_coarse: int, padded: bool,
) -> Pattern:  # fmt: skip
    num_rows = num_fine + num_coarse if padded else num_fine
    senders, receivers, by_sender = (items.new_empty(num_rows) for _ in range(3))
    into, out = items.new_empty(1, num_coarse + 1), items.new_empty(1, num_fine + 1)
    grid, parts = _grid(len(items), num_fine, num_coarse)
    arguments = (
        items, fine_offsets, coarse_offsets, members, targets, first_member, senders, receivers, into, by_sender, out,
        len(items), num_fine, num_coarse, num_rows, parts, power_of_two(len(items)), BLOCK,
    )  # fmt: skip
    launch(_clusters_kernel, grid, arguments)
    return Pattern(senders, receivers, None, into, by_sender, out)
