"""Batches of graphs that are stored one after the other: their vertices, their edges in both orders, and the clusters
that lead from one level to the next.

Shapes are fixed by the numbers of vertices and edges, so that a step on a batch can be captured; places beyond the
batch are padding. The functions here are plain PyTorch; on CUDA each is one Triton kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from geoskip.kernels.paths import is_fast, kernels_for, on_triton
from geoskip.kernels.pattern import Pattern
from geoskip.shapes import Bool, Float, Int, Shaped

Packing = TypeVar("Packing", bound=Callable[..., Any])


class StoredGraphs(NamedTuple):
    """Graphs that batches are gathered from. Their vertices and edges are numbered within their graph.

    vertex_offsets, edge_offsets: graph g has the vertices ``vertex_offsets[g] : vertex_offsets[g + 1]``, and so on.
    senders, receivers: of each edge, in receiver order.
    by_sender: the same edges in sender order, as indices into those of the graph.
    first_in, first_out: per vertex, how many edges of its graph come before its own, by receiver and by sender.
    """

    vertex_offsets: Int[Tensor, " graphs_plus_1"]
    edge_offsets: Int[Tensor, " graphs_plus_1"]
    senders: Shaped[Tensor, " edges"]
    receivers: Shaped[Tensor, " edges"]
    by_sender: Shaped[Tensor, " edges"]
    first_in: Shaped[Tensor, " vertices"]
    first_out: Shaped[Tensor, " vertices"]


class Coordinates(NamedTuple):
    """What the pseudo-coordinates of stored graphs are made of.

    pos: positions of their vertices; None for the degrees of the receivers.
    scales: per graph, the offset or degree that becomes 1.
    shared: whether the largest scale of a batch replaces those of its graphs; 1 if that is 0.
    """

    pos: Float[Tensor, "vertices dim"] | None
    scales: Float[Tensor, " graphs"]
    shared: bool


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a batch: those of its first graph, of its second, …, then padding.

    starts: graph g of the batch has the rows ``starts[g] : starts[g + 1]``.
    graphs: the graph that each row belongs to; the last one for padding.
    rows: the stored row that each row of the batch is copied from; 0 for padding.
    real: False for padding.
    """

    starts: Int[Tensor, " items_plus_1"]
    graphs: Int[Tensor, " rows"]
    rows: Int[Tensor, " rows"]
    real: Bool[Tensor, " rows"]

    @property
    def count(self) -> Int[Tensor, ""]:
        """The number of rows that are not padding, on the device to avoid a synchronization."""
        return self.starts[-1]

    @property
    def capacity(self) -> int:
        return len(self.rows)

    def take(self, values: Tensor, padding: int = 0) -> Tensor:
        """The stored values of the rows; ``padding`` in padding rows."""
        real = self.real.view(-1, *(1,) * (values.dim() - 1))
        return torch.where(real, values[self.rows], padding)

    def spread(self, values: Tensor) -> Tensor:
        """One value per graph, repeated for all its rows; 0 in padding rows."""
        return torch.where(self.real, values[self.graphs], 0)


class GraphBatch(NamedTuple):
    """The vertices and edges of a batch, the number of each edge, and what was asked for: features and
    pseudo-coordinates."""

    verts: Rows
    pattern: Pattern
    order: Int[Tensor, " edges"]
    x: Float[Tensor, "vertices channels"] | None
    pseudo: Float[Tensor, "edges dim"] | None


def in_one_kernel(plain: Packing) -> Packing:
    """On Triton, run the kernel of the same name instead."""

    @wraps(plain)
    def chosen(*args: Any) -> Any:
        in_triton = is_fast(args[0]) and on_triton(args[0])
        return getattr(kernels_for(args[0]), plain.__name__)(*args) if in_triton else plain(*args)

    return cast(Packing, chosen)


@in_one_kernel
def packed_graphs(
    items: Int[Tensor, " items"],
    stored: StoredGraphs,
    num_vertices: int,
    num_edges: int,
    loops: int,
    x: Float[Tensor, "stored channels"] | None,
    coordinates: Coordinates | None,
) -> GraphBatch:
    """The chosen graphs, one or more, in ``num_vertices`` and ``num_edges`` places, which must be enough.

    Padding edges are self-loops of the vertices after the batch, ``loops`` at each. The features ``x`` of padding
    vertices are 0, and so are their positions.
    """
    verts = _rows(stored.vertex_offsets, items, num_vertices)
    pattern, _ = _edges(items, stored, verts, num_edges, loops)
    pseudo = None
    if coordinates is not None:
        scales = coordinates.scales[items]
        if coordinates.shared:
            largest = scales.max()
            scale = torch.where(largest > 0, largest, 1)
        else:
            scale = scales[verts.graphs[pattern.receivers]].unsqueeze(1)
        pos = None if coordinates.pos is None else verts.take(coordinates.pos)
        pseudo = relative_coordinates(pattern, pos, scale)
    order = torch.arange(num_edges, device=items.device)
    return GraphBatch(verts, pattern, order, None if x is None else verts.take(x), pseudo)


@in_one_kernel
def packed_edges(
    items: Int[Tensor, " items"],
    stored: StoredGraphs,
    num_vertices: int,
    num_edges: int,
    loops: int,
    weights: Shaped[Tensor, " stored"],
) -> tuple[Pattern, Float[Tensor, " edges"]]:
    """Only the edges of :func:`packed_graphs`, and their weights in float32; those of padding are 1."""
    verts = _rows(stored.vertex_offsets, items, num_vertices)
    pattern, edges = _edges(items, stored, verts, num_edges, loops)
    return pattern, edges.take(weights, padding=1).float()


@in_one_kernel
def packed_clusters(
    items: Int[Tensor, " items"],
    fine_offsets: Int[Tensor, " graphs_plus_1"],
    coarse_offsets: Int[Tensor, " graphs_plus_1"],
    members: Shaped[Tensor, " fine"],
    targets: Shaped[Tensor, " fine"],
    first_member: Shaped[Tensor, " coarse"],
    num_fine: int,
    num_coarse: int,
    padded: bool,
) -> Pattern:
    """Which vertices of a batch are merged to which of the next level.

    ``members`` are the vertices of each graph in the order of their clusters, ``targets`` the clusters, and
    ``first_member`` counts the members before those of a cluster, all numbered within the graph. If batches are
    ``padded``, a padding cluster has one arbitrary member, because an empty one has no maximum. No segment by sender
    contains it, so it passes no gradient on.
    """
    fine, coarse = _rows(fine_offsets, items, num_fine), _rows(coarse_offsets, items, num_coarse)
    num_real, num_clusters = fine.count, coarse.count
    positions = torch.arange(num_fine + num_coarse if padded else num_fine, device=items.device)
    is_real, rows = positions < num_real, positions.clamp(max=num_fine - 1)
    own = members[fine.rows].long() + fine.starts[fine.graphs]
    senders = torch.where(is_real, own[rows], num_fine - 1)
    cluster = targets[fine.rows].long() + coarse.starts[fine.graphs]
    receivers = torch.where(is_real, cluster[rows], (num_clusters + positions - num_real).clamp(max=num_coarse))
    clusters = torch.arange(num_coarse + 1, device=items.device)
    first = fine.starts[coarse.graphs] + coarse.take(first_member).long()
    padding = num_real + clusters - num_clusters
    offsets = torch.where(clusters < num_clusters, torch.cat([first, first.new_zeros(1)]), padding)
    # Each vertex is in one cluster.
    by_sender = torch.empty_like(positions).scatter_(0, torch.where(is_real, senders, positions), positions)
    sender_offsets = torch.arange(num_fine + 1, device=items.device).clamp(max=num_real)
    return Pattern(senders, receivers, None, offsets.unsqueeze(0), by_sender, sender_offsets.unsqueeze(0))


def relative_coordinates(
    pattern: Pattern, pos: Float[Tensor, "vertices dim"] | None, scale: Float[Tensor, ...] | float
) -> Float[Tensor, "edges dim"]:
    """Pseudo-coordinates with a scale for each edge: the sender's position relative to the receiver, or without
    positions the receiver's degree."""
    if pos is None:
        return (pattern.counts[0][pattern.receivers].unsqueeze(1) / scale).clamp(0, 1)
    return ((pos[pattern.senders] - pos[pattern.receivers]) / (2 * scale) + 0.5).clamp(0, 1)


def _rows(offsets: Tensor, items: Tensor, room: int) -> Rows:
    """The rows ``offsets[g] : offsets[g + 1]`` of each chosen graph in ``room`` places."""
    first = offsets[items]
    counts = offsets[items + 1] - first
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    positions = torch.arange(room, device=offsets.device)
    graphs = torch.searchsorted(starts[1:], positions, right=True).clamp(max=len(items) - 1)
    real = positions < starts[-1]
    return Rows(starts, graphs, torch.where(real, first[graphs] + positions - starts[graphs], 0), real)


def _edges(items: Tensor, stored: StoredGraphs, verts: Rows, num_edges: int, loops: int) -> tuple[Pattern, Rows]:
    edges = _rows(stored.edge_offsets, items, num_edges)
    positions = torch.arange(num_edges, device=items.device)
    num_verts, num_real = verts.count, edges.count
    padding = num_verts + torch.div((positions - num_real).clamp(min=0), loops, rounding_mode="floor")
    base = verts.starts[edges.graphs]
    senders, receivers = (
        torch.where(edges.real, ends[edges.rows].long() + base, padding) for ends in (stored.senders, stored.receivers)
    )
    by_sender = torch.where(edges.real, stored.by_sender[edges.rows].long() + edges.starts[edges.graphs], positions)
    vertices = torch.arange(verts.capacity + 1, device=items.device)
    ends = (num_real + (vertices - num_verts) * loops).clamp(max=num_edges)

    def segments(first: Tensor) -> Tensor:
        own = edges.starts[verts.graphs] + first[verts.rows].long()
        return torch.where(vertices < num_verts, torch.cat([own, own.new_zeros(1)]), ends).unsqueeze(0)

    into, out = segments(stored.first_in), segments(stored.first_out)
    return Pattern(senders, receivers, None, into, by_sender, out), edges
