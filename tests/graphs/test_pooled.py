"""Graphs with their coarsenings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from geoskip.graphs import Graph, pack, separate
from geoskip.graphs.coarsening import graclus
from geoskip.graphs.graph_hierarchy import PooledGraphs, cluster_of_vertex, cluster_pattern, pack_pooled


def ring(num_vertices: int) -> Graph:
    ends = torch.arange(num_vertices)
    edges = torch.stack([ends, ends.roll(-1)])
    return Graph.from_edge_index(torch.cat([edges, edges.flip(0)], dim=1), num_vertices)


def halved(num_vertices: int) -> PooledGraphs:
    """Neighbours on a ring, merged two and two."""
    return PooledGraphs.from_clusters([ring(num_vertices), ring(num_vertices // 2)], [torch.arange(num_vertices) // 2])


def test_pattern_holds_the_clusters() -> None:
    clusters = torch.tensor([2, 0, 1, 2, 0])
    pattern = cluster_pattern(clusters, 3)
    assert pattern.senders.tolist() == [1, 4, 2, 0, 3]
    assert pattern.offsets.tolist() == [[0, 2, 3, 5]]
    assert torch.equal(cluster_of_vertex(pattern), clusters)


def test_packing_shifts_every_level() -> None:
    packed = pack_pooled([halved(6), halved(8), halved(6)])
    assert packed.num_graphs == 3
    assert [level.num_vertices for level in packed.levels] == [20, 10]
    assert torch.equal(cluster_of_vertex(packed.clusters[0]), torch.arange(20) // 2)
    coarse = separate(packed.levels[1])
    assert [graph.num_vertices for graph in coarse] == [3, 4, 3]
    assert torch.equal(coarse[1].edge_index, ring(4).edge_index)


def test_moves_as_a_whole() -> None:
    assert halved(6).device == torch.device("cpu")
    moved = halved(6).to("meta")
    assert moved.device == moved.clusters[0].device == moved.levels[1].device == torch.device("meta")


def test_takes_what_graclus_finds() -> None:
    fine = pack([ring(8), ring(12)])
    assert fine.graph_offsets is not None
    coarsening = graclus(fine.edge_index.numpy(), np.ones(fine.num_edges), fine.graph_offsets.numpy())
    coarse = Graph.from_edge_index(torch.from_numpy(coarsening.edge_index), int(coarsening.offsets[-1]))
    coarse = replace(coarse, graph_offsets=torch.from_numpy(coarsening.offsets))
    graphs = PooledGraphs.from_clusters([fine, coarse], [torch.from_numpy(coarsening.clusters)])
    assert graphs.num_graphs == 2
    assert np.array_equal(cluster_of_vertex(graphs.clusters[0]).numpy(), coarsening.clusters)


def test_nothing_to_pack() -> None:
    with pytest.raises(ValueError, match="items: nothing to pack"):
        pack_pooled([])


def test_different_depths() -> None:
    with pytest.raises(ValueError, match=r"items: expected the same number of levels in each, got \[1, 2\]"):
        pack_pooled([halved(6), PooledGraphs.from_clusters([ring(6)], [])])


def test_clusters_for_other_steps() -> None:
    with pytest.raises(ValueError, match="clusters: expected one tensor for each step between 2 levels, got 0"):
        PooledGraphs.from_clusters([ring(6), ring(3)], [])


@pytest.mark.parametrize(
    ("clusters", "fault"),
    [
        (torch.tensor([0, 0, 1, 1, 2]), r"clusters\[0\]: expected one entry for each of 6 vertices, got \[5\]"),
        (torch.tensor([0, 0, 1, 1, 2, 3]), r"clusters\[0\]: vertex 3 does not exist"),
        (torch.tensor([0, 0, 2, 2, 2, 2]), r"clusters\[0\]: no vertex is merged to vertex 1"),
        (torch.tensor([0, 0, 1, 1, 2, 2], device="meta"), r"clusters\[0\]: is on meta, the graph on cpu"),
    ],
)
def test_clusters_that_do_not_fit(clusters: Tensor, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        PooledGraphs.from_clusters([ring(6), ring(3)], [clusters])


def test_levels_of_different_graphs() -> None:
    with pytest.raises(ValueError, match=r"levels: there are 2 graphs before clusters\[0\] and 1 after it"):
        PooledGraphs.from_clusters([pack([ring(3), ring(3)]), ring(3)], [torch.arange(6) // 2])


def test_cluster_across_graphs() -> None:
    with pytest.raises(ValueError, match=r"clusters\[0\]: vertex 3 is merged to a vertex of another graph"):
        PooledGraphs.from_clusters(
            [pack([ring(4), ring(4)]), pack([ring(2), ring(2)])], [torch.tensor([0, 0, 1, 2, 2, 3, 3, 3])]
        )
