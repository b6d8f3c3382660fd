"""One level of coarseness of many graphs, and the batches of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from geoskip.data.graph_set import local_dtype
from geoskip.graphs import Graph, WeightedEdges, graph_of_vertex, with_self_loops
from geoskip.kernels import Pattern
from geoskip.shapes import Int, Shaped
from geoskip.training.packed.edges import LOOPS, PackedEdges, join, join_offsets
from geoskip.training.packed.rows import Rows, rows_of


@dataclass(frozen=True)
class Room:
    """Places for vertices, edges, and edges with self-loops."""

    verts: int
    edges: int
    looped: int


@dataclass(frozen=True, eq=False)
class Bounds:
    """Vertices, edges, and edges with self-loops of graphs, ascending: what batches of them may need."""

    verts: Int[Tensor, " graphs"]
    edges: Int[Tensor, " graphs"]
    looped: Int[Tensor, " graphs"] | None = None

    def room(self, num_items: int, margin: float = 1.0) -> Room:
        """Places for any ``num_items`` graphs: those of the largest ones, and padding vertices for padding edges.

        With a margin above 1 they are enough for graphs that have as many times more vertices or edges, or fewer
        edges.
        """
        (_, verts), edges, looped = self._ranges(num_items, margin)
        padding = max(-(-(most - least) // LOOPS) for least, most in (edges, looped))
        return Room(verts + padding, edges[1], looped[1])

    def fit(self, expected: Bounds, num_items: int, margin: float) -> bool:
        """Whether batches have enough places in the room of other graphs."""
        pairs = zip(self._ranges(num_items, 1.0), expected._ranges(num_items, margin), strict=True)
        return all(least >= low and most <= high for (least, most), (low, high) in pairs)

    def _ranges(self, num_items: int, margin: float) -> list[tuple[int, int]]:
        """The least and the most that ``num_items`` different graphs can have of each."""
        ranges = []
        for counts in (self.verts, self.edges, self.looped):
            least, most = (0, 0) if counts is None else (int(counts[:num_items].sum()), int(counts[-num_items:].sum()))
            more = 0 if counts is None else (margin - 1) * (most + num_items)
            ranges.append((math.floor(least / margin), most + math.ceil(more)))
        return ranges


@dataclass(frozen=True, eq=False)
class PackedLevel:
    """Graphs one after the other.

    offsets: graph g has the vertices ``offsets[g] : offsets[g + 1]``.
    edges: their edges.
    looped: the same with a self-loop at each vertex, for operators that add one; else None.
    spirals: vertices of the spiral around each vertex, numbered within the graph, where the graphs have them.
    members: the vertices of each graph in the order of their clusters, numbered within it; None at the coarsest level.
    first_member: per vertex, how many vertices of its graph at the finer level come before those merged to it; None
        at the finest.
    """

    offsets: Int[Tensor, " graphs_plus_1"]
    edges: PackedEdges
    looped: PackedEdges | None = None
    spirals: Int[Tensor, "vertices length"] | None = None
    members: Shaped[Tensor, " vertices"] | None = None
    first_member: Shaped[Tensor, " vertices"] | None = None

    @classmethod
    def of(
        cls, graph: Graph, looped: bool, into: Pattern | None = None, finer: tuple[Graph, Pattern] | None = None
    ) -> PackedLevel:
        """A level of packed graphs; ``into`` merges its vertices, ``finer`` is what was merged to it."""
        bounds, owner = graph.graph_offsets, graph_of_vertex(graph)
        assert bounds is not None
        loops = with_self_loops(graph, torch.float32) if looped else None
        level = cls(
            bounds,
            PackedEdges.of(graph),
            None if loops is None else PackedEdges.of(graph, loops),
            None if graph.spirals is None else torch.where(graph.spirals < 0, -1, graph.spirals - bounds[owner, None]),
            None if into is None else _small(into.senders - bounds[owner]),
            None if finer is None else _small(finer[1].offsets[0][:-1] - _bounds(finer[0])[owner]),
        )
        # What the store was made from is not needed again.
        graph._memo.clear()
        return level

    @classmethod
    def join(cls, parts: Sequence[PackedLevel]) -> PackedLevel:
        """Graphs after graphs."""
        looped = [part.looped for part in parts if part.looped is not None]
        return cls(
            join_offsets([part.offsets for part in parts]),
            PackedEdges.join([part.edges for part in parts]),
            PackedEdges.join(looped) if looped else None,
            *(join([getattr(part, name) for part in parts]) for name in ("spirals", "members", "first_member")),
        )

    @property
    def bounds(self) -> Bounds:
        verts, edges = (offsets.diff().sort().values for offsets in (self.offsets, self.edges.offsets))
        return Bounds(verts, edges, None if self.looped is None else self.looped.offsets.diff().sort().values)

    def room(self, num_items: int) -> Room:
        """Places for any ``num_items`` graphs."""
        return self.bounds.room(num_items)

    def exact_room(self, items: Int[Tensor, " items"]) -> Room:
        """Places for these graphs, none to spare."""
        stored = [self.offsets, self.edges.offsets, *([] if self.looped is None else [self.looped.offsets])]
        counts = [int((offsets[items + 1] - offsets[items]).sum()) for offsets in stored]
        return Room(*counts, *([0] * (3 - len(counts))))

    def rows(self, items: Int[Tensor, " items"], room: Room) -> Rows:
        return rows_of(self.offsets, items, room.verts)

    def batch(self, items: Int[Tensor, " items"], verts: Rows, room: Room) -> Graph:
        """The graphs as one, without pseudo-coordinates."""
        pattern, _ = self.edges.batch(items, verts, room.edges)
        order = torch.arange(room.edges, device=items.device)
        graph = Graph(pattern, order, spirals=self._spirals(verts), graph_offsets=verts.starts)
        if self.looped is not None and self.looped.weights is not None:
            loops, rows = self.looped.batch(items, verts, room.looped)
            weights = rows.take(self.looped.weights, padding=1)
            for dtype in (torch.float32, torch.float64):
                graph.remember(("self-loops", dtype), partial(WeightedEdges, loops, weights.to(dtype)))
        return graph

    def _spirals(self, verts: Rows) -> Tensor | None:
        if self.spirals is None:
            return None
        stored = verts.take(self.spirals, padding=-1)
        shifted = torch.where(stored < 0, -1, stored + verts.starts[verts.graphs, None])
        return torch.cat([torch.arange(verts.room, device=stored.device)[:, None], shifted[:, 1:]], dim=1)

    def clusters(self, fine: Rows, coarser: PackedLevel, coarse: Rows, padded: bool) -> Pattern:
        """Which vertices of a batch are merged to which of the next level, as pooling reads it: segments alone.

        A cluster of padding has one member, whichever: of nothing there is no maximum.
        """
        assert self.members is not None
        assert coarser.first_member is not None
        places = torch.arange(fine.room + coarse.room if padded else fine.room, device=fine.rows.device)
        own = self.members[fine.rows].long() + fine.starts[fine.graphs]
        senders = torch.where(places < fine.count, own[places.clamp(max=fine.room - 1)], fine.room - 1)
        clusters = torch.arange(coarse.room + 1, device=places.device)
        starts = fine.starts[coarse.graphs] + coarse.take(coarser.first_member).long()
        padding = fine.count + clusters - coarse.count
        offsets = torch.where(clusters < coarse.count, torch.cat([starts, starts.new_zeros(1)]), padding)
        receivers = torch.searchsorted(offsets, places, right=True) - 1
        unused = senders.new_zeros(1, fine.room + 1)
        return Pattern(senders, receivers, None, offsets.unsqueeze(0), places, unused)


def _bounds(graph: Graph) -> Tensor:
    assert graph.graph_offsets is not None
    return graph.graph_offsets


def _small(numbers: Tensor) -> Tensor:
    return numbers.to(local_dtype(int(numbers.max()) + 1 if numbers.numel() else 1))
