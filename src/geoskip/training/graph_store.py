"""The graphs of a data set at every level, sorted once and stored on the device that trains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from geoskip.data import GraphSet
from geoskip.graphs import Graph, PooledGraphs, graph_of_vertex
from geoskip.graphs.tensor_records import map_tensors, register_record
from geoskip.kernels.branches import branches
from geoskip.kernels.packing import Coordinates, Rows, relative_coordinates
from geoskip.shapes import Float, Int
from geoskip.training.packed_graphs import BatchShape, PackedBatch, PackedLevel

CHUNK = 1024  # graphs sorted at once: bounds the memory for edges numbered in 64 bits
MAX_STORED = 2**28  # stored pseudo-coordinates of a UniformStore, in numbers: 1 GiB


@dataclass(frozen=True, eq=False)
class GraphStore:
    """Gathers batches of graphs.

    x: features of the vertices of the finest level.
    pos: positions of the vertices, per level.
    levels: the graphs.
    coordinates: what pseudo-coordinates are made of, ``"position"`` or ``"degree"``; None if the operator needs none.
    scales: per level, the offset or degree that becomes 1 in each graph's pseudo-coordinates; None for the largest one
        of the batch.
    padded: whether batches are padded to the size that the largest graphs need, so that all batches of a size have one
        shape and a step on them can be captured. Padding does not influence the rest of a batch: its edges are
        self-loops, and clusters, means and batch normalization leave it out, so its gradients are 0.
    polar: whether pseudo-coordinates from positions are polar at the finest level. They are Cartesian at the others.
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
        """The chosen graphs, all different, at every level."""
        shapes = self._shapes_for(items)
        steps = pairwise(zip(self.levels, shapes, strict=True))
        # The levels do not need each other, and their kernels are small.
        with branches(items) as fork:
            coarser = [fork(self._level, depth, items, shapes[depth]) for depth in range(1, len(shapes))]
            clusters = tuple(fork(fine[0].clusters, items, fine[1], *coarse, self.padded) for fine, coarse in steps)
            finest = self._level(0, items, shapes[0])
        graphs, verts, (x, *_) = zip(finest, *coarser, strict=True)
        real = tuple(rows.real for rows in verts) if self.padded else None
        return PackedBatch(items, x, PooledGraphs(graphs, clusters, real), verts)

    def to(self, device: torch.device | str, padded: bool) -> GraphStore:
        """The same graphs on another device."""
        tensors = map_tensors((self.x, self.pos, self.levels, self.scales), lambda tensor: tensor.to(device))
        x, pos, levels, scales = tensors
        return replace(self, x=x, pos=pos, levels=levels, scales=scales, padded=padded, _shapes={})

    def batch_shapes(self, num_items: int) -> tuple[BatchShape, ...]:
        """The padded size of any batch of ``num_items`` graphs, per level."""
        return tuple(level.bounds.batch_shape(num_items) for level in self.levels)

    def redraw(self, epoch: int) -> None:
        """Prepare the batches of an epoch; only a :class:`~geoskip.training.random_coarsening.DrawnStore` has to."""

    def layout(self, num_items: int) -> int:
        """A number that changes when batches of this size change their shapes, so that a step is captured again."""
        return 0

    def prepare(self, num_items: int) -> None:
        """Find the padded size of batches of ``num_items`` graphs, for which numbers are read."""
        if self.padded and num_items not in self._shapes:
            self._shapes[num_items] = self.batch_shapes(num_items)

    def _shapes_for(self, items: Tensor) -> tuple[BatchShape, ...]:
        if not self.padded:
            return tuple(level.exact_shape(items) for level in self.levels)
        self.prepare(len(items))
        return self._shapes[len(items)]

    def _level(self, depth: int, items: Tensor, shape: BatchShape) -> tuple[Graph, Rows, Tensor | None]:
        level, x = self.levels[depth], self.x if depth == 0 else None
        if not self.polar or depth > 0:
            return level.batch(items, shape, x, self._coordinates(depth))
        graph, verts, features = level.batch(items, shape, x)
        scales = self.scales[0]
        assert scales is not None
        scale = scales[items][verts.graphs[graph.pattern.receivers]].unsqueeze(1)
        return with_pseudo(graph, _polar(graph, verts.take(self.pos[0]), scale)), verts, features

    def _coordinates(self, depth: int) -> Coordinates | None:
        if self.coordinates is None:
            return None
        own, pos = self.scales[depth], self.pos[depth] if self.coordinates == "position" else None
        scales = self.levels[depth].largest if own is None else own
        assert scales is not None
        return Coordinates(pos, scales, shared=own is None)


def with_pseudo(graph: Graph, pseudo: Float[Tensor, "edges dim"]) -> Graph:
    """``graph`` with these pseudo-coordinates, unchecked; it keeps what ``graph`` remembers of its edges."""
    changed = replace(graph, pseudo=pseudo)
    changed._memo.update(graph._memo)
    return changed


def _polar(graph: Graph, pos: Tensor, scale: Tensor) -> Float[Tensor, "edges 2"]:
    """:func:`geoskip.graphs.polar` with a scale for each edge."""
    offsets = pos[graph.pattern.senders] - pos[graph.pattern.receivers]
    angle = torch.atan2(offsets[:, 1], offsets[:, 0]) / (2 * math.pi) % 1
    return torch.cat([(offsets.norm(dim=1, keepdim=True) / scale).clamp(0, 1), angle.unsqueeze(1)], dim=1)


def own_scale(graph: Graph, pos: Tensor | None) -> Float[Tensor, ""]:
    """The largest offset, or without positions the largest degree; 1 if that is 0."""
    senders, receivers = graph.pattern.senders, graph.pattern.receivers
    values = graph.degrees.float() if pos is None else (pos[senders] - pos[receivers]).abs()
    largest = values.max() if values.numel() else values.new_zeros(())
    return torch.where(largest > 0, largest, 1)


def largest_values(graph: Graph, pos: Tensor | None, polar: bool = False) -> Float[Tensor, " graphs"]:
    """The largest offset, or without positions the largest degree, of each packed graph; with ``polar`` the length of
    its longest edge. 0 for a graph without edges."""
    receivers = graph.pattern.receivers
    if pos is None:
        values = graph.degrees[receivers].float()
    else:
        offsets = pos[graph.pattern.senders] - pos[receivers]
        # A column of zeros, since positions may have no dimensions.
        components = torch.cat([offsets.abs(), offsets.new_zeros(len(offsets), 1)], dim=1)
        values = offsets.norm(dim=1) if polar else components.amax(1)
    return values.new_zeros(graph.num_graphs).scatter_reduce(0, graph_of_vertex(graph)[receivers], values, "amax")


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
    """Store the chosen graphs of a set on its device.

    ``largest`` is the offset or degree that becomes 1, per level. If it is None, that is the largest one of each graph
    at the finest level, and of the batch at the others. ``looped`` is for operators that add self-loops. ``polar``
    coordinates are relative to each graph's longest edge.
    """
    parts, xs, pos, own = [], [], [], []
    for chunk in items.split(CHUNK):
        selected = data.select(chunk)
        pooled = selected.pooled()
        packed = PackedLevel.from_pooled(pooled, looped)
        if coordinates is not None and (largest is None or polar):
            verts = [level.pos if coordinates == "position" else None for level in selected.levels]
            own.append(largest_values(pooled.levels[0], verts[0], polar))
        if coordinates is not None and largest is None:
            measured = [largest_values(*level) for level in zip(pooled.levels[1:], verts[1:], strict=True)]
            pairs = zip(packed[1:], measured, strict=True)
            packed[1:] = [replace(level, largest=values) for level, values in pairs]
        parts.append(packed)
        xs.append(selected.x)
        pos.append([level.pos for level in selected.levels])
    levels = tuple(PackedLevel.join(level) for level in zip(*parts, strict=True))
    positions = tuple(torch.cat(level) for level in zip(*pos, strict=True))
    scales: list[Tensor | None] = [None] * len(levels)
    if largest is not None:
        scales = [torch.full((len(items),), value, device=data.x.device) for value in largest[: len(levels)]]
    if own:
        joined = torch.cat(own)
        scales[0] = torch.where(joined > 0, joined, 1)
    return GraphStore(torch.cat(xs), positions, levels, coordinates, tuple(scales), padded, polar)


def store_graphs(
    graphs: Sequence[Graph], pos: Sequence[Float[Tensor, "_ dim"]], coordinates: str | None, *, looped: bool
) -> GraphStore:
    """Store graphs of one level whose features are their positions, each with its own scale; batches are not padded.

    If all are the same object, the graph is stored once.
    """
    uniform = all(graph is graphs[0] for graph in graphs)
    kept = graphs[:1] if uniform else graphs
    single = [replace(g, graph_offsets=torch.tensor([0, g.num_vertices], device=g.device)) for g in kept]
    level = PackedLevel.join([PackedLevel.from_pooled(PooledGraphs((g,), ()), looped)[0] for g in single])
    features, pairs = torch.cat(list(pos)), zip(graphs, pos, strict=True)
    scales = torch.stack([own_scale(graph, verts if coordinates == "position" else None) for graph, verts in pairs])
    store = UniformStore if uniform else GraphStore
    return store(features, (features,), (level,), coordinates, (scales,), padded=False)


@register_record
@dataclass(frozen=True, eq=False)
class UniformRows(Rows):
    """The rows of graphs that all have ``size`` rows: whole graphs are gathered, and there is no padding."""

    items: Int[Tensor, " items"]
    size: int

    def take(self, values: Tensor, padding: int = 0) -> Tensor:
        return values.unflatten(0, (-1, self.size)).index_select(0, self.items).flatten(0, 1)

    def spread(self, values: Tensor) -> Tensor:
        return values.repeat_interleave(self.size, output_size=len(values) * self.size)


@dataclass(frozen=True, eq=False)
class UniformStore(GraphStore):
    """Graphs with the same edges, which are stored once.

    All batches of a size have one shape without padding; only features and pseudo-coordinates are gathered.
    """

    def __len__(self) -> int:
        return len(self.x) // self._size

    @torch.inference_mode(False)
    def batch(self, items: Int[Tensor, " items"]) -> PackedBatch:
        first, graph = self._template(len(items))
        shift = (items * self._size).repeat_interleave(self._size, output_size=first.capacity)
        verts = UniformRows(first.starts, first.graphs, first.rows + shift, first.real, items, self._size)
        if self.coordinates is not None:
            if self._pseudo is None:
                pseudo = self._relative(graph, verts.take(self.pos[0]), self._scales[items])
            else:
                pseudo = self._pseudo.index_select(0, items).flatten(0, 1)
            graph = with_pseudo(graph, pseudo)
        return PackedBatch(items, verts.take(self.x), PooledGraphs((graph,), ()), (verts,))

    def batch_shapes(self, num_items: int) -> tuple[BatchShape, ...]:
        (level,) = self.levels
        looped = 0 if level.looped is None else len(level.looped.senders)
        return (BatchShape(num_items * self._size, num_items * len(level.edges.senders), num_items * looped),)

    @property
    def _size(self) -> int:
        """The number of vertices of a graph."""
        return len(self.levels[0].edges.first_in)

    @property
    def _scales(self) -> Float[Tensor, " graphs"]:
        (scales,) = self.scales
        assert scales is not None
        return scales

    @cached_property
    def _templates(self) -> dict[int, tuple[Rows, Graph]]:
        return {}

    def _template(self, num_items: int) -> tuple[Rows, Graph]:
        """What all batches of a size share: rows numbered within their graph, and the graph without coordinates."""
        if num_items not in self._templates:
            items = torch.arange(num_items, device=self.x.device)
            level, (shape,) = PackedLevel.join(self.levels * num_items), self.batch_shapes(num_items)
            graph, verts, _ = level.batch(items, shape)
            local = replace(verts, rows=verts.rows - items.repeat_interleave(self._size) * self._size)
            self._templates[num_items] = local, graph
        return self._templates[num_items]

    @cached_property
    def _pseudo(self) -> Float[Tensor, "graphs edges dim"] | None:
        """The pseudo-coordinates of every graph, unless they are too many to be stored."""
        graph = self._template(1)[1]
        if len(self) * graph.num_edges * self.pos[0].shape[1] > MAX_STORED:
            return None
        positions = self.pos[0].unflatten(0, (len(self), -1))
        pairs = zip(positions, self._scales.split(1), strict=True)
        return torch.stack([self._relative(graph, pos, scale) for pos, scale in pairs])

    def _relative(self, graph: Graph, pos: Tensor, scales: Tensor) -> Tensor:
        num_edges = graph.num_edges // len(scales)
        scale = scales.repeat_interleave(num_edges, output_size=graph.num_edges).unsqueeze(1)
        return relative_coordinates(graph.pattern, pos if self.coordinates == "position" else None, scale)
