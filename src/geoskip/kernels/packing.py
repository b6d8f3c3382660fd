"""Batches of graphs that are stored one after the other: the rows they take, and their edges in both orders.

Shapes are fixed by ``room``, so that a step on a batch can be captured; places beyond the batch are padding. The
functions here are plain PyTorch; on CUDA each is one Triton kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from geoskip.kernels.paths import kernels_for, on_triton
from geoskip.shapes import Bool, Int, Shaped

Packing = TypeVar("Packing", bound=Callable[..., Any])


def in_one_kernel(plain: Packing) -> Packing:
    """On Triton, run the kernel of the same name instead."""

    @wraps(plain)
    def chosen(*args: Any) -> Any:
        return getattr(kernels_for(args[0]), plain.__name__)(*args) if on_triton(args[0]) else plain(*args)

    return cast(Packing, chosen)


@in_one_kernel
def packed_rows(
    offsets: Int[Tensor, " graphs_plus_1"], items: Int[Tensor, " items"], room: int
) -> tuple[Int[Tensor, " items_plus_1"], Int[Tensor, " room"], Int[Tensor, " room"], Bool[Tensor, " room"]]:
    """The rows ``offsets[g] : offsets[g + 1]`` of each chosen graph in ``room`` places, which must be enough.

    Returns the start of each graph, the graph of each place (the last one for padding), the stored row of each place
    (0 for padding), and whether a place is not padding.
    """
    first = offsets[items]
    counts = offsets[items + 1] - first
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    positions = torch.arange(room, device=offsets.device)
    graphs = torch.searchsorted(starts[1:], positions, right=True).clamp(max=len(items) - 1)
    real = positions < starts[-1]
    return starts, graphs, torch.where(real, first[graphs] + positions - starts[graphs], 0), real


@in_one_kernel
def packed_edges(
    offsets: Int[Tensor, " graphs_plus_1"],
    items: Int[Tensor, " items"],
    vertex_starts: Int[Tensor, " items_plus_1"],
    senders: Shaped[Tensor, " edges"],
    receivers: Shaped[Tensor, " edges"],
    by_sender: Shaped[Tensor, " edges"],
    room: int,
    loops: int,
) -> tuple[Int[Tensor, " room"], Int[Tensor, " room"], Int[Tensor, " room"]]:
    """Senders, receivers and sender order of the edges of the chosen graphs. As stored, they count the vertices and
    edges of their own graph.

    Padding edges are self-loops of the vertices after the batch, ``loops`` at each.
    """
    starts, graphs, rows, real = packed_rows(offsets, items, room)
    positions = torch.arange(room, device=offsets.device)
    padding = vertex_starts[-1] + torch.div((positions - starts[-1]).clamp(min=0), loops, rounding_mode="floor")
    base = vertex_starts[graphs]
    return (
        torch.where(real, senders[rows].long() + base, padding),
        torch.where(real, receivers[rows].long() + base, padding),
        torch.where(real, by_sender[rows].long() + starts[graphs], positions),
    )


@in_one_kernel
def packed_segments(
    vertex_starts: Int[Tensor, " items_plus_1"],
    edge_starts: Int[Tensor, " items_plus_1"],
    graphs: Int[Tensor, " vertices"],
    rows: Int[Tensor, " vertices"],
    first_in: Shaped[Tensor, " stored"],
    first_out: Shaped[Tensor, " stored"],
    room: int,
    loops: int,
) -> tuple[Int[Tensor, "1 vertices_plus_1"], Int[Tensor, "1 vertices_plus_1"]]:
    """The first edge into and out of each vertex of a batch; ``first_in`` and ``first_out`` count within a graph."""
    vertices = torch.arange(len(rows) + 1, device=rows.device)
    padding = (edge_starts[-1] + (vertices - vertex_starts[-1]) * loops).clamp(max=room)

    def starts(stored: Tensor) -> Tensor:
        own = edge_starts[graphs] + stored[rows].long()
        return torch.where(vertices < vertex_starts[-1], torch.cat([own, own.new_zeros(1)]), padding).unsqueeze(0)

    return starts(first_in), starts(first_out)
