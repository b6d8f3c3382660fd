"""Small graphs as bitmaps: the same edges as by sorting."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from geoskip.data import GraphLevel
from geoskip.data.graph_sets import adjacency_edges, local_dtype, with_levels


def test_edges_of_a_bitmap_are_sorted_by_receiver() -> None:
    joined = np.zeros((3, 4, 4), dtype=bool)
    joined[0, 2, 1] = joined[0, 0, 3] = joined[2, 3, 3] = True
    edges, counts = adjacency_edges(joined)
    assert edges.tolist() == [[3, 1, 3], [0, 2, 3]]
    assert counts.tolist() == [2, 0, 1]
    assert edges.dtype == np.uint8


@pytest.mark.parametrize("sizes", [(1,), (5, 1, 9), (30, 2, 17, 30), (), (256,), (257,), (257, 5)])
def test_coarser_levels_are_the_same_either_way(sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Contracted as bitmaps, and as sorted lists of edges."""
    level, clusters = made(sizes)
    # Graphs one by one, so that small and large ones of a set go either way.
    monkeypatch.setattr("geoskip.data.graph_sets.CHUNK", 1)
    small = with_levels(level, [clusters])[1]
    monkeypatch.setattr("geoskip.data.graph_sets.MATRIX_VERTICES", -1)
    large = with_levels(level, [clusters])[1]
    assert torch.equal(small.edges, large.edges)
    assert torch.equal(small.edge_offsets, large.edge_offsets)
    assert small.edges.dtype == large.edges.dtype


def made(sizes: tuple[int, ...]) -> tuple[GraphLevel, torch.Tensor]:
    """Random graphs, and for each a random joining of its vertices into clusters."""
    random = np.random.default_rng(0)
    bitmaps = [random.random((size, size)) < 0.3 for size in sizes]
    parts = [torch.from_numpy(adjacency_edges(bitmap[None])[0]) for bitmap in bitmaps]
    clusters = [np.unique(random.integers(0, max(size // 3, 1), size), return_inverse=True)[1] for size in sizes]
    offsets = torch.tensor([0, *np.cumsum(sizes, dtype=np.int64)])
    edge_offsets = torch.tensor([0, *np.cumsum([part.shape[1] for part in parts], dtype=np.int64)])
    edges = torch.cat([torch.zeros(2, 0, dtype=torch.uint8), *parts], 1).to(local_dtype(max(sizes, default=0)))
    level = GraphLevel(torch.randn(int(offsets[-1]), 2), offsets, edges, edge_offsets)
    return level, torch.from_numpy(np.concatenate([np.zeros(0), *clusters]).astype(np.uint8))
