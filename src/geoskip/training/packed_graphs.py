"""One level of many packed graphs: how it is stored, and how batches are gathered from it without sorting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import torch
from torch import Tensor

from geoskip.data.graph_sets import local_dtype, offsets_of
from geoskip.graphs import Graph, PooledGraphs, WeightedEdges, graph_of_vertex, with_self_loops
from geoskip.graphs.tensor_records import register_record
from geoskip.kernels import Pattern
from geoskip.kernels.packing import Coordinates, Rows, StoredGraphs, packed_clusters, packed_edges, packed_graphs
from geoskip.shapes import Float, Int, Shaped

register_record(Rows)
# Self-loops per padding vertex: few, because a vertex with many neighbors slows its kernel down.
LOOPS = 16


@register_record
@dataclass(frozen=True, eq=False)
class PackedEdges:
    """Edges of graphs, graph after graph, numbered within their graph in small integer types.

    offsets: graph g has the edges ``offsets[g] : offsets[g + 1]``, sorted by receiver.
    senders, receivers: vertices of its own graph.
    by_sender: the same edges sorted by sender, as indices into those of the graph.
    first_in, first_out: per vertex, how many edges of its graph come before its own, by receiver and by sender.
    weights: 0 or 1, if edges are weighted.
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
        """The edges of packed graphs, or other edges between the same vertices."""
        pattern = graph.pattern if edges is None else edges.pattern
        bounds, owner = _bounds(graph), graph_of_vertex(graph)
        offsets, edge_owner = pattern.offsets[0][bounds], owner[pattern.receivers]
        vertex, edge = local_dtype(_largest(bounds)), local_dtype(_largest(offsets) + 1)
        return cls(
            offsets,
            (pattern.senders - bounds[edge_owner]).to(vertex),
            (pattern.receivers - bounds[edge_owner]).to(vertex),
            (pattern.by_sender - offsets[edge_owner]).to(edge),
            (pattern.offsets[0][:-1] - offsets[owner]).to(edge),
            (pattern.sender_offsets[0][:-1] - offsets[owner]).to(edge),
            None if edges is None else edges.weights.to(torch.uint8),
        )

    @classmethod
    def join(cls, parts: Sequence[PackedEdges]) -> PackedEdges:
        """The graphs of all parts, one after the other."""
        joined: dict[str, Any] = {f.name: join([getattr(part, f.name) for part in parts]) for f in fields(cls)}
        return cls(**joined | {"offsets": join_offsets([part.offsets for part in parts])})

    def stored(self, offsets: Int[Tensor, " graphs_plus_1"]) -> StoredGraphs:
        """Graphs with these edges; ``offsets`` are those of their vertices."""
        ends = self.senders, self.receivers, self.by_sender
        return StoredGraphs(offsets, self.offsets, *ends, self.first_in, self.first_out)


def join(parts: Sequence[Tensor | None]) -> Tensor | None:
    """Concatenate in the widest of the types."""
    present = [part for part in parts if part is not None]
    return torch.cat(present) if present else None


def join_offsets(parts: Sequence[Int[Tensor, " _"]]) -> Int[Tensor, " _"]:
    """The offsets of the concatenated parts."""
    return offsets_of(torch.cat([part.diff() for part in parts]))


def _largest(offsets: Tensor) -> int:
    return int(offsets.diff().max()) if len(offsets) > 1 else 0


def _bounds(graph: Graph) -> Tensor:
    assert graph.graph_offsets is not None
    return graph.graph_offsets


def _small(numbers: Tensor) -> Tensor:
    return numbers.to(local_dtype(int(numbers.max()) + 1 if numbers.numel() else 1))


@dataclass(frozen=True)
class BatchShape:
    """The padded size of a batch: numbers of vertices, edges, and edges with self-loops, if they are stored."""

    verts: int
    edges: int
    looped: int = 0


@dataclass(frozen=True, eq=False)
class Bounds:
    """What batches may need: the sorted sizes of all graphs, in the order of :class:`BatchShape`."""

    sizes: tuple[Int[Tensor, " graphs"], ...]

    def batch_shape(self, num_items: int, margin: float = 1.0) -> BatchShape:
        """Space for any ``num_items`` graphs: that of the largest ones, and padding vertices for padding edges.

        A margin of 1.02 leaves space for graphs with 2 % more vertices or edges, or fewer edges.
        """
        (_, verts), *edges = self._ranges(num_items, margin)
        padding = max(-(-(most - least) // LOOPS) for least, most in edges)
        return BatchShape(verts + padding, *(most for _, most in edges))

    def fit(self, expected: Bounds, num_items: int, margin: float) -> bool:
        """Whether batches of these graphs fit into the shape of ``expected``."""
        pairs = zip(self._ranges(num_items, 1.0), expected._ranges(num_items, margin), strict=True)
        return all(least >= low and most <= high for (least, most), (low, high) in pairs)

    def _ranges(self, num_items: int, margin: float) -> list[tuple[int, int]]:
        """The smallest and largest size that ``num_items`` different graphs can have together."""
        # Read at once, because the host waits for a GPU each time.
        ends = [torch.stack([sizes[:num_items].sum(), sizes[-num_items:].sum()]) for sizes in self.sizes]
        ranges = []
        for least, most in torch.stack(ends).tolist():
            ranges.append((math.floor(least / margin), most + math.ceil((margin - 1) * (most + num_items))))
        return ranges


@register_record
@dataclass(frozen=True, eq=False)
class PackedLevel:
    """Graphs stored one after the other.

    offsets: graph g has the vertices ``offsets[g] : offsets[g + 1]``.
    edges: their edges.
    looped: the same with a self-loop at each vertex, for operators that add one; else None.
    spirals: vertices of the spiral around each vertex, numbered within the graph; None without spirals.
    members: the vertices of each graph in the order of their clusters, numbered within it; None at the coarsest level.
    targets: the vertices of the next level that ``members`` are merged to, numbered within the graph.
    first_member: per vertex, how many vertices of its graph at the finer level come before those merged to it; None
        at the finest level.
    largest: the largest offset or degree of each graph, if pseudo-coordinates are relative to that of the batch.
    """

    offsets: Int[Tensor, " graphs_plus_1"]
    edges: PackedEdges
    looped: PackedEdges | None = None
    spirals: Int[Tensor, "vertices length"] | None = None
    members: Shaped[Tensor, " vertices"] | None = None
    targets: Shaped[Tensor, " vertices"] | None = None
    first_member: Shaped[Tensor, " vertices"] | None = None
    largest: Float[Tensor, " graphs"] | None = None

    @classmethod
    def from_pooled(cls, pooled: PooledGraphs, looped: bool) -> list[PackedLevel]:
        """The levels of packed graphs, with self-loops if ``looped``."""
        levels = []
        for depth, graph in enumerate(pooled.levels):
            bounds, owner = _bounds(graph), graph_of_vertex(graph)
            spirals = members = targets = first_member = None
            if graph.spirals is not None:
                spirals = torch.where(graph.spirals < 0, -1, graph.spirals - bounds[owner, None])
            if depth < len(pooled.clusters):
                members = _small(pooled.clusters[depth].senders - bounds[owner])
                targets = _small(pooled.clusters[depth].receivers - _bounds(pooled.levels[depth + 1])[owner])
            if depth > 0:
                first = pooled.clusters[depth - 1].offsets[0][:-1]
                first_member = _small(first - _bounds(pooled.levels[depth - 1])[owner])
            loops = PackedEdges.of(graph, with_self_loops(graph, torch.float32)) if looped else None
            levels.append(cls(bounds, PackedEdges.of(graph), loops, spirals, members, targets, first_member))
        for graph in pooled.levels:
            graph._memo.clear()  # not needed again
        return levels

    @classmethod
    def join(cls, parts: Sequence[PackedLevel]) -> PackedLevel:
        """The graphs of all parts, one after the other."""
        looped = [part.looped for part in parts if part.looped is not None]
        return cls(
            join_offsets([part.offsets for part in parts]),
            PackedEdges.join([part.edges for part in parts]),
            PackedEdges.join(looped) if looped else None,
            *(join([getattr(part, f.name) for part in parts]) for f in fields(cls)[3:]),
        )

    @property
    def bounds(self) -> Bounds:
        return Bounds(tuple(offsets.diff().sort().values for offsets in self._offsets))

    def exact_shape(self, items: Int[Tensor, " items"]) -> BatchShape:
        """The size of these graphs, without padding."""
        return BatchShape(*(int((offsets[items + 1] - offsets[items]).sum()) for offsets in self._offsets))

    @property
    def _offsets(self) -> list[Tensor]:
        return [self.offsets, self.edges.offsets, *([] if self.looped is None else [self.looped.offsets])]

    def batch(
        self,
        items: Int[Tensor, " items"],
        shape: BatchShape,
        x: Float[Tensor, "_ channels"] | None = None,
        coordinates: Coordinates | None = None,
    ) -> tuple[Graph, Rows, Float[Tensor, "vertices channels"] | None]:
        """The chosen graphs as one, with pseudo-coordinates of ``coordinates``, their vertices, and the features of
        these in ``x``."""
        stored = self.edges.stored(self.offsets)
        verts, pattern, order, x, pseudo = packed_graphs(items, stored, shape.verts, shape.edges, LOOPS, x, coordinates)
        graph = Graph(pattern, order, pseudo, self._spirals(verts), verts.starts)
        if self.looped is not None and self.looped.weights is not None:
            stored = self.looped.stored(self.offsets)
            loops = packed_edges(items, stored, shape.verts, shape.looped, LOOPS, self.looped.weights)
            graph.remember(("self-loops", torch.float32), partial(WeightedEdges, *loops))
        return graph, verts, x

    def _spirals(self, verts: Rows) -> Tensor | None:
        if self.spirals is None:
            return None
        stored = verts.take(self.spirals, padding=-1)
        shifted = torch.where(stored < 0, -1, stored + verts.starts[verts.graphs, None])
        return torch.cat([torch.arange(verts.capacity, device=stored.device)[:, None], shifted[:, 1:]], dim=1)

    def clusters(
        self,
        items: Int[Tensor, " items"],
        shape: BatchShape,
        coarser: PackedLevel,
        coarser_shape: BatchShape,
        padded: bool,
    ) -> Pattern:
        """Which vertices of a batch are merged to which of the next level."""
        assert self.members is not None
        assert self.targets is not None
        assert coarser.first_member is not None
        stored = self.offsets, coarser.offsets, self.members, self.targets, coarser.first_member
        return packed_clusters(items, *stored, shape.verts, coarser_shape.verts, padded)


@register_record
@dataclass(frozen=True, eq=False)
class PackedBatch:
    """A batch of graphs of a :class:`~geoskip.training.graph_store.GraphStore`.

    items: their numbers.
    x: features of the vertices.
    graphs: the graphs at every level.
    verts: per level, the rows of the vertices, and which of them are padding.
    """

    items: Int[Tensor, " items"]
    x: Float[Tensor, "vertices channels"]
    graphs: PooledGraphs
    verts: tuple[Rows, ...]
