"""The edges of many graphs in both orders, sorted once per graph: a batch adds offsets and sorts nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from geoskip.data.graph_set import local_dtype
from geoskip.graphs import Graph, WeightedEdges, graph_of_vertex
from geoskip.kernels import Pattern
from geoskip.kernels.packing import packed_edges, packed_segments
from geoskip.shapes import Int, Shaped
from geoskip.training.packed.rows import Rows, rows_of

# Self-loops of a padding vertex: few, since a vertex with many neighbours keeps its kernel waiting.
LOOPS = 16


@dataclass(frozen=True, eq=False)
class PackedEdges:
    """Edges of graphs, graph after graph, numbered within their graph in small integer types.

    offsets: graph g has the edges ``offsets[g] : offsets[g + 1]``, sorted by receiver.
    senders, receivers: vertices of its own graph.
    by_sender: the same edges sorted by sender, as places among those of the graph.
    first_in, first_out: per vertex, how many edges of its graph come before its own, by receiver and by sender.
    weights: 0 or 1, where edges are weighted.
    """

    offsets: Int[Tensor, " graphs_plus_1"]
    senders: Shaped[Tensor, " edges"]
    receivers: Shaped[Tensor, " edges"]
    by_sender: Shaped[Tensor, " edges"]
    first_in: Shaped[Tensor, " vertices"]
    first_out: Shaped[Tensor, " vertices"]
    weights: Shaped[Tensor, " edges"] | None = None

    @classmethod
    def of(cls, graph: Graph, edges: WeightedEdges | None = None) -> PackedEdges:
        """The edges of packed graphs, or others between the same vertices."""
        pattern = graph.pattern if edges is None else edges.pattern
        bounds = graph.graph_offsets
        assert bounds is not None
        owner = graph_of_vertex(graph)
        offsets, edge_owner = pattern.offsets[0][bounds], owner[pattern.receivers]
        vertex, place = local_dtype(_most(bounds)), local_dtype(_most(offsets) + 1)
        return cls(
            offsets,
            (pattern.senders - bounds[edge_owner]).to(vertex),
            (pattern.receivers - bounds[edge_owner]).to(vertex),
            (pattern.by_sender - offsets[edge_owner]).to(place),
            (pattern.offsets[0][:-1] - offsets[owner]).to(place),
            (pattern.sender_offsets[0][:-1] - offsets[owner]).to(place),
            None if edges is None else edges.weights.to(torch.uint8),
        )

    @classmethod
    def join(cls, parts: Sequence[PackedEdges]) -> PackedEdges:
        """Graphs after graphs."""
        joined: dict[str, Any] = {f.name: join([getattr(part, f.name) for part in parts]) for f in fields(cls)}
        return cls(**joined | {"offsets": join_offsets([part.offsets for part in parts])})

    def batch(self, items: Int[Tensor, " items"], verts: Rows, room: int) -> tuple[Pattern, Rows]:
        """The edges between the vertices of a batch; padding edges are loops, ``LOOPS`` at each padding vertex."""
        edges = rows_of(self.offsets, items, room)
        stored = self.senders, self.receivers, self.by_sender
        senders, receivers, by_sender = packed_edges(self.offsets, items, verts.starts, *stored, room, LOOPS)
        into, out = packed_segments(
            verts.starts, edges.starts, verts.graphs, verts.rows, self.first_in, self.first_out, room, LOOPS
        )
        return Pattern(senders, receivers, None, into, by_sender, out), edges


def join(parts: Sequence[Tensor | None]) -> Tensor | None:
    """One after the other, in the widest of their types."""
    present = [part for part in parts if part is not None]
    return torch.cat(present) if present else None


def join_offsets(parts: Sequence[Int[Tensor, " _"]]) -> Int[Tensor, " _"]:
    """Offsets of all that the parts count."""
    counts = torch.cat([part.diff() for part in parts])
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _most(offsets: Tensor) -> int:
    return int(offsets.diff().max()) if len(offsets) > 1 else 0
