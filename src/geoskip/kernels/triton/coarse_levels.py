"""A coarser level of many small graphs on CUDA, in three kernels with a program per graph: match the vertices, contract
the pairs, write the edges. In between, the counts of all graphs are added up, so that each knows where to write.

The formula is :func:`geoskip.graphs.coarsening.coarsen` with one matching and ``"far"`` weights. Results are bitwise
the same, because scores are computed in the same order, and every operation is rounded by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from geoskip.kernels.packing import StoredGraphs
from geoskip.kernels.triton.launch import launch, power_of_two
from geoskip.shapes import Bool, Int

# Columns per warp, and entries of a matrix that a warp works on at a time.
COLUMNS, ENTRIES = 128, 512


class BitMatrices(NamedTuple):
    """Adjacency matrices of graphs with 32 entries in an integer. Rows are receivers; there are no self-loops.

    places: the rows of graph g begin at ``places[g]``; those of a coarser level do not use all of its space.
    words: whether there is an edge from sender s is bit ``s % 32`` of column ``s // 32``.
    degrees: the number of senders of each row.
    """

    places: Int[Tensor, " graphs_plus_1"]
    words: Int[Tensor, "vertices words"]
    degrees: Int[Tensor, " vertices"]


def bit_matrices(
    offsets: Int[Tensor, " graphs_plus_1"], parts: Iterable[Bool[Tensor, "_ senders"]], num_senders: int
) -> BitMatrices:
    """Of the rows of all graphs, in parts."""
    width = power_of_two(num_senders, 32)
    powers = 1 << torch.arange(32, dtype=torch.int32, device=offsets.device)
    words = [torch.zeros(0, width // 32, dtype=torch.int32, device=offsets.device)]
    degrees = [words[0][:, 0]]
    for rows in parts:
        padded = torch.nn.functional.pad(rows, (0, width - num_senders)).view(-1, width // 32, 32)
        words.append((padded * powers).sum(2, dtype=torch.int32))
        degrees.append(rows.sum(1, dtype=torch.int32))
    return BitMatrices(offsets, torch.cat(words), torch.cat(degrees))


@triton.jit
def _mix(b):
    """As :func:`geoskip.graphs.coarsening.mix`."""
    b = b.to(tl.uint64) + 0x9E3779B97F4A7C15
    b = (b ^ (b >> 30)) * 0xBF58476D1CE4E5B9
    b = (b ^ (b >> 27)) * 0x94D049BB133111EB
    return (b ^ (b >> 31)).to(tl.int64)


@triton.jit
def _range(offsets, i_g):
    """The first row of graph ``i_g``, and the number of its rows."""
    i_first = tl.load(offsets + i_g)
    return i_first, (tl.load(offsets + i_g + 1) - i_first).to(tl.int32)


@triton.jit
def _inverse(b_degree):
    """0 for vertices without neighbors."""
    return tl.where(b_degree > 0, tl.div_rn(1.0, tl.maximum(b_degree, 1).to(tl.float32)), 0.0)


@triton.jit
def _mean(p_pos, b_first, b_second, mask, D: tl.constexpr):
    """The mean of one coordinate over the vertices of each cluster, one or two. Products with 0, 0.5 and 1 are exact,
    so it does not matter whether they are fused with a sum."""
    b_paired = (b_first != b_second).to(tl.float32)
    b_sum = tl.load(p_pos + b_first * D, mask=mask, other=0.0)
    b_sum += tl.load(p_pos + b_second * D, mask=mask, other=0.0) * b_paired
    return b_sum * (1.0 - 0.5 * b_paired)


@triton.jit
def _bits(p_words, b_receiver, b_other, b_sender, mask, WORDS: tl.constexpr):
    """Odd where there is an edge to one of two receivers of a row from the sender of a column."""
    o_word = (b_sender >> 5)[None, :]
    b_word = tl.load(p_words + (b_receiver * WORDS)[:, None] + o_word, mask=mask, other=0)
    b_word |= tl.load(p_words + (b_other * WORDS)[:, None] + o_word, mask=mask, other=0)
    return b_word >> (b_sender & 31)[None, :]


@triton.jit
def _matching_kernel(
    places, words, degrees, seeds, offsets, pos, members, targets, firsts, seconds, counts,
    D: tl.constexpr, WORDS: tl.constexpr, ABOVE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i_g = tl.program_id(0)
    i_first, num_vertices = _range(offsets, i_g)
    if (num_vertices <= ABOVE) | (num_vertices > BLOCK):
        return
    i_place = tl.load(places + i_g)
    p_words, p_degrees, p_pos = words + i_place * WORDS, degrees + i_place, pos + i_first * D
    o_v = tl.arange(0, BLOCK)
    m_v = o_v < num_vertices
    b_inverse = _inverse(tl.load(p_degrees + o_v, mask=m_v, other=0))
    # No two vertices of a graph have the same key, because the function is a bijection.
    b_key = _mix(_mix(tl.load(seeds + i_g)) + o_v)
    b_partner = tl.where(m_v, -1, o_v)
    num_free = num_vertices
    while num_free > 0:
        # The next one in the random order that is still free.
        m_free = b_partner < 0
        i_key = tl.min(tl.where(m_free, b_key, 0x7FFFFFFFFFFFFFFF), axis=0)
        i_v = tl.min(tl.where(m_free & (b_key == i_key), o_v, BLOCK), axis=0)
        b_word = tl.load(p_words + i_v * WORDS + (o_v >> 5))
        m_edge = m_free & (((b_word >> (o_v & 31)) & 1) > 0)
        b_square = tl.zeros([BLOCK], dtype=tl.float32)
        for d in tl.static_range(D):
            b_offset = tl.load(p_pos + i_v * D + d) - tl.load(p_pos + o_v * D + d, mask=m_v, other=0.0)
            # A product and a sum would be fused, and rounded once. This product is rounded by itself.
            b_square += tl.fma(b_offset, b_offset, 0.0)
        b_score = tl.sqrt_rn(b_square) * (_inverse(tl.load(p_degrees + i_v)) + b_inverse)
        # Floats that are not negative have the order of their bits; the largest integer of a warp is found faster.
        b_rank = tl.where(m_edge, b_score.to(tl.int32, bitcast=True), -1)
        i_best = tl.max(b_rank, axis=0)
        i_mate = tl.min(tl.where(m_edge & (b_rank == i_best), o_v, BLOCK), axis=0)
        i_mate = tl.where(i_best >= 0, i_mate, i_v)
        b_partner = tl.where(o_v == i_v, i_mate, tl.where(o_v == i_mate, i_v, b_partner))
        num_free -= tl.where(i_mate == i_v, 1, 2)

    # Clusters are numbered by their first vertex; members have the order of the clusters.
    m_first, m_pair = m_v & (b_partner >= o_v), m_v & (b_partner > o_v)
    b_leads, b_pairs = m_first.to(tl.int32), m_pair.to(tl.int32)
    b_cluster = tl.cumsum(b_leads, axis=0) - b_leads
    b_member = b_cluster + tl.cumsum(b_pairs, axis=0) - b_pairs
    tl.store(firsts + i_place + b_cluster, o_v, mask=m_first)
    tl.store(seconds + i_place + b_cluster, b_partner, mask=m_first)
    tl.store(members + i_first + b_member, o_v, mask=m_first)
    tl.store(targets + i_first + b_member, b_cluster, mask=m_first)
    tl.store(members + i_first + b_member + 1, b_partner, mask=m_pair)
    tl.store(targets + i_first + b_member + 1, b_cluster, mask=m_pair)
    tl.store(counts + i_g, tl.sum(b_leads, axis=0))


@triton.jit
def _contraction_kernel(
    places, words, offsets, pos, firsts, seconds, coarse_words, coarse_degrees,
    coarse_offsets, coarse_pos, first_member, first_in, first_out, loops_in, loops_out, counts, largest,
    D: tl.constexpr, LOOPED: tl.constexpr, BY_POSITION: tl.constexpr, BY_DEGREE: tl.constexpr,
    WORDS: tl.constexpr, ABOVE: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    i_g = tl.program_id(0)
    i_first, num_clusters = _range(coarse_offsets, i_g)
    if (num_clusters <= ABOVE) | (num_clusters > BLOCK):
        return
    i_place = tl.load(places + i_g)
    p_words, p_pos = words + i_place * WORDS, pos + tl.load(offsets + i_g) * D
    p_firsts, p_seconds = firsts + i_place, seconds + i_place
    o_c, o_w = tl.arange(0, BLOCK), tl.arange(0, BLOCK // 32)
    m_c = o_c < num_clusters
    b_first = tl.load(p_firsts + o_c, mask=m_c, other=0).to(tl.int32)
    b_second = tl.load(p_seconds + o_c, mask=m_c, other=0).to(tl.int32)
    b_pairs = (b_first != b_second).to(tl.int32)
    tl.store(first_member + i_first + o_c, o_c + tl.cumsum(b_pairs, axis=0) - b_pairs, mask=m_c)
    for d in tl.static_range(D):
        tl.store(coarse_pos + (i_first + o_c) * D + d, _mean(p_pos + d, b_first, b_second, m_c, D), mask=m_c)

    num_edges, i_largest = 0, 0.0
    b_out = tl.zeros([BLOCK], dtype=tl.int32)
    for r in range(0, num_clusters, ROWS):
        o_r = r + tl.arange(0, ROWS)
        m_r = o_r < num_clusters
        b_one = tl.load(p_firsts + o_r, mask=m_r, other=0).to(tl.int32)
        b_other = tl.load(p_seconds + o_r, mask=m_r, other=0).to(tl.int32)
        m_rc = m_r[:, None] & m_c[None, :] & (o_r[:, None] != o_c[None, :])
        b_edge = _bits(p_words, b_one, b_other, b_first, m_rc, WORDS)
        b_edge = (b_edge | _bits(p_words, b_one, b_other, b_second, m_rc, WORDS)) & 1
        # A sum of different powers of two; the last one is the sign.
        b_words = tl.sum(tl.reshape(b_edge << (o_c & 31)[None, :], [ROWS, BLOCK // 32, 32]), axis=2)
        o_words = ((i_place + o_r) * WORDS)[:, None] + o_w[None, :]
        tl.store(coarse_words + o_words, b_words, mask=m_r[:, None])
        b_in = tl.sum(b_edge, axis=1)
        b_before = num_edges + tl.cumsum(b_in, axis=0) - b_in
        tl.store(coarse_degrees + i_place + o_r, b_in, mask=m_r)
        tl.store(first_in + i_first + o_r, b_before, mask=m_r)
        if LOOPED:
            tl.store(loops_in + i_first + o_r, b_before + o_r, mask=m_r)
        num_edges += tl.sum(b_in, axis=0)
        b_out += tl.sum(b_edge, axis=0)
        if BY_DEGREE:
            i_largest = tl.maximum(i_largest, tl.max(b_in, axis=0).to(tl.float32))
        if BY_POSITION:
            for d in tl.static_range(D):
                b_from = _mean(p_pos + d, b_first, b_second, m_c, D)
                b_to = _mean(p_pos + d, b_one, b_other, m_r, D)
                b_offset = tl.where(b_edge > 0, tl.abs(b_to[:, None] - b_from[None, :]), 0.0)
                i_largest = tl.maximum(i_largest, tl.max(tl.max(b_offset, axis=1), axis=0))

    b_before = tl.cumsum(b_out, axis=0) - b_out
    tl.store(first_out + i_first + o_c, b_before, mask=m_c)
    if LOOPED:
        tl.store(loops_out + i_first + o_c, b_before + o_c, mask=m_c)
    tl.store(counts + i_g, num_edges)
    if BY_POSITION or BY_DEGREE:
        tl.store(largest + i_g, i_largest)


@triton.jit
def _write_rows(b_edge, o_r, o_c, num_before, b_next, p_senders, p_receivers, p_by_sender):
    """Write rows of a matrix as edges. ``num_before`` edges come before them in receiver order, and ``b_next`` before
    the next one of each sender in sender order; returns both for the rows that follow."""
    b_in = tl.sum(b_edge, axis=1)
    b_number = num_before + (tl.cumsum(b_in, axis=0) - b_in)[:, None] + tl.cumsum(b_edge, axis=1) - b_edge
    b_place = b_next[None, :] + tl.cumsum(b_edge, axis=0) - b_edge
    m_edge = b_edge > 0
    tl.store(p_senders + b_number, o_c[None, :], mask=m_edge)
    tl.store(p_receivers + b_number, o_r[:, None], mask=m_edge)
    tl.store(p_by_sender + b_place, b_number, mask=m_edge)
    return num_before + tl.sum(b_in, axis=0), b_next + tl.sum(b_edge, axis=0)


@triton.jit
def _edges_kernel(
    places, words, offsets, edge_offsets, senders, receivers, by_sender, first_out,
    loop_offsets, loop_senders, loop_receivers, loops_by_sender, loops_out,
    LOOPED: tl.constexpr, WORDS: tl.constexpr, ABOVE: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    i_g = tl.program_id(0)
    i_first, num_vertices = _range(offsets, i_g)
    if (num_vertices <= ABOVE) | (num_vertices > BLOCK):
        return
    p_words = words + tl.load(places + i_g) * WORDS
    o_c = tl.arange(0, BLOCK)
    m_c = o_c < num_vertices
    i_edge, num_edges = tl.load(edge_offsets + i_g), 0
    b_next = tl.load(first_out + i_first + o_c, mask=m_c, other=0).to(tl.int32)
    if LOOPED:
        i_looped, num_looped = tl.load(loop_offsets + i_g), 0
        b_next_looped = tl.load(loops_out + i_first + o_c, mask=m_c, other=0).to(tl.int32)
    for r in range(0, num_vertices, ROWS):
        o_r = r + tl.arange(0, ROWS)
        m_rc = (o_r < num_vertices)[:, None] & m_c[None, :]
        b_word = tl.load(p_words + (o_r * WORDS)[:, None] + (o_c >> 5)[None, :], mask=m_rc, other=0)
        b_edge = (b_word >> (o_c & 31)[None, :]) & 1
        num_edges, b_next = _write_rows(
            b_edge, o_r, o_c, num_edges, b_next, senders + i_edge, receivers + i_edge, by_sender + i_edge
        )
        if LOOPED:
            b_edge |= (m_rc & (o_r[:, None] == o_c[None, :])).to(tl.int32)
            num_looped, b_next_looped = _write_rows(
                b_edge, o_r, o_c, num_looped, b_next_looped,
                loop_senders + i_looped, loop_receivers + i_looped, loops_by_sender + i_looped,
            )  # fmt: skip


def coarsen_stored(
    graphs: BitMatrices, seeds: Tensor, offsets: Tensor, pos: Tensor, members: Tensor, targets: Tensor,
    edges: StoredGraphs, looped: StoredGraphs | None, coarse_pos: Tensor, first_member: Tensor,
    largest: Tensor | None, by_position: bool,
) -> BitMatrices:  # fmt: skip
    """Coarsen graphs by one matching with ``"far"`` weights, and write the coarser level where it is stored.

    ``graphs``, ``offsets`` and ``pos`` are the finer level, ``seeds`` those of its random orders. Everything else is
    written: ``members`` and ``targets`` of the finer level, and the coarser level. The host does not wait. Returns the
    matrices of the coarser level.
    """
    places, words, degrees = graphs
    num_graphs, num_words, dim = len(seeds), words.shape[1], pos.shape[1]
    coarse = BitMatrices(places, torch.empty_like(words), torch.empty_like(degrees))
    if num_graphs == 0:
        return coarse
    firsts, seconds, counts = torch.empty_like(members), torch.empty_like(members), torch.empty_like(seeds)
    finer = places, words, degrees, seeds, offsets, pos
    clusters = members, targets, firsts, seconds, counts
    _launch(_matching_kernel, num_graphs, (*finer, *clusters, dim, num_words), in_rows=False)
    torch.cumsum(counts, 0, out=edges.vertex_offsets[1:])

    loops = (None,) * len(edges) if looped is None else looped
    measured = largest is not None and by_position, largest is not None and not by_position
    arguments = (
        places, words, offsets, pos, firsts, seconds, coarse.words, coarse.degrees,
        edges.vertex_offsets, coarse_pos, first_member, *edges[5:], *loops[5:], counts, largest,
        dim, looped is not None, *measured, num_words,
    )  # fmt: skip
    _launch(_contraction_kernel, num_graphs, arguments)
    torch.cumsum(counts, 0, out=edges.edge_offsets[1:])
    if looped is not None:
        torch.add(edges.edge_offsets, edges.vertex_offsets, out=looped.edge_offsets)

    written = *edges[1:5], edges.first_out, *loops[1:5], loops[6]
    arguments = places, coarse.words, edges.vertex_offsets, *written, looped is not None, num_words
    _launch(_edges_kernel, num_graphs, arguments)
    return coarse


def _launch(kernel: Any, num_graphs: int, arguments: tuple[Any, ...], in_rows: bool = True) -> None:
    """A program per graph. Graphs that fit into half of the columns, such as most coarser ones, have their own launch,
    because the host does not know their sizes; ``in_rows``: of kernels that go through a matrix row by row."""
    num_columns = 32 * arguments[-1]
    half = max(32, num_columns // 2)
    for above, block in ((-1, half), (half, num_columns)):
        if above < block:
            warps = max(1, block // COLUMNS) if in_rows else 1
            rows = (ENTRIES * warps // block,) if in_rows else ()
            launch(kernel, (num_graphs,), (*arguments, above, block, *rows), warps)
