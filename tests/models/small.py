"""Small hierarchies and packed graphs that every operator can run on."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from geoskip.graphs import Graph, attach, cartesian
from geoskip.graphs.graph_hierarchy import Hierarchy, PooledGraphs, pack_pooled
from geoskip.meshes import icosphere
from geoskip.meshes.hierarchy import mesh_hierarchy
from geoskip.models import CorrespondenceNet, GraphClassifier, MeshAutoencoder

# Every operator with the options of its ablation.
OPERATORS: list[dict[str, Any]] = [
    {"operator": "cheb", "kernel_size": 3},
    {"operator": "cheb", "kernel_size": 2, "center": False},
    {"operator": "feast", "kernel_size": 3},
    {"operator": "feast", "kernel_size": 2, "self_loops": False},
    {"operator": "gcn"},
    {"operator": "gin"},
    {"operator": "monet", "kernel_size": 3},
    {"operator": "spiral", "kernel_size": 4},
    {"operator": "spiral", "kernel_size": 3, "center": False},
    {"operator": "spline", "kernel_size": 2},
]
GRAPH_OPERATORS = [chosen for chosen in OPERATORS if chosen["operator"] != "spiral"]
SKIPS = ["none", "residual", "affine", "polynomial"]


def name(chosen: dict[str, Any]) -> str:
    return "-".join(str(value) for value in chosen.values())


@cache
def hierarchy() -> Hierarchy:
    """A sphere of 42, 20 and 8 vertices."""
    return Hierarchy.from_meshes(mesh_hierarchy(icosphere(1), targets=(20, 8)), spiral_length=4)


def autoencoder(seed: int = 0, **chosen: Any) -> MeshAutoencoder:
    torch.manual_seed(seed)
    return MeshAutoencoder(hierarchy(), channels=(4, 6), latent=5, **chosen)


def correspondence(seed: int = 0, **chosen: Any) -> CorrespondenceNet:
    torch.manual_seed(seed)
    return CorrespondenceNet(11, lift=4, channels=(5, 6), head=7, **chosen)


def classifier(seed: int = 0, **chosen: Any) -> GraphClassifier:
    torch.manual_seed(seed)
    return GraphClassifier(num_classes=4, channels=(5, 6, 7), head=8, **chosen)


def pooled_graph(num_vertices: int, seed: int, dim: int = 2) -> PooledGraphs:
    """A random graph, its vertices merged two and two, twice."""
    random = torch.Generator().manual_seed(seed)
    positions = torch.rand(num_vertices, dim, generator=random)
    ring = torch.stack([torch.arange(num_vertices), torch.arange(num_vertices).roll(-1)])
    chords = torch.randint(num_vertices, (2, num_vertices), generator=random)
    edges = torch.cat([ring, ring.flip(0), chords], dim=1)
    levels, clusters = [graph_at(edges, positions)], []
    for _ in range(2):
        merged = torch.randperm(len(positions), generator=random) // 2
        count = int(merged.max()) + 1
        positions = torch.stack([positions[merged == c].mean(0) for c in range(count)])
        edges = torch.unique(merged[edges], dim=1)
        levels.append(graph_at(edges[:, edges[0] != edges[1]], positions))
        clusters.append(merged)
    return PooledGraphs.from_clusters(levels, clusters)


def graph_at(edges: Tensor, positions: Tensor) -> Graph:
    graph = Graph.from_edge_index(edges, len(positions))
    return attach(graph, cartesian(graph, positions, largest=1.0))


def relabelled(graphs: PooledGraphs, labels: list[Tensor]) -> PooledGraphs:
    """Vertex v of level k is called ``labels[k][v]``."""
    levels = []
    for level, named in zip(graphs.levels, labels, strict=True):
        moved = Graph.from_edge_index(named[level.edge_index], level.num_vertices, level.pseudo)
        levels.append(replace(moved, graph_offsets=level.graph_offsets))
    clusters = []
    for pattern, fine, coarse in zip(graphs.clusters, labels, labels[1:], strict=False):
        named = torch.empty_like(fine)
        named[fine[pattern.senders]] = coarse[pattern.receivers]
        clusters.append(named)
    return PooledGraphs.from_clusters(levels, clusters)


# Three graphs, of 30 vertices together.
SINGLES = [pooled_graph(size, seed) for seed, size in enumerate((9, 13, 8))]
PACKED = pack_pooled(SINGLES)
