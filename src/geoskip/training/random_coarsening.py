"""Coarser levels of graphs, drawn at random for each epoch and stored in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import count, pairwise
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from geoskip.arguments import check_fields, check_least
from geoskip.data.graph_sets import local_dtype, offsets_of
from geoskip.graphs import Graph, PooledGraphs
from geoskip.graphs.coarsening import WEIGHTS, DenseGraphs, coarsen, order_seeds, random_order
from geoskip.graphs.tensor_records import map_tensors
from geoskip.kernels.paths import is_fast, kernels_for, on_triton
from geoskip.registry import check_choice, check_names
from geoskip.shapes import Float, Int
from geoskip.training.graph_store import GraphStore
from geoskip.training.packed_graphs import BatchShape, Bounds, PackedLevel

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
        check_least("coarsening.matchings", self.matchings, 1)
        check_choice("coarsening.drawn", self.drawn, DRAWN)
        check_choice("coarsening.weight", self.weight, WEIGHTS)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Coarsening | None:
        """From the setting ``coarsening`` of a configuration; None if it is empty, for the levels of the data."""
        check_names(settings, [entry.name for entry in fields(cls)], "coarsening.")
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
        for part in self._chunks:
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
        parts, pos = [], []
        for levels, clusters in self.draw(epoch):
            # The edges of the finest level are stored already.
            edgeless = replace(levels[0], adjacency=torch.zeros_like(levels[0].adjacency))
            graphs = [_packed_graph(level) for level in (edgeless, *levels[1:])]
            steps = [
                chosen[level.real] + offsets_of(coarser.sizes)[:-1].repeat_interleave(level.sizes)
                for level, coarser, chosen in zip(levels, levels[1:], clusters, strict=False)
            ]
            part = PackedLevel.from_pooled(PooledGraphs.from_clusters(graphs, steps), self.finest.looped is not None)
            if measured is not None:
                pairs = zip(part[1:], levels[1:], strict=True)
                part[1:] = [replace(level, largest=_largest(dense, measured == "position")) for level, dense in pairs]
            parts.append(part)
            pos.append([level.pos[level.real] for level in levels[1:]])
        finest, *coarser = (PackedLevel.join(level) for level in zip(*parts, strict=True))
        finest = replace(self.finest, members=finest.members, targets=finest.targets)
        return (finest, *coarser), (self.pos, *(torch.cat(level) for level in zip(*pos, strict=True)))

    def fill(
        self, levels: tuple[PackedLevel, ...], pos: tuple[Float[Tensor, "_ dim"], ...], epoch: int, measured: str | None
    ) -> None:
        """Write what :meth:`packed` returns into stored levels and positions, which may be longer than the draw."""
        if self._in_kernels:
            self._fill_in_kernels(levels, pos, epoch, measured)
            return

        def drawn(levels: tuple[PackedLevel, ...], pos: tuple[Tensor, ...]) -> list[Any]:
            return tree_leaves((levels[0].members, levels[0].targets, levels[1:], pos[1:]))

        for target, source in zip(drawn(levels, pos), drawn(*self.packed(epoch, measured)), strict=True):
            if isinstance(target, Tensor):
                target[: len(source)].copy_(source)

    def empty_levels(self, measured: str | None) -> tuple[PackedLevel, ...]:
        """The finest level, and space for the others: none has more vertices or edges than the finest."""
        per_vertex = self.finest.offsets.new_zeros(len(self.pos), dtype=local_dtype(self.size))
        largest = None if measured is None else self.pos.new_zeros(len(self.items))
        merged = replace(self.finest, members=per_vertex, targets=per_vertex.clone())
        levels = [merged]
        for _ in range(1, self.num_levels):
            level = map_tensors(replace(merged, first_member=per_vertex, largest=largest), torch.zeros_like)
            if level.looped is not None and level.looped.weights is not None:
                level.looped.weights.fill_(1)
            levels.append(level)
        levels[-1] = replace(levels[-1], members=None, targets=None)
        return tuple(levels)

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
    def _chunks(self) -> list[slice]:
        """The graphs that are coarsened together."""
        step = max(1, CHUNKS.get(self.pos.device.type, CHUNKS["cpu"]) // max(1, self.size) ** 2)
        return [slice(start, min(start + step, len(self.items))) for start in range(0, len(self.items), step)]

    @property
    def _in_kernels(self) -> bool:
        """Whether the Triton kernels draw: only with one matching of far neighbors, the recipe of superpixels."""
        is_covered = self.coarsening.matchings == 1 and self.coarsening.weight == "far"
        return is_covered and self.pos.dtype is torch.float32 and is_fast(self.pos) and on_triton(self.pos)

    def _fill_in_kernels(
        self, levels: tuple[PackedLevel, ...], pos: tuple[Tensor, ...], epoch: int, measured: str | None
    ) -> None:
        graphs = self._matrices
        for depth, (finer, coarser) in enumerate(pairwise(levels)):
            seeds = order_seeds(self.seed, epoch if self.epochs_matter else 0, depth, self.items)
            looped = None if coarser.looped is None else coarser.looped.stored(coarser.offsets)
            graphs = kernels_for(self.pos).coarsen_stored(
                *(graphs, seeds, finer.offsets, pos[depth], finer.members, finer.targets),
                *(coarser.edges.stored(coarser.offsets), looped, pos[depth + 1], coarser.first_member),
                *(coarser.largest, measured == "position"),
            )

    @cached_property
    def _matrices(self) -> Any:
        """The finest level as the kernels take it, the same in every draw."""
        graphs = map(self._dense, self._chunks)
        rows = (part.adjacency[part.real] for part in graphs)
        return kernels_for(self.pos).bit_matrices(self.finest.offsets, rows, self.size)

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


def _packed_graph(graphs: DenseGraphs) -> Graph:
    """The graphs packed one after the other, as operators take them."""
    offsets = offsets_of(graphs.sizes)
    owners, receivers, senders = graphs.adjacency.nonzero().unbind(1)
    graph = Graph.from_edge_index(torch.stack([senders, receivers]) + offsets[owners], int(offsets[-1]))
    return replace(graph, graph_offsets=offsets)


def _largest(graphs: DenseGraphs, by_position: bool) -> Float[Tensor, " graphs"]:
    """The largest offset, or degree, of each graph; 0 if it has no edges."""
    none = graphs.pos.new_zeros(len(graphs.sizes))
    if not graphs.adjacency.numel():
        return none
    if not by_position:
        return graphs.adjacency.sum(2).amax(1).to(none.dtype)
    offsets = [(c[:, :, None] - c[:, None, :]).abs() * graphs.adjacency for c in graphs.pos.unbind(2)]
    return torch.stack([none, *(offset.amax((1, 2)) for offset in offsets)]).amax(0)


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
            self.coarsener.fill(self.levels, self.pos, epoch, self._measured)
        self._drawn["epoch"] = epoch
        self._shapes.clear()
        self._layouts.clear()

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
    measured = store.coordinates if largest is None else None
    levels = coarsener.empty_levels(measured)
    coarser = range(1, coarsener.num_levels)
    x, finest_pos = store.x, store.pos[0]
    pos = finest_pos, *(torch.zeros_like(finest_pos) for _ in coarser)
    coarsener.fill(levels, pos, 0, measured)
    scales = [None if largest is None else torch.full((len(store),), largest[k], device=x.device) for k in coarser]
    drawn = DrawnStore(
        x,
        pos,
        levels,
        store.coordinates,
        (*store.scales, *scales),
        store.padded,
        store.polar,
        coarsener=coarsener,
        expected=tuple(level.bounds for level in levels[1:]),
    )
    drawn._drawn["epoch"] = 0
    return drawn
