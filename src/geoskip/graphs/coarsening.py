r"""Graclus coarsening: pair each vertex with the neighbor it is tied to most, and merge the pairs.

Dhillon, Guan and Kulis, "Weighted graph cuts without eigenvectors: a multilevel approach" (PAMI 2007), the
coarsening phase. Vertices are visited in a random order; one that is still free joins the free neighbor with the
largest normalized cut

    w_ij (1/d_i + 1/d_j),    d_i = Σ_j w_ij,

or stays single if it has none. A matching roughly halves a graph; two of them, as in the paper's Pool(4), quarter it.

:func:`graclus` coarsens a data set once, in NumPy: parallel edges between two clusters are added, edges inside a
cluster vanish, and the volume d of a cluster is the sum over its members, as in the normalized cut.

:func:`coarsen` is drawn again in every epoch, so it has to be fast: graphs are dense tensors
``[graphs, vertices, vertices]`` on any device. It has two choices of edge weights:

- ``"near"``: :math:`s_{ij} (1/d_i + 1/d_j)` with :math:`s_{ij} = e^{-|p_i - p_j|^2 / 2\sigma^2}` and
  :math:`d_i = \sum_j s_{ij}` of the finest level; coarser levels add up both. It prefers near neighbors.
- ``"far"``: :math:`|p_i - p_j| (1/d_i + 1/d_j)` with the number of neighbors :math:`d_i`, computed from the pooled
  graph and positions each time. It prefers far neighbors, as the authors' public code does.

All its operations round the same way on CPU and CUDA, and random numbers come from a hash of (seed, epoch, item, depth,
vertex), so a coarsening depends on neither the device nor the other graphs of a batch.

Both coarsen many graphs at once: the t-th visits of all graphs happen together. Visits of different graphs do not
interact, so the result for each graph is that of the sequential algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from geoskip.graphs.checks import widest_float
from geoskip.kernels.paths import is_fast, is_traced, kernels_for, on_triton
from geoskip.shapes import Bool, Float, Int

WEIGHTS = ("near", "far")
NEVER = float("-inf")


@dataclass(frozen=True, eq=False)
class CoarsenedGraphs:
    """Packed graphs after coarsening; vertices and clusters are numbered over all graphs.

    Attributes:
        clusters: the cluster of each vertex of the finer graphs; clusters are numbered by their first vertex.
        offsets: the clusters of graph g are ``offsets[g] : offsets[g + 1]``.
        edge_index: senders and receivers between clusters, sorted by receiver then sender, without loops or repeats.
        weights: sums of the weights of parallel edges.
        volumes: sums of the volumes of each cluster's vertices.
    """

    clusters: Int[np.ndarray, " vertices"]
    offsets: Int[np.ndarray, " graphs_plus_1"]
    edge_index: Int[np.ndarray, "2 edges"]
    weights: Float[np.ndarray, " edges"]
    volumes: Float[np.ndarray, " clusters"]


def graclus(
    edge_index: Int[np.ndarray, "2 fine"],
    weights: Float[np.ndarray, " fine"],
    offsets: Int[np.ndarray, " graphs_plus_1"],
    *,
    volumes: Float[np.ndarray, " vertices"] | None = None,
    matchings: int = 2,
    seed: int = 0,
) -> CoarsenedGraphs:
    """Coarsen packed graphs by ``matchings`` matchings, by about a factor of two each.

    Edges are given in both directions; weights are similarities ≥ 0. The order of visits depends on ``seed`` and a
    vertex's number within its graph, so a graph is coarsened the same way alone and among others. Ties go to the
    neighbor with the smallest number. ``volumes`` are the d_i, by default the weighted degrees; to coarsen further,
    pass those of the last result. Loops are ignored, isolated vertices stay single.
    """
    if volumes is None:
        volumes = _sums(edge_index[1], weights, int(offsets[-1]))
    clusters = np.arange(offsets[-1])
    for step in range(matchings):
        joined = match(edge_index, weights, offsets, volumes, seed + step)
        offsets = _coarse_offsets(joined, offsets)
        edge_index, weights = contract(edge_index, weights, joined, int(offsets[-1]))
        volumes = _sums(joined, volumes, int(offsets[-1]))
        clusters = joined[clusters]
    return CoarsenedGraphs(clusters, offsets, edge_index, weights, volumes)


def match(
    edge_index: Int[np.ndarray, "2 edges"],
    weights: Float[np.ndarray, " edges"],
    offsets: Int[np.ndarray, " graphs_plus_1"],
    volumes: Float[np.ndarray, " vertices"],
    seed: int,
) -> Int[np.ndarray, " vertices"]:
    """One matching: the cluster of each vertex. Clusters have one or two vertices."""
    senders, scores, starts = _ranked_neighbors(edge_index, weights, volumes)
    partners = np.full(len(volumes), -1)
    for visited in _visits(offsets, seed):
        free = visited[partners[visited] < 0]
        partners[free] = free
        # A vertex is its own partner until it finds another one; no other vertex of its graph is visited now.
        chosen, mates = _best_free_neighbors(free, senders, scores, starts, partners)
        partners[chosen], partners[mates] = mates, chosen
    firsts = np.minimum(partners, np.arange(len(partners)))
    return (np.cumsum(firsts == np.arange(len(firsts))) - 1)[firsts]


def contract(
    edge_index: Int[np.ndarray, "2 edges"],
    weights: Float[np.ndarray, " edges"],
    clusters: Int[np.ndarray, " vertices"],
    num_clusters: int,
) -> tuple[Int[np.ndarray, "2 coarse"], Float[np.ndarray, " coarse"]]:
    """The edges between clusters, with parallel edges added up."""
    from scipy.sparse import coo_array

    senders, receivers = clusters[edge_index[0]], clusters[edge_index[1]]
    between = senders != receivers
    ends = (receivers[between], senders[between])
    matrix = coo_array((weights[between], ends), shape=(num_clusters, num_clusters)).tocsr()
    matrix.sort_indices()
    receivers = np.repeat(np.arange(num_clusters), np.diff(matrix.indptr))
    return np.stack([matrix.indices.astype(np.int64), receivers]), matrix.data


def _ranked_neighbors(
    edge_index: np.ndarray, weights: np.ndarray, volumes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Neighbors of each vertex in ascending order, their normalized cuts, and the start of each vertex's list."""
    keys = edge_index[1] * len(volumes) + edge_index[0]
    if (keys[1:] < keys[:-1]).any():
        order = np.argsort(keys, kind="stable")
        edge_index, weights = edge_index[:, order], weights[order]
    senders, receivers = edge_index
    inverse = np.divide(1.0, volumes, out=np.zeros(len(volumes)), where=volumes > 0)
    scores = weights * (inverse[senders] + inverse[receivers])
    return senders, scores, np.searchsorted(receivers, np.arange(len(volumes) + 1))


def _visits(offsets: np.ndarray, seed: int) -> Iterator[np.ndarray]:
    """The vertices visited first in each graph, then those visited second, and so on."""
    sizes = np.diff(offsets)
    longest = int(sizes.max(initial=0))
    keys = np.random.default_rng(seed).random(longest)
    graphs = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((keys[np.arange(offsets[-1]) - offsets[graphs]], graphs))
    for turn in range(longest):
        yield order[offsets[:-1][sizes > turn] + turn]


def _best_free_neighbors(
    free: np.ndarray, senders: np.ndarray, scores: np.ndarray, starts: np.ndarray, partners: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For each vertex of ``free`` that has a free neighbor, that vertex and the neighbor of largest score."""
    free = free[starts[free + 1] > starts[free]]
    counts = starts[free + 1] - starts[free]
    begins = np.cumsum(counts) - counts
    edges = np.arange(counts.sum()) + np.repeat(starts[free] - begins, counts)
    candidates = np.where(partners[senders[edges]] < 0, scores[edges], -1.0)
    best = np.maximum.reduceat(candidates, begins) if len(free) else candidates
    hits = np.flatnonzero((candidates == np.repeat(best, counts)) & (candidates >= 0))
    owners = np.searchsorted(begins, hits, side="right") - 1
    firsts = np.diff(owners, prepend=-1) > 0
    return free[owners[firsts]], senders[edges[hits[firsts]]]


def _sums(index: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    return np.bincount(index, values, minlength=size).astype(np.float64)  # without values, bincount returns integers


def _coarse_offsets(clusters: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Clusters are numbered graph after graph, so a graph's first vertex has its first cluster."""
    ends = np.append(clusters, clusters.max(initial=-1) + 1)
    return ends[offsets]


@dataclass(frozen=True, eq=False)
class DenseGraphs:
    """Graphs of up to n vertices each; rows and columns beyond a graph's own vertices are empty.

    Attributes:
        adjacency: whether there is an edge to the receiver from the sender; no self-loops.
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
        distances = _squared_distances(self.pos).to(widest_float(self.pos.device))
        kernel = torch.exp(distances / (-2 * sigma**2)).float()
        similarity = torch.where(self.adjacency, kernel, 0)
        return replace(self, similarity=similarity, volumes=_row_sums(similarity))

    def scores(self) -> Float[Tensor, "graphs receivers senders"]:
        """The normalized cut of each edge; -inf where there is none."""
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
    """One coarser level by one matching per entry of ``orders``, and the cluster of each vertex.

    An order is a function of the number n of vertices that returns the order of visits, a permutation of 0 to n - 1 for
    each graph. Clusters are numbered by their first vertex, and their position is the mean over their vertices. The
    clusters of padding are meaningless.
    """
    num_vertices = graphs.adjacency.shape[1]
    sums, counts = graphs.pos, torch.ones_like(graphs.pos[..., :1])
    clusters = torch.arange(num_vertices, device=graphs.pos.device).expand(len(graphs.pos), -1)
    for order in orders:
        partners = match_dense(graphs.scores(), order(graphs.adjacency.shape[1]))
        first, second, own, sizes = _clusters(partners, graphs.real)
        paired = (first != second).unsqueeze(2).to(sums.dtype)
        sums = _rows(sums, first) + _rows(sums, second) * paired
        counts = _rows(counts, first) + _rows(counts, second) * paired
        graphs = _contracted(graphs, first, second, sums / counts, sizes)
        clusters = own.gather(1, clusters)
    return graphs, clusters


def match_dense(
    scores: Float[Tensor, "graphs vertices vertices"], order: Int[Tensor, "graphs visits"]
) -> Int[Tensor, "graphs vertices"]:
    """The partner of each vertex, itself if it stays single.

    Vertices are visited in the given order. One that is still free takes the free neighbor with the largest score in
    its row, the first of equal ones.
    """
    if scores.dtype is torch.float32 and is_fast(scores) and on_triton(scores) and not is_traced(scores):
        return kernels_for(scores).match_dense(scores, order)
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
    """A random permutation of the vertices of each graph; ``items`` are the indices of the graphs in their data set."""
    seeds = order_seeds(seed, epoch, depth, items)
    keys = mix(mix(seeds)[:, None] + torch.arange(num_vertices, device=items.device))
    return keys.argsort(dim=1, stable=True)


def order_seeds(seed: int, epoch: int, depth: int, items: Int[Tensor, " graphs"]) -> Int[Tensor, " graphs"]:
    """The seed of each graph's random order."""
    state = mix(mix(mix(torch.tensor(seed)) + epoch) + depth)  # on the CPU, since it is one number
    return items + int(state)


def mix(numbers: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """The output function of the splitmix64 generator: a bijection of 64-bit integers that looks random."""
    numbers = numbers.long() + (0x9E3779B97F4A7C15 - 2**64)
    numbers = (numbers ^ _shifted(numbers, 30)) * (0xBF58476D1CE4E5B9 - 2**64)
    numbers = (numbers ^ _shifted(numbers, 27)) * (0x94D049BB133111EB - 2**64)
    return numbers ^ _shifted(numbers, 31)


def _shifted(numbers: Tensor, by: int) -> Tensor:
    """To the right, filled with zeros: torch's own shift repeats the sign."""
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
    # All others are written to an extra column, which is then dropped.
    first = torch.zeros(len(partners), most + 1, dtype=torch.int64, device=partners.device)
    first.scatter_(1, torch.where(leads, numbers, most), vertices.expand_as(partners))
    first = first[:, :most]
    return first, partners.gather(1, first), numbers.clamp(min=0).gather(1, leaders), sizes


def _contracted(graphs: DenseGraphs, first: Tensor, second: Tensor, pos: Tensor, sizes: Tensor) -> DenseGraphs:
    rows = _rows(graphs.adjacency, first) | _rows(graphs.adjacency, second)
    joined = (_columns(rows, first) | _columns(rows, second)).clone()
    joined.diagonal(dim1=1, dim2=2).fill_(False)
    coarse = DenseGraphs(joined, pos, sizes)
    joined &= coarse.real[:, :, None] & coarse.real[:, None, :]
    if graphs.similarity is None or graphs.volumes is None:
        return coarse
    paired = (first != second).to(pos.dtype)
    similarity = _rows(graphs.similarity, first) + _rows(graphs.similarity, second) * paired[:, :, None]
    similarity = _columns(similarity, first) + _columns(similarity, second) * paired[:, None, :]
    volumes = graphs.volumes.gather(1, first) + graphs.volumes.gather(1, second) * paired
    return replace(coarse, similarity=torch.where(joined, similarity, 0), volumes=volumes)


def _rows(values: Tensor, chosen: Tensor) -> Tensor:
    return values[torch.arange(len(values), device=values.device)[:, None], chosen]


def _columns(values: Tensor, chosen: Tensor) -> Tensor:
    return values.gather(2, chosen[:, None, :].expand(-1, values.shape[1], -1))


def _squared_distances(pos: Tensor) -> Tensor:
    """One operation at a time, so that none is fused on a GPU and all devices round the same way."""
    squares = pos.new_zeros(*pos.shape[:2], pos.shape[1])
    for coordinate in pos.unbind(2):
        squares += (coordinate[:, :, None] - coordinate[:, None, :]).square()
    return squares


def _row_sums(values: Tensor) -> Tensor:
    """From left to right; a reduction does not guarantee an order."""
    sums = values.new_zeros(values.shape[:2])
    for column in values.unbind(2):
        sums += column
    return sums
