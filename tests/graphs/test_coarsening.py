"""Graclus against a literal transcription of the sequential algorithm, and what coarsening must keep."""

import itertools

import numpy as np
import pytest

from geoskip.graphs.coarsening import contract, graclus, match


def random_graphs(rng: np.random.Generator, sizes: list[int], density: float = 0.4, decimals: int = 6):
    """Packed undirected graphs with symmetric weights; few decimals make ties."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    pairs, weights = [np.zeros((0, 2), dtype=np.int64)], [np.zeros(0)]
    for start, size in zip(offsets[:-1], sizes, strict=True):
        i, j = np.nonzero(np.triu(rng.random((size, size)) < density, 1))
        w = rng.random(len(i)).round(decimals) + 0.1
        pairs += [np.stack([i, j], 1) + start, np.stack([j, i], 1) + start]
        weights += [w, w]
    edges, values = np.concatenate(pairs), np.concatenate(weights)
    shuffle = rng.permutation(len(edges))
    return edges[shuffle].T, values[shuffle], offsets


def sequential_matching(edge_index, weights, volumes, order) -> list[frozenset[int]]:
    """Visit vertices one by one; join the free neighbour of largest w_ij (1/d_i + 1/d_j)."""
    neighbours: dict[int, dict[int, float]] = {int(v): {} for v in order}
    for (j, i), w in zip(edge_index.T, weights, strict=True):
        neighbours[int(i)][int(j)] = w
    free, clusters = set(neighbours), []
    for i in map(int, order):
        if i not in free:
            continue
        free.remove(i)
        best, largest = None, -1.0
        for j in sorted(neighbours[i]):
            cut = neighbours[i][j] * (1 / volumes[j] + 1 / volumes[i])
            if j in free and cut > largest:
                best, largest = j, cut
        clusters.append(frozenset([i] if best is None else [i, best]))
        free.discard(-1 if best is None else best)
    return clusters


def members(clusters: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(clusters == c).tolist()) for c in np.unique(clusters)}


@pytest.mark.parametrize("decimals", [6, 0])
@pytest.mark.parametrize("seed", range(5))
def test_a_matching_equals_the_sequential_algorithm(seed: int, decimals: int) -> None:
    edge_index, weights, offsets = random_graphs(np.random.default_rng(seed), [9, 0, 1, 14, 6, 0], decimals=decimals)
    volumes = np.bincount(edge_index[1], weights, minlength=offsets[-1])
    keys = np.random.default_rng(seed).random(14)
    expected = set()
    for start, end in itertools.pairwise(offsets):
        order = start + np.argsort(keys[: end - start])
        inside = (edge_index[1] >= start) & (edge_index[1] < end)
        expected |= set(sequential_matching(edge_index[:, inside], weights[inside], volumes, order))
    assert members(match(edge_index, weights, offsets, volumes, seed)) == expected


def test_packed_graphs_are_coarsened_as_if_alone() -> None:
    rng = np.random.default_rng(0)
    edge_index, weights, offsets = random_graphs(rng, [12, 7, 12])
    packed = graclus(edge_index, weights, offsets, seed=3)
    for g, (start, end) in enumerate(itertools.pairwise(offsets)):
        inside = (edge_index[1] >= start) & (edge_index[1] < end)
        alone = graclus(edge_index[:, inside] - start, weights[inside], np.array([0, end - start]), seed=3)
        first, last = packed.offsets[g : g + 2]
        assert (packed.clusters[start:end] - first == alone.clusters).all()
        assert last - first == alone.offsets[1]


def test_clusters_are_neighbours_and_a_dense_graph_halves() -> None:
    edge_index, weights, offsets = random_graphs(np.random.default_rng(1), [40, 40], density=0.5)
    clusters = graclus(edge_index, weights, offsets, matchings=1).clusters
    adjacent = set(map(tuple, edge_index.T))
    for group in members(clusters):
        assert len(group) <= 2
        assert len(group) == 1 or tuple(sorted(group)) in adjacent
    assert 40 <= clusters.max() + 1 <= 44


def test_no_two_single_neighbours_remain() -> None:
    """A matching is maximal: two neighbours that both stayed single would have been joined."""
    edge_index, weights, offsets = random_graphs(np.random.default_rng(2), [30], density=0.1)
    clusters = graclus(edge_index, weights, offsets, matchings=1).clusters
    single = np.bincount(clusters)[clusters] == 1
    assert not (single[edge_index[0]] & single[edge_index[1]]).any()


def test_two_matchings_quarter_and_nothing_is_lost() -> None:
    edge_index, weights, offsets = random_graphs(np.random.default_rng(3), [64, 64], density=0.3)
    coarse = graclus(edge_index, weights, offsets)
    assert 32 <= coarse.offsets[-1] <= 42
    assert np.bincount(coarse.clusters).max() <= 4
    senders, receivers = coarse.clusters[edge_index]
    between = senders != receivers
    assert coarse.weights.sum() == pytest.approx(weights[between].sum())
    assert coarse.volumes.sum() == pytest.approx(weights.sum())


def test_seeds_repeat_and_matter() -> None:
    edge_index, weights, offsets = random_graphs(np.random.default_rng(4), [50])
    first, again, other = (graclus(edge_index, weights, offsets, seed=s).clusters for s in (0, 0, 1))
    assert (first == again).all()
    assert members(first) != members(other)


def test_the_order_of_edges_does_not_matter() -> None:
    edge_index, weights, offsets = random_graphs(np.random.default_rng(5), [20, 20])
    order = np.random.default_rng(0).permutation(len(weights))
    shuffled = graclus(edge_index[:, order], weights[order], offsets)
    assert (shuffled.clusters == graclus(edge_index, weights, offsets).clusters).all()


def test_coarsening_twice_equals_more_matchings_at_once() -> None:
    edge_index, weights, offsets = random_graphs(np.random.default_rng(6), [40, 30])
    first = graclus(edge_index, weights, offsets, matchings=1, seed=0)
    second = graclus(first.edge_index, first.weights, first.offsets, volumes=first.volumes, matchings=1, seed=1)
    both = graclus(edge_index, weights, offsets, matchings=2, seed=0)
    assert (second.clusters[first.clusters] == both.clusters).all()
    assert (second.edge_index == both.edge_index).all()


def test_isolated_vertices_and_loops_stay_single() -> None:
    loops = np.array([[0, 1], [0, 1]])
    coarse = graclus(loops, np.ones(2), np.array([0, 2, 3]))
    assert coarse.clusters.tolist() == [0, 1, 2]
    assert coarse.offsets.tolist() == [0, 2, 3]
    assert coarse.edge_index.shape == (2, 0)


def test_no_vertices_and_no_graphs() -> None:
    nothing = np.zeros((2, 0), dtype=np.int64)
    for offsets in ([0], [0, 0, 0]):
        coarse = graclus(nothing, np.zeros(0), np.array(offsets))
        assert coarse.offsets.tolist() == offsets
        assert len(coarse.clusters) == len(coarse.weights) == 0


def test_weights_of_zero_still_join() -> None:
    edge_index = np.array([[0, 1], [1, 0]])
    assert graclus(edge_index, np.zeros(2), np.array([0, 2]), matchings=1).clusters.tolist() == [0, 0]


def test_contracted_edges_add_up_without_loops() -> None:
    edge_index = np.array([[0, 1, 0, 2, 1, 2, 2, 3], [1, 0, 2, 0, 2, 1, 3, 2]])
    edges, weights = contract(edge_index, np.array([9.0, 9, 1, 1, 2, 2, 4, 4]), np.array([0, 0, 1, 2]), 3)
    assert dict(zip(map(tuple, edges.T), weights, strict=True)) == {(0, 1): 3, (1, 0): 3, (1, 2): 4, (2, 1): 4}
