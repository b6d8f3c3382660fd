"""Coarser levels of graphs, drawn at random for an epoch and packed as they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from geoskip.data.graph_set import local_dtype
from geoskip.graphs.matching import WEIGHTS, DenseGraphs, coarsen, random_order
from geoskip.registry import unknown_name
from geoskip.shapes import Bool, Float, Int, Shaped
from geoskip.training.checks import check_types
from geoskip.training.packed.edges import PackedEdges, join
from geoskip.training.packed.level import PackedLevel

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
        vertex, place = self._dtypes
        _, receivers, senders = adjacency.nonzero().unbind(1)
        places = adjacency.flatten(1).cumsum(1, dtype=torch.int32).view(adjacency.shape) - 1
        return PackedEdges(
            _offsets(adjacency.sum((1, 2))),
            senders.to(vertex),
            receivers.to(vertex),
            places.mT[adjacency.mT].to(place),
            _before(adjacency.sum(2))[real].to(place),
            _before(adjacency.sum(1))[real].to(place),
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
