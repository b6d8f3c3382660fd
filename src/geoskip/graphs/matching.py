r"""Random Graclus coarsening of many small graphs at once, in plain torch on any device.

:func:`geoskip.graphs.coarsening.graclus` coarsens a data set once. Here a coarsening is drawn again in every epoch, so
it has to be fast: graphs are dense matrices ``[graphs, vertices, vertices]``, and the t-th visits of all graphs happen
together. Visits of different graphs do not touch each other, so the result is that of the sequential algorithm.

Two choices of edge weights:

- ``"near"``: :math:`s_{ij} (1/d_i + 1/d_j)` with :math:`s_{ij} = e^{-|p_i - p_j|^2 / 2\sigma^2}` and
  :math:`d_i = \sum_j s_{ij}` of the finest level. Coarser levels carry on with sums of both. Prefers near neighbors.
- ``"far"``: :math:`|p_i - p_j| (1/d_i + 1/d_j)` with the number of neighbors :math:`d_i`, computed from the pooled
  graph and positions each time. Prefers far neighbors, as the authors' public code does.

Every operation here rounds the same way on CPU and CUDA, and random numbers come from a hash of (seed, epoch, item,
depth, vertex), so a drawn coarsening depends on neither the device nor the other graphs of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from geoskip.shapes import Bool, Float, Int

WEIGHTS = ("near", "far")
NEVER = float("-inf")


@dataclass(frozen=True, eq=False)
class DenseGraphs:
    """Graphs of up to n vertices each; rows and columns beyond a graph's own vertices are empty.

    adjacency: whether an edge leads to the receiver from the sender; no self-loops.
    pos: positions of the vertices.
    sizes: number of vertices of each graph.
    similarity: edge weights of ``"near"``, None for ``"far"``.
    volumes: the d_i of ``"near"``, None for ``"far"``.
    """

    adjacency: Bool[Tensor, "graphs receivers senders"]
    pos: Float[Tensor, "graphs vertices dim"]
    sizes: Int[Tensor, " graphs"]
    similarity: Float[Tensor, "graphs receivers senders"] | None = None
    volumes: Float[Tensor, "graphs vertices"] | None = None

    @property
    def real(self) -> Bool[Tensor, "graphs vertices"]:
        """Which rows are vertices and not padding."""
        return torch.arange(self.adjacency.shape[1], device=self.sizes.device) < self.sizes[:, None]

    def with_similarity(self, sigma: float) -> DenseGraphs:
        """With the weights of ``"near"``."""
        # exp differs by a bit between devices; in float64, rounded to float32, it does not.
        kernel = torch.exp(_squared_distances(self.pos).double() / (-2 * sigma**2)).float()
        similarity = torch.where(self.adjacency, kernel, 0)
        return DenseGraphs(self.adjacency, self.pos, self.sizes, similarity, _row_sums(similarity))

    def scores(self) -> Float[Tensor, "graphs receivers senders"]:
        """How much each vertex wants to be merged with each neighbor; -inf where there is no edge."""
        if self.similarity is None or self.volumes is None:
            weights = _squared_distances(self.pos).sqrt()
            degrees = self.adjacency.sum(2).float()
        else:
            weights, degrees = self.similarity, self.volumes
        inverse = torch.where(degrees > 0, 1 / degrees, 0)
        return (weights * (inverse[:, :, None] + inverse[:, None, :])).masked_fill(~self.adjacency, NEVER)


def coarsen(
    graphs: DenseGraphs, orders: Sequence[Callable[[int], Int[Tensor, "graphs vertices"]]]
) -> tuple[DenseGraphs, Int[Tensor, "graphs vertices"]]:
    """One coarser level by as many matchings as there are ``orders``, and the cluster of each vertex.

    An order is a function of the number n of vertices that gives the order of visits, a permutation of 0 to n - 1 for
    each graph. Clusters are numbered by their first vertex, and their position is the mean over their vertices. The
    clusters of padding have no meaning.
    """
    num_vertices = graphs.adjacency.shape[1]
    sums, counts = graphs.pos, torch.ones_like(graphs.pos[..., :1])
    clusters = torch.arange(num_vertices, device=graphs.pos.device).expand(len(graphs.pos), -1)
    for order in orders:
        partners = match(graphs.scores(), order(graphs.adjacency.shape[1]))
        first, second, own, sizes = _clusters(partners, graphs.real)
        paired = (first != second).unsqueeze(2).to(sums.dtype)
        sums = _rows(sums, first) + _rows(sums, second) * paired
        counts = _rows(counts, first) + _rows(counts, second) * paired
        graphs = _contracted(graphs, first, second, sums / counts, sizes)
        clusters = own.gather(1, clusters)
    return graphs, clusters


def match(
    scores: Float[Tensor, "graphs vertices vertices"], order: Int[Tensor, "graphs visits"]
) -> Int[Tensor, "graphs vertices"]:
    """The partner of each vertex, itself if it stays single.

    Vertices are visited in the given order. One that is still free takes the free neighbor of the largest score in its
    row, and of equal ones the first.
    """
    graphs = torch.arange(len(scores), device=scores.device)
    partners = torch.full(scores.shape[:2], -1, device=scores.device)
    for vertex in order.unbind(1):
        known = partners[graphs, vertex]
        best, mate = scores[graphs, vertex].masked_fill(partners >= 0, NEVER).max(1)
        mate = torch.where(best > NEVER, mate, vertex)
        # A vertex that has a partner keeps it.
        mate = torch.where(known >= 0, known, mate)
        partners.scatter_(1, vertex[:, None], mate[:, None])
        partners.scatter_(1, mate[:, None], vertex[:, None])
    return partners


def random_order(
    seed: int, epoch: int, depth: int, items: Int[Tensor, " graphs"], num_vertices: int
) -> Int[Tensor, "graphs vertices"]:
    """A random permutation of the vertices for each graph; ``items`` are the numbers of the graphs in their set."""
    state = mix(mix(mix(torch.tensor(seed, device=items.device)) + epoch) + depth)
    keys = mix(mix(state + items)[:, None] + torch.arange(num_vertices, device=items.device))
    return keys.argsort(dim=1, stable=True)


def mix(numbers: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """The splitmix64 generator's output function: a bijection of 64-bit integers that looks random."""
    numbers = numbers.long() + _signed(0x9E3779B97F4A7C15)
    numbers = (numbers ^ _shifted(numbers, 30)) * _signed(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ _shifted(numbers, 27)) * _signed(0x94D049BB133111EB)
    return numbers ^ _shifted(numbers, 31)


def _signed(number: int) -> int:
    return number - 2**64


def _shifted(numbers: Tensor, by: int) -> Tensor:
    """To the right, with zeros: torch's own shift repeats the sign."""
    return (numbers >> by) & ((1 << (64 - by)) - 1)


def _clusters(partners: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """First and second vertex of each cluster (the same one twice if it is single), the cluster of each vertex, and
    the number of clusters of each graph."""
    vertices = torch.arange(partners.shape[1], device=partners.device)
    leaders = torch.minimum(partners, vertices)
    leads = (leaders == vertices) & real
    numbers = leads.cumsum(1) - 1
    sizes = leads.sum(1)
    most = int(sizes.max()) if len(sizes) else 0
    # All others write to a last column, which is then cut off.
    first = torch.zeros(len(partners), most + 1, dtype=torch.int64, device=partners.device)
    first.scatter_(1, torch.where(leads, numbers, most), vertices.expand_as(partners))
    first = first[:, :most]
    return first, partners.gather(1, first), numbers.clamp(min=0).gather(1, leaders), sizes


def _contracted(graphs: DenseGraphs, first: Tensor, second: Tensor, pos: Tensor, sizes: Tensor) -> DenseGraphs:
    rows = _rows(graphs.adjacency, first) | _rows(graphs.adjacency, second)
    joined = (_columns(rows, first) | _columns(rows, second)).clone()
    joined.diagonal(dim1=1, dim2=2).fill_(False)
    made = DenseGraphs(joined, pos, sizes)
    joined &= made.real[:, :, None] & made.real[:, None, :]
    if graphs.similarity is None or graphs.volumes is None:
        return made
    paired = (first != second).to(pos.dtype)
    similarity = _rows(graphs.similarity, first) + _rows(graphs.similarity, second) * paired[:, :, None]
    similarity = _columns(similarity, first) + _columns(similarity, second) * paired[:, None, :]
    volumes = graphs.volumes.gather(1, first) + graphs.volumes.gather(1, second) * paired
    return DenseGraphs(joined, pos, sizes, torch.where(joined, similarity, 0), volumes)


def _rows(values: Tensor, chosen: Tensor) -> Tensor:
    return values[torch.arange(len(values), device=values.device)[:, None], chosen]


def _columns(values: Tensor, chosen: Tensor) -> Tensor:
    return values.gather(2, chosen[:, None, :].expand(-1, values.shape[1], -1))


def _squared_distances(pos: Tensor) -> Tensor:
    """One operation at a time, so that none is fused with another on a GPU and all devices round alike."""
    squares = pos.new_zeros(*pos.shape[:2], pos.shape[1])
    for coordinate in pos.unbind(2):
        squares += (coordinate[:, :, None] - coordinate[:, None, :]).square()
    return squares


def _row_sums(values: Tensor) -> Tensor:
    """From left to right, which a reduction does not promise."""
    sums = values.new_zeros(values.shape[:2])
    for column in values.unbind(2):
        sums += column
    return sums
