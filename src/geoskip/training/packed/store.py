"""Graphs of a set at every level, sorted once and kept on the device that trains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from geoskip.data.graph_set import GraphSet
from geoskip.graphs import Graph, PooledGraphs, graph_of_vertex
from geoskip.kernels import Pattern
from geoskip.shapes import Bool, Float, Int
from geoskip.training.packed.batch import PackedBatch
from geoskip.training.packed.level import PackedLevel, Room
from geoskip.training.packed.rows import Rows

CHUNK = 1024  # graphs sorted at once: bounds the memory for edges numbered in 64 bits


@dataclass(frozen=True, eq=False)
class GraphStore:
    """Where batches of graphs come from.

    x: features of the vertices of the finest level.
    pos: positions of the vertices, level by level.
    levels: the graphs.
    coordinates: what pseudo-coordinates are made of, ``"position"`` or ``"degree"``; None where the operator looks at
        none.
    scales: level by level, the offset or degree that becomes 1 in each graph's pseudo-coordinates; None where that is
        the largest one of the batch.
    polar: whether pseudo-coordinates from positions are polar at the finest level, and Cartesian only at the others.
    padded: whether batches have fixed shapes, padded to what the largest graphs need, so that a step on them can be
        captured. Padding vertices have no part in what the others give: their edges are self-loops, clusters and means
        leave them out, and so all gradients that they send are 0.
    """

    x: Float[Tensor, "vertices channels"]
    pos: tuple[Float[Tensor, "_ dim"], ...]
    levels: tuple[PackedLevel, ...]
    coordinates: str | None
    scales: tuple[Float[Tensor, " graphs"] | None, ...]
    padded: bool
    polar: bool = False
    _rooms: dict[int, tuple[Room, ...]] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.levels[0].offsets) - 1

    # Graphs copy tensors that were made in inference mode.
    @torch.inference_mode(False)
    def batch(self, items: Int[Tensor, " items"]) -> PackedBatch:
        """Some graphs, all different, at every level."""
        rooms = self._rooms_for(items)
        verts = tuple(level.rows(items, room) for level, room in zip(self.levels, rooms, strict=True))
        graphs = [self._graph(depth, items, verts[depth], room) for depth, room in enumerate(rooms)]
        steps = zip(pairwise(self.levels), pairwise(verts), strict=True)
        clusters = [finer.clusters(f, coarser, c, self.padded) for (finer, coarser), (f, c) in steps]
        pooled = PooledGraphs(tuple(graphs), tuple(clusters))
        return PackedBatch(items, verts[0].take(self.x), pooled, verts, self.padded)

    def to(self, device: torch.device | str, padded: bool) -> GraphStore:
        """The same graphs on another device."""
        moved = {entry.name: move_all(getattr(self, entry.name), device) for entry in fields(self)}
        return type(self)(**moved | {"padded": padded, "_rooms": {}})

    def rooms(self, num_items: int) -> tuple[Room, ...]:
        """Places for any ``num_items`` graphs, level by level."""
        return tuple(level.room(num_items) for level in self.levels)

    def layout(self, num_items: int) -> int:
        """Changes when batches of this size get other shapes: a captured step is then captured again."""
        return 0

    def _rooms_for(self, items: Tensor) -> tuple[Room, ...]:
        if not self.padded:
            return tuple(level.exact_room(items) for level in self.levels)
        if len(items) not in self._rooms:
            self._rooms[len(items)] = self.rooms(len(items))
        return self._rooms[len(items)]

    def _graph(self, depth: int, items: Tensor, verts: Rows, room: Room) -> Graph:
        graph = self.levels[depth].batch(items, verts, room)
        if self.coordinates is None:
            return graph
        pos = verts.take(self.pos[depth]) if self.coordinates == "position" else None
        scales = self.scales[depth]
        if scales is None:
            # Padding edges are self-loops: their offset is 0, and the degrees of padding vertices do not count.
            scale: Tensor = own_scale(graph, pos, verts.real)
        else:
            scale = scales[items][verts.graphs[graph.pattern.receivers]].unsqueeze(1)
        kind = relative_polar if self.polar and pos is not None and depth == 0 else relative
        return with_other_pseudo(graph, kind(graph, pos, scale))


def with_other_pseudo(graph: Graph, pseudo: Float[Tensor, "edges dim"]) -> Graph:
    """A graph that had no pseudo-coordinates with these, unchecked; it keeps what ``graph`` remembers of its edges."""
    made = replace(graph, pseudo=pseudo)
    made._memo.update(graph._memo)
    return made


def relative(graph: Graph, pos: Tensor | None, scale: Tensor | float) -> Float[Tensor, "edges dim"]:
    """:func:`geoskip.graphs.cartesian`, or without positions :func:`geoskip.graphs.target_degree`, with scales given
    edge by edge."""
    if pos is None:
        return (graph.degrees[graph.pattern.receivers].unsqueeze(1) / scale).clamp(0, 1)
    return ((pos[graph.pattern.senders] - pos[graph.pattern.receivers]) / (2 * scale) + 0.5).clamp(0, 1)


def relative_polar(graph: Graph, pos: Tensor | None, scale: Tensor | float) -> Float[Tensor, "edges 2"]:
    """:func:`geoskip.graphs.polar` with scales given edge by edge."""
    assert pos is not None
    offsets = pos[graph.pattern.senders] - pos[graph.pattern.receivers]
    angle = torch.atan2(offsets[:, 1], offsets[:, 0]) / (2 * math.pi) % 1
    return torch.cat([(offsets.norm(dim=1, keepdim=True) / scale).clamp(0, 1), angle.unsqueeze(1)], dim=1)


def store_set(
    data: GraphSet,
    items: Int[Tensor, " items"],
    coordinates: str | None,
    largest: Sequence[float] | None,
    *,
    looped: bool,
    padded: bool,
    polar: bool = False,
) -> GraphStore:
    """The chosen graphs of a set, on its device.

    ``largest`` is the offset or degree of each level that becomes 1. None is for what happens when pseudo-coordinates
    are computed on the way: at the finest level that is the largest one of each graph, at coarser levels of the batch.
    ``looped`` is for operators that add self-loops. ``polar`` coordinates are relative to each graph's longest edge.
    """
    parts = []
    xs, pos, own = [], [], []
    for chunk in items.split(CHUNK):
        some = data.select(chunk)
        pooled = some.pooled()
        parts.append(packed_levels(pooled.levels, pooled.clusters, looped))
        xs.append(some.x)
        pos.append([level.pos for level in some.levels])
        if coordinates is not None and (largest is None or polar):
            own.append(own_scales(pooled.levels[0], some.levels[0].pos if coordinates == "position" else None, polar))
    levels = tuple(PackedLevel.join(level) for level in zip(*parts, strict=True))
    positions = tuple(torch.cat(level) for level in zip(*pos, strict=True))
    scales: tuple[Tensor | None, ...] = (torch.cat(own) if own else None, *(None for _ in levels[1:]))
    if largest is not None:
        given = [torch.full((len(items),), value, device=data.x.device) for value in largest[: len(levels)]]
        scales = (scales[0] if polar else given[0], *given[1:])
    return GraphStore(torch.cat(xs), positions, levels, coordinates, scales, padded, polar)


def own_scale(graph: Graph, pos: Tensor | None, real: Bool[Tensor, " vertices"] | None = None) -> Float[Tensor, ""]:
    """The largest offset, or without positions the largest degree (of ``real`` vertices alone, where these are given),
    of one graph; 1 where that is 0."""
    ends = graph.pattern.senders, graph.pattern.receivers
    values = graph.degrees.float() if pos is None else (pos[ends[0]] - pos[ends[1]]).abs()
    if pos is None and real is not None:
        values = torch.where(real, values, 0)
    most = values.max() if values.numel() else values.new_zeros(())
    return torch.where(most > 0, most, 1)


def own_scales(graph: Graph, pos: Tensor | None, polar: bool = False) -> Float[Tensor, " graphs"]:
    """:func:`own_scale` of each of some packed graphs; with ``polar`` the length of the longest edge instead."""
    receivers = graph.pattern.receivers
    if pos is None:
        values = graph.degrees[receivers].float()
    else:
        offsets = pos[graph.pattern.senders] - pos[receivers]
        # Positions may have no coordinates, and of nothing there is no maximum.
        components = torch.cat([offsets.abs(), offsets.new_zeros(len(offsets), 1)], dim=1)
        values = offsets.norm(dim=1) if polar else components.amax(1)
    most = values.new_zeros(graph.num_graphs).scatter_reduce(0, graph_of_vertex(graph)[receivers], values, "amax")
    return torch.where(most > 0, most, 1)


def packed_levels(graphs: Sequence[Graph], clusters: Sequence[Pattern], looped: bool) -> list[PackedLevel]:
    """What is stored of each level of packed graphs."""
    into = [*clusters, None]
    finer = [None, *zip(graphs, clusters, strict=False)]
    return [PackedLevel.of(g, looped, i, f) for g, i, f in zip(graphs, into, finer, strict=True)]


def move_all(value: Any, device: torch.device | str) -> Any:
    """Tensors, alone, in tuples and in records, on another device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, tuple):
        return tuple(move_all(one, device) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{entry.name: move_all(getattr(value, entry.name), device) for entry in fields(value)})
    return value
