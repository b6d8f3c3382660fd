"""Graphs of a data set at every level, sorted once and kept on the device that trains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from geoskip.data import GraphSet
from geoskip.graphs import Graph, PooledGraphs, graph_of_vertex
from geoskip.kernels import Pattern
from geoskip.shapes import Bool, Float, Int
from geoskip.training.packed.level import BatchShape, PackedBatch, PackedLevel, Rows

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
    _shapes: dict[int, tuple[BatchShape, ...]] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.levels[0].offsets) - 1

    # Graphs copy tensors that were made in inference mode.
    @torch.inference_mode(False)
    def batch(self, items: Int[Tensor, " items"]) -> PackedBatch:
        """Some graphs, all different, at every level."""
        shapes = self._shapes_for(items)
        verts = tuple(level.rows(items, shape) for level, shape in zip(self.levels, shapes, strict=True))
        graphs = [self._graph(depth, items, verts[depth], shape) for depth, shape in enumerate(shapes)]
        steps = zip(pairwise(self.levels), pairwise(verts), strict=True)
        clusters = [finer.clusters(f, coarser, c, self.padded) for (finer, coarser), (f, c) in steps]
        real = tuple(rows.real for rows in verts) if self.padded else None
        pooled = PooledGraphs(tuple(graphs), tuple(clusters), real)
        return PackedBatch(items, verts[0].take(self.x), pooled, verts)

    def to(self, device: torch.device | str, padded: bool) -> GraphStore:
        """The same graphs on another device."""
        moved = {entry.name: move_all(getattr(self, entry.name), device) for entry in fields(self)}
        return type(self)(**moved | {"padded": padded, "_shapes": {}})

    def batch_shapes(self, num_items: int) -> tuple[BatchShape, ...]:
        """Places for any ``num_items`` graphs, level by level."""
        return tuple(level.batch_shape(num_items) for level in self.levels)

    def layout(self, num_items: int) -> int:
        """Changes when batches of this size get other shapes: a captured step is then captured again."""
        return 0

    def _shapes_for(self, items: Tensor) -> tuple[BatchShape, ...]:
        if not self.padded:
            return tuple(level.exact_shape(items) for level in self.levels)
        if len(items) not in self._shapes:
            self._shapes[len(items)] = self.batch_shapes(len(items))
        return self._shapes[len(items)]

    def _graph(self, depth: int, items: Tensor, verts: Rows, shape: BatchShape) -> Graph:
        graph = self.levels[depth].batch(items, verts, shape)
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
        selected = data.select(chunk)
        pooled = selected.pooled()
        parts.append(packed_levels(pooled.levels, pooled.clusters, looped))
        xs.append(selected.x)
        pos.append([level.pos for level in selected.levels])
        if coordinates is not None and (largest is None or polar):
            own.append(
                own_scales(pooled.levels[0], selected.levels[0].pos if coordinates == "position" else None, polar)
            )
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


MOST_KEPT = 2**28  # pseudo-coordinates of all graphs that are kept, in numbers: 1 GiB


@dataclass(frozen=True, eq=False)
class Frame:
    """What batches of one size share: the rows, none of them padding, and the graph without pseudo-coordinates."""

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
        rows = (items * self._size).repeat_interleave(self._size, output_size=frame.verts.capacity)
        known = frame.verts
        verts = UniformRows(known.starts, known.graphs, rows + known.rows, known.real, items, self._size)
        graph = frame.graph
        if self.coordinates is not None:
            graph = with_other_pseudo(graph, self._pseudo_of(verts))
        return PackedBatch(items, verts.take(self.x), PooledGraphs((graph,), ()), (verts,))

    def batch_shapes(self, num_items: int) -> tuple[BatchShape, ...]:
        (level,) = self.levels
        looped = 0 if level.looped is None else int(level.looped.offsets[-1])
        return (BatchShape(num_items * self._size, num_items * int(level.edges.offsets[-1]), num_items * looped),)

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
        level, (shape,) = PackedLevel.join(self.levels * num_items), self.batch_shapes(num_items)
        verts = level.rows(items, shape)
        graph = level.batch(items, verts, shape)
        positions = verts.rows - items.repeat_interleave(self._size) * self._size
        return Frame(replace(verts, rows=positions), graph)

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
        (shape,), one = self.batch_shapes(1), self._frame(1).graph
        if len(self) * shape.edges * self.pos[0].shape[1] > MOST_KEPT:
            return None
        positions = self.pos[0].unflatten(0, (len(self), -1))
        pairs = zip(positions, self._scales.split(1), strict=True)
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
    scales = torch.stack([own_scale(graph, verts if coordinates == "position" else None) for graph, verts in pairs])
    kind = UniformStore if uniform else GraphStore
    return kind(joined, (joined,), (level,), coordinates, (scales,), padded)
