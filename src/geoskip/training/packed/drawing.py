"""Coarser levels of graphs, drawn at random for an epoch and packed as they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property, partial
from itertools import count
from typing import Any

import torch
from torch import Tensor

from geoskip.data import GraphSet
from geoskip.data.graph_set import local_dtype
from geoskip.graphs.matching import WEIGHTS, DenseGraphs, coarsen, random_order
from geoskip.registry import unknown_name
from geoskip.shapes import Bool, Float, Int, Shaped
from geoskip.training.config import check_types
from geoskip.training.packed.level import BatchShape, Bounds, PackedEdges, PackedLevel, join
from geoskip.training.packed.store import GraphStore, store_set

DRAWN = ("frozen", "epoch")
# Entries of the dense matrices of graphs that are coarsened at once: few enough for a core's cache, and so many that a
# GPU is busy (256 MiB in float32).
CHUNKS = {"cpu": 2**20, "cuda": 2**26}


@dataclass(frozen=True)
class Coarsening:
    """How the coarser levels of graphs are drawn.

    matchings: Graclus matchings per pooling, each by about a factor of 2.
    drawn: ``"frozen"``, once per run, or ``"epoch"``, again in every training epoch and every evaluation.
    weight: ``"near"`` or ``"far"``, the neighbor that is preferred; see :mod:`geoskip.graphs.matching`.
    """

    matchings: int = 2
    drawn: str = "frozen"
    weight: str = "near"

    def __post_init__(self) -> None:
        check_types(self, "coarsening.")
        if self.matchings < 1:
            raise ValueError(f"coarsening.matchings: expected 1 or more, got {self.matchings}")
        for name, choices in (("drawn", DRAWN), ("weight", WEIGHTS)):
            if getattr(self, name) not in choices:
                raise ValueError(f"coarsening.{name}: {unknown_name(getattr(self, name), choices)}")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Coarsening | None:
        """From what a configuration has under ``coarsening``; None if that is empty: levels as the data have them."""
        known = [entry.name for entry in fields(cls)]
        for name in settings:
            if name not in known:
                raise ValueError(f"coarsening.{name}: {unknown_name(name, known)}")
        return cls(**settings) if settings else None


@dataclass(frozen=True, eq=False)
class Drawing:
    """What the coarser levels of some graphs are drawn from.

    finest: the graphs.
    pos: positions of their vertices.
    items: their numbers in the data set. A graph's coarsening follows from its number, the seed and the epoch.
    coarsening: how they are coarsened.
    num_levels: levels in all.
    sigma: of the weights of ``"near"``.
    seed: of the run.
    """

    finest: PackedLevel
    pos: Float[Tensor, "vertices dim"]
    items: Int[Tensor, " graphs"]
    coarsening: Coarsening
    num_levels: int
    sigma: float
    seed: int

    @property
    def epochs_matter(self) -> bool:
        return self.coarsening.drawn == "epoch"

    def draw(self, epoch: int) -> Iterator[tuple[list[DenseGraphs], list[Int[Tensor, "graphs vertices"]]]]:
        """Some graphs at a time: their levels, finest first, and the clusters of all levels but the last."""
        for start in range(0, len(self.items), self._step):
            part = slice(start, min(start + self._step, len(self.items)))
            levels, clusters = [self._dense(part)], []
            for depth in range(self.num_levels - 1):
                coarser, chosen = coarsen(levels[-1], self._orders(part, epoch if self.epochs_matter else 0, depth))
                levels.append(coarser)
                clusters.append(chosen)
            yield levels, clusters

    def packed(self, epoch: int) -> tuple[list[PackedLevel], list[Float[Tensor, "_ dim"]]]:
        """All graphs at every level, and their positions."""
        members, parts, pos = [], [], []
        for levels, clusters in self.draw(epoch):
            members.append(self._members(levels[0], clusters[0]) if clusters else None)
            steps = zip(levels[1:], [*clusters[1:], None], zip(levels, clusters, strict=False), strict=True)
            parts.append([self._pack(*step) for step in steps])
            pos.append([level.pos[level.real] for level in levels[1:]])
        finest = replace(self.finest, members=join(members))
        coarser = [PackedLevel.join(level) for level in zip(*parts, strict=True)]
        return [finest, *coarser], [self.pos, *(torch.cat(level) for level in zip(*pos, strict=True))]

    def largest(self, by_position: bool) -> list[float]:
        """The largest offset, or degree, of each level in the draw of epoch 0; 1 where all are 0."""
        most = [0.0] * self.num_levels
        for levels, _ in self.draw(0):
            most = [max(old, _largest(level, by_position)) for old, level in zip(most, levels, strict=True)]
        return [value or 1.0 for value in most]

    @cached_property
    def size(self) -> int:
        """Vertices of the largest graph."""
        sizes = self.finest.offsets.diff()
        return int(sizes.max()) if len(sizes) else 0

    @property
    def _step(self) -> int:
        return max(1, CHUNKS.get(self.pos.device.type, CHUNKS["cpu"]) // max(1, self.size) ** 2)

    @cached_property
    def _dtypes(self) -> tuple[torch.dtype, torch.dtype]:
        """For vertices of a graph, and for its edges, self-loops included; coarser graphs have no more of them."""
        edges = self.finest.edges.offsets.diff()
        most = int(edges.max()) if len(edges) else 0
        return local_dtype(self.size), local_dtype(most + self.size + 1)

    def _orders(self, part: slice, epoch: int, depth: int) -> list[Callable[[int], Tensor]]:
        matchings = self.coarsening.matchings
        steps = range(depth * matchings, (depth + 1) * matchings)
        return [partial(random_order, self.seed, epoch, step, self.items[part]) for step in steps]

    def _dense(self, part: slice) -> DenseGraphs:
        edges = self.finest.edges
        verts, ends = (offsets[part.start : part.stop + 1] for offsets in (self.finest.offsets, edges.offsets))
        sizes, device = verts.diff(), self.pos.device
        pos = self.pos.new_zeros(len(sizes), self.size, self.pos.shape[1])
        pos[torch.arange(self.size, device=device) < sizes[:, None]] = self.pos[int(verts[0]) : int(verts[-1])]
        chosen = slice(int(ends[0]), int(ends[-1]))
        graphs = torch.arange(len(sizes), device=device).repeat_interleave(ends.diff())
        adjacency = torch.zeros(len(sizes), self.size, self.size, dtype=torch.bool, device=device)
        adjacency[graphs, edges.receivers[chosen].long(), edges.senders[chosen].long()] = True
        adjacency.diagonal(dim1=1, dim2=2).fill_(False)
        made = DenseGraphs(adjacency, pos, sizes)
        return made if self.coarsening.weight == "far" else made.with_similarity(self.sigma)

    def _pack(self, graphs: DenseGraphs, clusters: Tensor | None, finer: tuple[DenseGraphs, Tensor]) -> PackedLevel:
        """What is stored of a coarser level. ``clusters`` merge its vertices; the graphs and clusters of ``finer`` were
        merged to it."""
        real, device = graphs.real, graphs.sizes.device
        looped = None
        if self.finest.looped is not None:
            loops = torch.eye(real.shape[1], dtype=torch.bool, device=device) & real[:, :, None]
            looped = self._pack_edges(graphs.adjacency | loops, real)
            looped = replace(looped, weights=torch.ones_like(looped.senders, dtype=torch.uint8))
        counts = torch.zeros(real.shape, dtype=torch.int64, device=device)
        counts.scatter_add_(1, torch.where(finer[0].real, finer[1], 0), finer[0].real.long())
        return PackedLevel(
            _offsets(graphs.sizes),
            self._pack_edges(graphs.adjacency, real),
            looped,
            members=None if clusters is None else self._members(graphs, clusters),
            first_member=_before(counts)[real].to(self._dtypes[0]),
        )

    def _members(self, graphs: DenseGraphs, clusters: Tensor) -> Tensor:
        """The vertices of each graph in the order of their clusters; padding comes last."""
        last = clusters.shape[1]
        return torch.where(graphs.real, clusters, last).argsort(dim=1, stable=True)[graphs.real].to(self._dtypes[0])

    def _pack_edges(self, adjacency: Bool[Tensor, "graphs receivers senders"], real: Tensor) -> PackedEdges:
        """Row by row, the entries of the matrices are the edges in receiver order; column by column, in sender
        order."""
        vertex, edge = self._dtypes
        _, receivers, senders = adjacency.nonzero().unbind(1)
        positions = adjacency.flatten(1).cumsum(1, dtype=torch.int32).view(adjacency.shape) - 1
        return PackedEdges(
            _offsets(adjacency.sum((1, 2))),
            senders.to(vertex),
            receivers.to(vertex),
            positions.mT[adjacency.mT].to(edge),
            _before(adjacency.sum(2))[real].to(edge),
            _before(adjacency.sum(1))[real].to(edge),
        )


def _largest(graphs: DenseGraphs, by_position: bool) -> float:
    if not graphs.adjacency.numel():
        return 0.0
    if not by_position:
        return float(graphs.adjacency.sum(2).max())
    offsets = [(c[:, :, None] - c[:, None, :]).abs() * graphs.adjacency for c in graphs.pos.unbind(2)]
    return max((float(offset.max()) for offset in offsets), default=0.0)


def _offsets(counts: Int[Tensor, " graphs"]) -> Int[Tensor, " graphs_plus_1"]:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _before(counts: Shaped[Tensor, "graphs vertices"]) -> Shaped[Tensor, "graphs vertices"]:
    """How many come before each."""
    return counts.cumsum(1) - counts


MARGIN = 1.02  # by which a batch is larger than the draw of epoch 0 needs
LARGEST = 512  # vertices of a graph: dense matrices of more are too large


@dataclass(frozen=True, eq=False)
class DrawnStore(GraphStore):
    """As :class:`GraphStore`, with coarser levels that :meth:`redraw` fills.

    drawing: what they are drawn from.
    expected: the bounds of each coarser level in the draw of epoch 0. The shape of a batch follows from them, so that a
        resumed run has the same.
    """

    drawing: Drawing | None = None
    expected: tuple[Bounds, ...] = ()
    _drawn: dict[str, int] = field(default_factory=dict, repr=False)
    _layouts: dict[int, int] = field(default_factory=dict, repr=False)

    def redraw(self, epoch: int) -> None:
        """Fill the coarser levels with the draw of an epoch, unless it is there."""
        assert self.drawing is not None
        if self._drawn.get("epoch") == epoch or (self._drawn and not self.drawing.epochs_matter):
            return
        # What is drawn for an evaluation, in inference mode, is still needed when training goes on.
        with torch.inference_mode(False), torch.no_grad():
            levels, pos = self.drawing.packed(epoch)
            refill(self.levels[0].members, levels[0].members)
            refill((self.levels[1:], self.pos[1:]), (tuple(levels[1:]), tuple(pos[1:])))
        self._drawn["epoch"] = epoch
        self._shapes.clear()
        self._layouts.clear()

    def batch_shapes(self, num_items: int) -> tuple[BatchShape, ...]:
        finest, step = self.levels[0].bounds.batch_shape(num_items), self.layout(num_items)
        return (finest, *(bounds.batch_shape(num_items, MARGIN**step) for bounds in self.expected))

    def layout(self, num_items: int) -> int:
        """How often the margin is taken: once, unless the draw of the epoch needs more."""
        if num_items not in self._layouts:
            pairs = [(level.bounds, bounds) for level, bounds in zip(self.levels[1:], self.expected, strict=True)]
            fits = (all(own.fit(other, num_items, MARGIN**step) for own, other in pairs) for step in count(1))
            self._layouts[num_items] = next(step for step, fit in enumerate(fits, 1) if fit)
        return self._layouts[num_items]


def drawn_store(
    data: GraphSet,
    items: Int[Tensor, " items"],
    drawing: Callable[[PackedLevel, Float[Tensor, "vertices dim"]], Drawing],
    coordinates: str | None,
    largest: Sequence[float] | None,
    *,
    looped: bool,
    padded: bool,
    polar: bool = False,
) -> DrawnStore:
    """The chosen graphs of a set, with coarser levels to be drawn; ``data`` have the finest level alone.

    ``drawing`` makes a drawing of the stored graphs and their positions. The other arguments are those of
    :func:`~geoskip.training.packed.store.store_set`.
    """
    base = store_set(data, items, coordinates, largest, looped=looped, padded=padded, polar=polar)
    made = drawing(base.levels[0], base.pos[0])
    if made.size > LARGEST:
        raise ValueError(
            f"coarsening: can be drawn for graphs of up to {LARGEST} vertices, and the data have one of {made.size}; "
            "leave these settings out to use the levels of the data"
        )
    levels, pos = made.packed(0)
    coarse = range(1, made.num_levels)
    scales = [None if largest is None else torch.full((len(items),), largest[k], device=base.x.device) for k in coarse]
    store = DrawnStore(
        base.x,
        (base.pos[0], *(torch.zeros_like(base.pos[0]) for _ in coarse)),
        (levels[0], *(_roomy(level, made.finest) for level in levels[1:])),
        coordinates,
        (*base.scales, *scales),
        padded,
        polar,
        drawing=made,
        expected=tuple(levels[depth].bounds for depth in coarse),
    )
    refill((store.levels[1:], store.pos[1:]), (tuple(levels[1:]), tuple(pos[1:])))
    store._drawn["epoch"] = 0
    return store


def refill(target: Any, source: Any) -> None:
    """Copy the tensors of a record to the beginning of another's, in place."""
    if isinstance(source, Tensor):
        target[: len(source)].copy_(source)
    elif isinstance(source, tuple):
        for inner, new in zip(target, source, strict=True):
            refill(inner, new)
    elif is_dataclass(source):
        for entry in fields(source):
            refill(getattr(target, entry.name), getattr(source, entry.name))


def _roomy(level: PackedLevel, finest: PackedLevel) -> PackedLevel:
    """A level of the same types with space for all vertices and edges of the finest: no coarser one has more."""
    verts = int(finest.offsets[-1])

    def edges(level_edges: PackedEdges | None, of_finest: PackedEdges | None) -> PackedEdges | None:
        if level_edges is None or of_finest is None:
            return None
        sizes = dict.fromkeys(("first_in", "first_out"), verts) | {"offsets": len(level_edges.offsets)}
        return _enlarged(level_edges, sizes, len(of_finest.senders))

    parts: Any = {"edges": edges(level.edges, finest.edges), "looped": edges(level.looped, finest.looped)}
    parts |= {name: _enlarged_tensor(getattr(level, name), verts) for name in ("members", "first_member")}
    return PackedLevel(level.offsets.clone(), **parts)


def _enlarged(record: PackedEdges, sizes: Mapping[str, int], size: int) -> PackedEdges:
    tensors: Any = {
        entry.name: _enlarged_tensor(getattr(record, entry.name), sizes.get(entry.name, size))
        for entry in fields(record)
    }
    return PackedEdges(**tensors)


def _enlarged_tensor(tensor: Tensor | None, size: int) -> Tensor | None:
    return None if tensor is None else tensor.new_zeros(size, *tensor.shape[1:])
