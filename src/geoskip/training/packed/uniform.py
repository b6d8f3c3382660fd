"""Graphs that all have the same edges, such as bodies of one template: batches share what was sorted once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from geoskip.graphs import Graph, PooledGraphs
from geoskip.shapes import Float, Int
from geoskip.training.packed.batch import PackedBatch
from geoskip.training.packed.level import PackedLevel, Room
from geoskip.training.packed.rows import Rows
from geoskip.training.packed.store import GraphStore, own_scale, packed_levels, relative, with_other_pseudo

MOST_KEPT = 2**28  # pseudo-coordinates of all graphs that are kept, in numbers: 1 GiB


@dataclass(frozen=True, eq=False)
class Frame:
    """What batches of one size have in common: places, all of them real, and the graph without pseudo-coordinates."""

    verts: Rows
    graph: Graph


@dataclass(frozen=True, eq=False)
class UniformRows(Rows):
    """Places of graphs that all have ``size`` rows: whole graphs are taken, and there is no padding."""

    items: Int[Tensor, " items"]
    size: int

    def take(self, values: Tensor, padding: int = 0) -> Tensor:
        return values.unflatten(0, (-1, self.size)).index_select(0, self.items).flatten(0, 1)

    def spread(self, values: Tensor, padding: int = 0) -> Tensor:
        return values.repeat_interleave(self.size, output_size=len(values) * self.size)


@dataclass(frozen=True, eq=False)
class UniformStore(GraphStore):
    """As :class:`GraphStore`, with one level that holds the one graph. Batches of a size have one shape, so there is no
    padding, and nothing but features and pseudo-coordinates is gathered."""

    def __len__(self) -> int:
        return len(self.x) // self._size

    @torch.inference_mode(False)
    def batch(self, items: Int[Tensor, " items"]) -> PackedBatch:
        frame = self._frame(len(items))
        rows = (items * self._size).repeat_interleave(self._size, output_size=frame.verts.room)
        known = frame.verts
        verts = UniformRows(known.starts, known.graphs, rows + known.rows, known.real, items, self._size)
        graph = frame.graph
        if self.coordinates is not None:
            graph = with_other_pseudo(graph, self._pseudo_of(verts))
        return PackedBatch(items, verts.take(self.x), PooledGraphs((graph,), ()), (verts,), padded=False)

    def rooms(self, num_items: int) -> tuple[Room, ...]:
        (level,) = self.levels
        looped = 0 if level.looped is None else int(level.looped.offsets[-1])
        return (Room(num_items * self._size, num_items * int(level.edges.offsets[-1]), num_items * looped),)

    @property
    def _size(self) -> int:
        """The vertices of a graph."""
        return len(self.levels[0].edges.first_in)

    def _frame(self, num_items: int) -> Frame:
        if num_items not in self._frames:
            # What is first needed in inference mode is still needed when training goes on.
            with torch.inference_mode(False):
                self._frames[num_items] = self._made(num_items)
        return self._frames[num_items]

    def _made(self, num_items: int) -> Frame:
        items = torch.arange(num_items, device=self.x.device)
        level, (room,) = PackedLevel.join(self.levels * num_items), self.rooms(num_items)
        verts = level.rows(items, room)
        graph = level.batch(items, verts, room)
        places = verts.rows - items.repeat_interleave(self._size) * self._size
        return Frame(replace(verts, rows=places), graph)

    @property
    def _scales(self) -> Float[Tensor, " graphs"]:
        (scales,) = self.scales
        assert scales is not None
        return scales

    @cached_property
    def _frames(self) -> dict[int, Frame]:
        return {}

    def _pseudo_of(self, verts: UniformRows) -> Float[Tensor, "edges dim"]:
        if self._pseudo is not None:
            return self._pseudo.index_select(0, verts.items).flatten(0, 1)
        graph = self._frame(len(verts.items)).graph
        return self._relative(graph, verts.take(self.pos[0]), self._scales[verts.items])

    @cached_property
    def _pseudo(self) -> Float[Tensor, "graphs edges dim"] | None:
        """The pseudo-coordinates of every graph, unless they are too many to be kept."""
        (room,), one = self.rooms(1), self._frame(1).graph
        if len(self) * room.edges * self.pos[0].shape[1] > MOST_KEPT:
            return None
        places = self.pos[0].unflatten(0, (len(self), -1))
        pairs = zip(places, self._scales.split(1), strict=True)
        with torch.inference_mode(False):
            return torch.stack([self._relative(one, pos, scale) for pos, scale in pairs])

    def _relative(self, graph: Graph, pos: Tensor, scales: Tensor) -> Tensor:
        edges = graph.num_edges // len(scales)
        scale = scales.repeat_interleave(edges, output_size=graph.num_edges).unsqueeze(1)
        return relative(graph, pos if self.coordinates == "position" else None, scale)


def store_graphs(
    graphs: Sequence[Graph],
    pos: Sequence[Float[Tensor, "_ dim"]],
    coordinates: str | None,
    *,
    looped: bool,
    padded: bool,
) -> GraphStore:
    """Graphs of one level whose features are their positions; each has a scale of its own.

    Where all are one and the same graph it is stored once.
    """
    uniform = all(graph is graphs[0] for graph in graphs)
    kept = graphs[:1] if uniform else graphs
    single = [replace(g, graph_offsets=torch.tensor([0, g.num_vertices], device=g.device)) for g in kept]
    level = PackedLevel.join([packed_levels([graph], [], looped)[0] for graph in single])
    joined, pairs = torch.cat(list(pos)), zip(graphs, pos, strict=True)
    scales = torch.stack([own_scale(graph, place if coordinates == "position" else None) for graph, place in pairs])
    kind = UniformStore if uniform else GraphStore
    return kind(joined, (joined,), (level,), coordinates, (scales,), padded)
