"""Coarser levels of graphs, drawn at random for each epoch and stored in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from geoskip.arguments import check_fields
from geoskip.data.graph_sets import local_dtype
from geoskip.graphs.coarsening import WEIGHTS, DenseGraphs, coarsen, random_order
from geoskip.registry import unknown_name
from geoskip.shapes import Bool, Float, Int, Shaped
from geoskip.training.graph_store import GraphStore
from geoskip.training.packed_graphs import BatchShape, Bounds, PackedEdges, PackedLevel, join, offsets_of

DRAWN = ("frozen", "epoch")
# Matrix entries of the graphs that are coarsened together: few enough for a core's cache, enough to occupy a GPU (256
# MiB in float32).
CHUNKS = {"cpu": 2**20, "cuda": 2**26}
MARGIN = 1.02  # batches leave this much space for draws that are larger than that of epoch 0
MAX_VERTICES = 512  # of a graph: larger dense matrices take too much memory


@dataclass(frozen=True)
class Coarsening:
    """How the coarser levels of graphs are drawn.

    matchings: Graclus matchings per pooling, each by about a factor of 2.
    drawn: ``"frozen"``, once per run, or ``"epoch"``, again in every training epoch and every evaluation.
    weight: ``"near"`` or ``"far"``, the preferred neighbor; see :mod:`geoskip.graphs.coarsening`.
    """

    matchings: int = 2
    drawn: str = "frozen"
    weight: str = "near"

    def __post_init__(self) -> None:
        check_fields(self, "coarsening.")
        if self.matchings < 1:
            raise ValueError(f"coarsening.matchings: expected 1 or more, got {self.matchings}")
        for name, choices in (("drawn", DRAWN), ("weight", WEIGHTS)):
            if getattr(self, name) not in choices:
                raise ValueError(f"coarsening.{name}: {unknown_name(getattr(self, name), choices)}")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Coarsening | None:
        """From the setting ``coarsening`` of a configuration; None if it is empty, for the levels of the data."""
        known = [entry.name for entry in fields(cls)]
        for name in settings:
            if name not in known:
                raise ValueError(f"coarsening.{name}: {unknown_name(name, known)}")
        return cls(**settings) if settings else None


@dataclass(frozen=True, eq=False)
class RandomCoarsener:
    """Draws the coarser levels of graphs.

    finest: the graphs.
    pos: positions of their vertices.
    items: their numbers in the data set. A graph's coarsening follows from its number, the seed and the epoch.
    coarsening: how they are coarsened.
    num_levels: number of levels, including the finest.
    sigma: width of the weights of ``"near"``.
    seed: the seed of the run.
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
        """Chunks of graphs: their levels, finest first, and the clusters of all levels but the last."""
        for start in range(0, len(self.items), self._step):
            part = slice(start, min(start + self._step, len(self.items)))
            levels, clusters = [self._dense(part)], []
            for depth in range(self.num_levels - 1):
                coarser, chosen = coarsen(levels[-1], self._orders(part, epoch if self.epochs_matter else 0, depth))
                levels.append(coarser)
                clusters.append(chosen)
            yield levels, clusters

    def packed(
        self, epoch: int, measured: str | None
    ) -> tuple[tuple[PackedLevel, ...], tuple[Float[Tensor, "_ dim"], ...]]:
        """All graphs at every level, and their positions. ``measured`` is ``"position"`` or ``"degree"`` if the coarser
        levels need their largest offsets or degrees."""
        merged, parts, pos = [], [], []
        for levels, clusters in self.draw(epoch):
            merged.append(self._members(levels[0], clusters[0]) if clusters else (None, None))
            steps = zip(levels[1:], [*clusters[1:], None], zip(levels, clusters, strict=False), strict=True)
            parts.append([self._pack(*step, measured) for step in steps])
            pos.append([level.pos[level.real] for level in levels[1:]])
        members, targets = (join(part) for part in zip(*merged, strict=True))
        finest = replace(self.finest, members=members, targets=targets)
        coarser = (PackedLevel.join(level) for level in zip(*parts, strict=True))
        return (finest, *coarser), (self.pos, *(torch.cat(level) for level in zip(*pos, strict=True)))

    def largest(self, by_position: bool) -> list[float]:
        """The largest offset, or degree, of each level in the draw of epoch 0; 1 if all are 0."""
        chunks = [[float(_largest(level, by_position).max()) for level in levels] for levels, _ in self.draw(0)]
        return [max(level) or 1.0 for level in zip(*chunks, strict=True)] or [1.0] * self.num_levels

    @cached_property
    def size(self) -> int:
        """The number of vertices of the largest graph."""
        sizes = self.finest.offsets.diff()
        return int(sizes.max()) if len(sizes) else 0

    @property
    def _step(self) -> int:
        return max(1, CHUNKS.get(self.pos.device.type, CHUNKS["cpu"]) // max(1, self.size) ** 2)

    @cached_property
    def _dtypes(self) -> tuple[torch.dtype, torch.dtype]:
        """The types that number a graph's vertices, and its edges including self-loops; coarser graphs have fewer."""
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
        dense = DenseGraphs(adjacency, pos, sizes)
        return dense if self.coarsening.weight == "far" else dense.with_similarity(self.sigma)

    def _pack(
        self,
        graphs: DenseGraphs,
        clusters: Tensor | None,
        finer: tuple[DenseGraphs, Tensor],
        measured: str | None,
    ) -> PackedLevel:
        """Pack a level that was made from the graphs and clusters ``finer``; ``clusters`` merges it further."""
        real, device = graphs.real, graphs.sizes.device
        looped = None
        if self.finest.looped is not None:
            loops = torch.eye(real.shape[1], dtype=torch.bool, device=device) & real[:, :, None]
            looped = self._pack_edges(graphs.adjacency | loops, real)
            looped = replace(looped, weights=torch.ones_like(looped.senders, dtype=torch.uint8))
        counts = torch.zeros(real.shape, dtype=torch.int64, device=device)
        counts.scatter_add_(1, torch.where(finer[0].real, finer[1], 0), finer[0].real.long())
        members, targets = (None, None) if clusters is None else self._members(graphs, clusters)
        return PackedLevel(
            offsets_of(graphs.sizes),
            self._pack_edges(graphs.adjacency, real),
            looped,
            members=members,
            targets=targets,
            first_member=_before(counts)[real].to(self._dtypes[0]),
            largest=None if measured is None else _largest(graphs, measured == "position"),
        )

    def _members(self, graphs: DenseGraphs, clusters: Tensor) -> tuple[Tensor, Tensor]:
        """The vertices of each graph in the order of their clusters, and these; padding comes last."""
        last = clusters.shape[1]
        targets, members = torch.where(graphs.real, clusters, last).sort(dim=1, stable=True)
        return members[graphs.real].to(self._dtypes[0]), targets[graphs.real].to(self._dtypes[0])

    def _pack_edges(self, adjacency: Bool[Tensor, "graphs receivers senders"], real: Tensor) -> PackedEdges:
        """The entries of the matrices row by row are the edges in receiver order; column by column, in sender order."""
        vertex, edge = self._dtypes
        _, receivers, senders = adjacency.nonzero().unbind(1)
        positions = adjacency.flatten(1).cumsum(1, dtype=torch.int32).view(adjacency.shape) - 1
        return PackedEdges(
            offsets_of(adjacency.sum((1, 2))),
            senders.to(vertex),
            receivers.to(vertex),
            positions.mT[adjacency.mT].to(edge),
            _before(adjacency.sum(2))[real].to(edge),
            _before(adjacency.sum(1))[real].to(edge),
        )


def _largest(graphs: DenseGraphs, by_position: bool) -> Float[Tensor, " graphs"]:
    """The largest offset, or degree, of each graph; 0 if it has no edges."""
    none = graphs.pos.new_zeros(len(graphs.sizes))
    if not graphs.adjacency.numel():
        return none
    if not by_position:
        return graphs.adjacency.sum(2).amax(1).to(none.dtype)
    offsets = [(c[:, :, None] - c[:, None, :]).abs() * graphs.adjacency for c in graphs.pos.unbind(2)]
    return torch.stack([none, *(offset.amax((1, 2)) for offset in offsets)]).amax(0)


def _before(counts: Shaped[Tensor, "graphs vertices"]) -> Shaped[Tensor, "graphs vertices"]:
    """How many come before each."""
    return counts.cumsum(1) - counts


@dataclass(frozen=True, eq=False, kw_only=True)
class DrawnStore(GraphStore):
    """A :class:`GraphStore` whose coarser levels are filled by :meth:`redraw`.

    coarsener: draws the coarser levels.
    expected: the bounds of each coarser level in the draw of epoch 0. They determine the shape of a batch, so that a
        resumed run has the same shapes.
    """

    coarsener: RandomCoarsener
    expected: tuple[Bounds, ...]
    _drawn: dict[str, int] = field(default_factory=dict, repr=False)
    _layouts: dict[int, int] = field(default_factory=dict, repr=False)

    def redraw(self, epoch: int) -> None:
        """Fill the coarser levels with the draw of an epoch, unless they contain it."""
        if self._drawn.get("epoch") == epoch or (self._drawn and not self.coarsener.epochs_matter):
            return
        # A draw for an evaluation, in inference mode, must also serve training.
        with torch.inference_mode(False), torch.no_grad():
            self.fill(*self.coarsener.packed(epoch, self._measured))
        self._drawn["epoch"] = epoch
        self._shapes.clear()
        self._layouts.clear()

    def fill(self, levels: tuple[PackedLevel, ...], pos: tuple[Tensor, ...]) -> None:
        """Copy a draw into the stored tensors, which captured steps read; they may be longer than the draw."""

        def drawn(finest: PackedLevel, *coarser: Any) -> list[Any]:
            return tree_leaves((finest.members, finest.targets, *coarser))

        stored = drawn(self.levels[0], self.levels[1:], self.pos[1:])
        for target, source in zip(stored, drawn(levels[0], levels[1:], pos[1:]), strict=True):
            if isinstance(target, Tensor):
                target[: len(source)].copy_(source)

    @property
    def _measured(self) -> str | None:
        """What the pseudo-coordinates of the coarser levels are relative to the largest of, if they are."""
        return self.coordinates if any(scales is None for scales in self.scales[1:]) else None

    def batch_shapes(self, num_items: int) -> tuple[BatchShape, ...]:
        finest, step = self.levels[0].bounds.batch_shape(num_items), self.layout(num_items)
        return (finest, *(bounds.batch_shape(num_items, MARGIN**step) for bounds in self.expected))

    def layout(self, num_items: int) -> int:
        """The power of the margin: 1, unless the draw of the epoch needs more."""
        if num_items not in self._layouts:
            pairs = [(level.bounds, bounds) for level, bounds in zip(self.levels[1:], self.expected, strict=True)]
            fits = (all(own.fit(other, num_items, MARGIN**step) for own, other in pairs) for step in count(1))
            self._layouts[num_items] = next(step for step, fit in enumerate(fits, 1) if fit)
        return self._layouts[num_items]


def draw_levels(store: GraphStore, coarsener: RandomCoarsener, largest: Sequence[float] | None) -> DrawnStore:
    """A store of one level with drawn coarser levels. ``largest`` is as in
    :func:`~geoskip.training.graph_store.store_set`."""
    if coarsener.size > MAX_VERTICES:
        raise ValueError(
            f"coarsening: can be drawn for graphs of up to {MAX_VERTICES} vertices, but the data have one with "
            f"{coarsener.size}; leave these settings out to use the levels of the data"
        )
    levels, pos = coarsener.packed(0, store.coordinates if largest is None else None)
    coarser = range(1, coarsener.num_levels)
    x, finest_pos = store.x, store.pos[0]
    scales = [None if largest is None else torch.full((len(store),), largest[k], device=x.device) for k in coarser]
    drawn = DrawnStore(
        x,
        (finest_pos, *(torch.zeros_like(finest_pos) for _ in coarser)),
        (levels[0], *(_enlarged(level, coarsener.finest) for level in levels[1:])),
        store.coordinates,
        (*store.scales, *scales),
        store.padded,
        store.polar,
        coarsener=coarsener,
        expected=tuple(level.bounds for level in levels[1:]),
    )
    drawn.fill(levels, pos)
    drawn._drawn["epoch"] = 0
    return drawn


def _enlarged(level: PackedLevel, finest: PackedLevel) -> PackedLevel:
    """An empty level with space for all vertices and edges of the finest: no coarser one has more."""
    per_vertex = ("first_in", "first_out", "members", "targets", "first_member")
    per_graph = {"offsets": len(level.offsets), "largest": len(level.offsets) - 1}
    sizes = {**per_graph, **dict.fromkeys(per_vertex, int(finest.offsets[-1]))}

    def enlarge(record: Any, num_edges: int) -> Any:
        tensors = {name: tensor for name, tensor in vars(record).items() if isinstance(tensor, Tensor)}
        return replace(record, **{name: t.new_zeros(sizes.get(name, num_edges)) for name, t in tensors.items()})

    edges = enlarge(level.edges, len(finest.edges.senders))
    looped = None if finest.looped is None else enlarge(level.looped, len(finest.looped.senders))
    return replace(enlarge(level, 0), edges=edges, looped=looped)
