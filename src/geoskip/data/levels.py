"""Coarser levels of packed graphs: Graclus once per graph, and the levels rebuilt from its clusters."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from geoskip.data.bitmaps import LARGEST, contracted_edges
from geoskip.data.graph_set import GraphLevel, chunks, local_dtype
from geoskip.data.progress import ProgressBar
from geoskip.graphs.coarsening import contract, graclus
from geoskip.shapes import Float, Int, Shaped


def gaussian_weights(level: GraphLevel, sigma: float) -> Float[np.ndarray, " edges"]:
    """Similarity of the ends of each edge, exp(-|p_i - p_j|² / 2σ²)."""
    senders, receivers = level.pos[level.edge_index].double()
    return torch.exp((senders - receivers).square().sum(1) / (-2 * sigma**2)).numpy()


def find_clusters(
    level: GraphLevel, weigh: Callable[[GraphLevel], np.ndarray], num_levels: int, matchings: int = 2, seed: int = 0
) -> list[Shaped[Tensor, " _"]]:
    """Clusters of each level but the coarsest, numbered within their graph, for ``num_levels`` coarser levels.

    Each level is ``matchings`` Graclus matchings coarser than the one before; ``weigh`` gives the edge weights of
    some of the graphs, and coarser levels carry on with the sums.
    """
    parts: list[list[np.ndarray]] = [[] for _ in range(num_levels)]
    with ProgressBar("coarsening", len(level)) as progress:
        for items in chunks(len(level)):
            some = level.select(items)
            edges, weights, offsets, volumes = some.edge_index.numpy(), weigh(some), some.offsets.numpy(), None
            for depth in range(num_levels):
                coarse = graclus(
                    edges, weights, offsets, volumes=volumes, matchings=matchings, seed=seed + depth * matchings
                )
                parts[depth].append(coarse.clusters - np.repeat(coarse.offsets[:-1], np.diff(offsets)))
                edges, weights, offsets, volumes = coarse.edge_index, coarse.weights, coarse.offsets, coarse.volumes
            progress.advance(len(items))
    return [_smallest(np.concatenate(part)) for part in parts]


def with_levels(level: GraphLevel, clusters: list[Shaped[Tensor, " _"]]) -> tuple[GraphLevel, ...]:
    """The levels that clusters lead to: positions are cluster means, edges join clusters that had one between them."""
    levels = []
    for chosen in clusters:
        _check_clusters(level, chosen)
        finer = replace(level, clusters=chosen)
        levels.append(finer)
        level = _coarser(finer, chosen)
    return (*levels, level)


def _check_clusters(level: GraphLevel, clusters: Tensor) -> None:
    """ValueError unless the clusters of each graph, which may come from a file, are numbered from 0 without gaps."""
    if clusters.shape != (len(level.pos),) or clusters.is_floating_point():
        raise ValueError(f"clusters: {len(level.pos)} whole numbers are needed, one for each vertex")
    sizes, graphs = level.offsets.diff(), level.graph_of_vertex
    if bool(((clusters < 0) | (clusters >= sizes[graphs])).any()):
        raise ValueError("clusters: a graph has no more clusters than vertices, numbered from 0")
    numbered = torch.zeros(len(level.pos), dtype=torch.bool)
    numbered[level.offsets[graphs] + clusters.long()] = True
    counts = torch.zeros(len(level), dtype=torch.int64).scatter_reduce_(0, graphs, clusters.long() + 1, "amax")
    if int(numbered.sum()) != int(counts.sum()):
        raise ValueError("clusters: the clusters of a graph must be numbered without gaps")


def _coarser(level: GraphLevel, clusters: Tensor) -> GraphLevel:
    counts = torch.zeros(len(level), dtype=torch.int64)
    counts.scatter_reduce_(0, level.graph_of_vertex, clusters.long() + 1, "amax")
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    joined = clusters.long() + offsets[:-1].repeat_interleave(level.offsets.diff())
    edges, edge_counts = zip(*(_coarse_edges(level.select(items)) for items in chunks(len(level))), strict=True)
    edge_offsets = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cat(edge_counts).cumsum(0)])
    dtype = local_dtype(int(counts.max()) if len(counts) else 0)
    return GraphLevel(_means(level.pos, joined, int(offsets[-1])), offsets, torch.cat(edges, 1).to(dtype), edge_offsets)


def _coarse_edges(some: GraphLevel) -> tuple[Shaped[Tensor, "2 _"], Int[Tensor, " _"]]:
    """Edges between clusters, numbered within their graph, and how many each graph has."""
    assert some.clusters is not None
    if some.offsets.diff().numpy().max(initial=0) <= LARGEST:
        counts = some.edge_offsets.diff().numpy()
        small, edge_counts = contracted_edges(some.edges.numpy(), counts, some.offsets.numpy(), some.clusters.numpy())
        return torch.from_numpy(small), torch.from_numpy(edge_counts)
    # Any numbering that keeps graphs apart will do here; a graph has no more clusters than vertices.
    joined = some.clusters.long() + some.offsets[:-1].repeat_interleave(some.offsets.diff())
    edge_index, _ = contract(some.edge_index.numpy(), np.ones(some.edges.shape[1]), joined.numpy(), len(joined))
    edges = torch.from_numpy(edge_index)
    graphs = some.graph_of_vertex[edges[1]]
    return edges - some.offsets[graphs], torch.bincount(graphs, minlength=len(some))


def _means(values: Tensor, groups: Tensor, count: int) -> Tensor:
    sums = torch.zeros(count, values.shape[1], dtype=torch.float64).index_add_(0, groups, values.double())
    return (sums / torch.bincount(groups, minlength=count).unsqueeze(1)).float()


def _smallest(clusters: np.ndarray) -> Tensor:
    return torch.from_numpy(clusters).to(local_dtype(int(clusters.max(initial=0)) + 1))
