"""Graclus coarsening: pair each vertex with the neighbor it is tied to most, and merge the pairs.

Dhillon, Guan and Kulis, "Weighted graph cuts without eigenvectors: a multilevel approach" (PAMI 2007), the
coarsening phase. Vertices are visited in a random order; one that is still free joins the free neighbor with the
largest normalized cut

    w_ij (1/d_i + 1/d_j),    d_i = Σ_j w_ij,

or stays single when it has none. A matching roughly halves a graph; two of them, as the paper's Pool(4), quarter it.
Edges between the same two clusters add up, edges inside a cluster vanish, and the volume d of a cluster is that of
its members, as in the normalized cut.

Many small graphs are coarsened at once: their t-th visits do not touch each other and happen together, so the
result for each graph is exactly that of the sequential algorithm.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import coo_array

from geoskip.arguments import number_array, whole_number
from geoskip.shapes import Float, Int


@dataclass(frozen=True, eq=False)
class CoarsenedGraphs:
    """Packed graphs after coarsening, everything numbered over all graphs.

    clusters: the cluster each vertex of the finer graphs goes into; clusters are numbered by their first vertex.
    offsets: the clusters of graph g are ``offsets[g] : offsets[g + 1]``.
    edge_index: senders and receivers between clusters, sorted by receiver then sender, without loops or repeats.
    weights: sum of the weights of the edges that fell together.
    volumes: sum of the volumes of each cluster's vertices.
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

    Edges stand in both directions; weights are similarities ≥ 0. The order of visits follows from ``seed`` and a
    vertex's number within its graph, so a graph is coarsened alike alone and among others; ties go to the
    neighbor with the smallest number. ``volumes`` are the d_i, by default the weighted degrees; to coarsen
    further, pass those of the last result. Loops are ignored, isolated vertices stay single. Tensors and lists are
    converted to arrays.
    """
    edge_index, weights, offsets = _checked(edge_index, weights, offsets)
    matchings = whole_number("matchings", matchings, "graclus", least=0)
    seed = whole_number("seed", seed, "graclus", least=0)
    if volumes is None:
        volumes = _sums(edge_index[1], weights, int(offsets[-1]))
    else:
        volumes = _similarities("volumes", volumes, int(offsets[-1]), "vertices")
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
    """One matching: the cluster of each vertex, of one or two vertices each."""
    senders, scores, starts = _ranked_neighbours(edge_index, weights, volumes)
    partners = np.full(len(volumes), -1)
    for visited in _visits(offsets, seed):
        free = visited[partners[visited] < 0]
        partners[free] = free
        # A vertex is its own partner while it looks for another: nobody else of its graph looks at the same time.
        chosen, mates = _best_free_neighbour(free, senders, scores, starts, partners)
        partners[chosen], partners[mates] = mates, chosen
    firsts = np.minimum(partners, np.arange(len(partners)))
    return (np.cumsum(firsts == np.arange(len(firsts))) - 1)[firsts]


def contract(
    edge_index: Int[np.ndarray, "2 edges"],
    weights: Float[np.ndarray, " edges"],
    clusters: Int[np.ndarray, " vertices"],
    num_clusters: int,
) -> tuple[Int[np.ndarray, "2 coarse"], Float[np.ndarray, " coarse"]]:
    """Edges between clusters, parallel ones added up, those inside a cluster left out."""
    senders, receivers = clusters[edge_index[0]], clusters[edge_index[1]]
    between = senders != receivers
    ends = (receivers[between], senders[between])
    matrix = coo_array((weights[between], ends), shape=(num_clusters, num_clusters)).tocsr()
    matrix.sort_indices()
    receivers = np.repeat(np.arange(num_clusters), np.diff(matrix.indptr))
    return np.stack([matrix.indices.astype(np.int64), receivers]), matrix.data


def _ranked_neighbours(
    edge_index: np.ndarray, weights: np.ndarray, volumes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Neighbors of each vertex in ascending order, their normalized cuts, and where each vertex's list starts."""
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


def _best_free_neighbour(
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
    return np.bincount(index, values, minlength=size).astype(np.float64)  # of nothing, bincount counts in integers


def _coarse_offsets(clusters: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Clusters are numbered graph after graph, so a graph's first vertex has its first cluster."""
    ends = np.append(clusters, clusters.max(initial=-1) + 1)
    return ends[offsets]


def _checked(edge_index: Any, weights: Any, offsets: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    edge_index = number_array("edge_index", edge_index, "iu", dim=2).astype(np.int64)
    offsets = number_array("offsets", offsets, "iu", dim=1).astype(np.int64)
    if edge_index.shape[0] != 2:
        raise ValueError(f"edge_index: expected shape [2, edges], got {list(edge_index.shape)}")
    if len(offsets) == 0 or offsets[0] != 0 or (np.diff(offsets) < 0).any():
        raise ValueError("offsets start at 0 and never fall: the vertices of graph g are offsets[g] : offsets[g + 1]")
    if edge_index.size and not (edge_index.min() >= 0 and edge_index.max() < offsets[-1]):
        raise ValueError(f"edge_index: edges name vertices outside 0 to {offsets[-1] - 1}")
    weights = _similarities("weights", weights, edge_index.shape[1], "edges")
    graphs = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[edge_index]
    if (graphs[0] != graphs[1]).any():
        raise ValueError("edge_index: an edge joins two graphs")
    return edge_index, weights, offsets


def _similarities(name: str, values: Any, count: int, counted: str) -> np.ndarray:
    array = number_array(name, values, "iuf", dim=1)
    if len(array) != count:
        raise ValueError(f"{name}: expected one number for each of {count} {counted}, got {len(array)}")
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise ValueError(f"{name}: similarities are finite and not negative")
    return array
