"""Batched matching against a literal sequential Graclus, and the coarser graphs against a literal construction."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from geoskip.graphs.coarsening import DenseGraphs, coarsen, contract, graclus, match_dense, mix, random_order
from geoskip.kernels import use_path

SEEDS = st.integers(0, 2**32 - 1)
sometimes = settings(deadline=None, max_examples=50)


def random_graphs(
    seed: int, count: int = 5, size: int = 9, density: float = 0.4, directed: bool = False
) -> DenseGraphs:
    """Graphs of 1 to ``size`` vertices; positions on a small grid, so that equal distances are common."""
    random = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, size + 1, (count,), generator=random)
    joined = torch.rand(count, size, size, generator=random) < density
    joined = joined if directed else joined | joined.mT
    real = torch.arange(size) < sizes[:, None]
    joined &= real[:, :, None] & real[:, None, :]
    joined.diagonal(dim1=1, dim2=2).fill_(False)
    pos = torch.randint(0, 4, (count, size, 2), generator=random).float()
    return DenseGraphs(joined, pos * real[..., None], sizes)


def sequential(scores: np.ndarray, order: np.ndarray) -> list[int]:
    """Graclus as the paper writes it: visit, and take the free neighbor of the largest score, the first of equals."""
    partners = [-1] * len(scores)
    for vertex in order:
        if partners[vertex] >= 0:
            continue
        free = [j for j in range(len(scores)) if partners[j] < 0 and j != vertex and scores[vertex, j] > -np.inf]
        mate = max(free, key=lambda j: (scores[vertex, j], -j)) if free else vertex
        partners[vertex], partners[mate] = mate, vertex
    return partners


def orders(graphs: DenseGraphs, matchings: int, seed: int) -> list:
    items = torch.arange(len(graphs.sizes))
    return [lambda n, step=step: random_order(seed, 0, step, items, n) for step in range(matchings)]


@sometimes
@given(SEEDS, st.floats(0, 1), st.booleans())
def test_a_batched_matching_is_the_sequential_one(seed: int, density: float, directed: bool) -> None:
    graphs = random_graphs(seed, density=density, directed=directed)
    scores = graphs.scores()
    order = random_order(seed, 1, 2, torch.arange(5), 9)
    partners = match_dense(scores, order)
    for graph in range(5):
        assert partners[graph].tolist() == sequential(scores[graph].numpy(), order[graph].numpy())


@pytest.mark.parametrize(
    ("path", "device"),
    [
        pytest.param("interpreter", "cpu", marks=pytest.mark.compiled),
        pytest.param("fast", "cuda", marks=pytest.mark.gpu),
    ],
)
@pytest.mark.parametrize(
    ("count", "size", "density"), [(6, 9, 0.4), (3, 33, 0.3), (4, 1, 0.5), (0, 5, 0.5), (5, 7, 0.0)]
)
def test_the_kernel_matches_as_the_formula(path: str, device: str, count: int, size: int, density: float) -> None:
    graphs = random_graphs(size, count, size, density)
    scores, order = graphs.scores(), random_order(size, 1, 2, torch.arange(count), size)
    with use_path("reference"):
        expected = match_dense(scores, order)
    with use_path(path):
        partners = match_dense(scores.to(device), order.to(device)).cpu()
    assert partners.dtype is torch.int64
    assert torch.equal(partners, expected)
    assert partners.tolist() == [sequential(*pair) for pair in zip(scores.numpy(), order.numpy(), strict=True)]


@sometimes
@given(SEEDS)
def test_a_matching_is_maximal(seed: int) -> None:
    graphs = random_graphs(seed)
    partners = match_dense(graphs.scores(), random_order(seed, 0, 0, torch.arange(5), 9))
    vertices = torch.arange(9).expand_as(partners)
    assert torch.equal(partners.gather(1, partners), vertices)
    single = partners == vertices
    assert not bool((graphs.adjacency & single[:, :, None] & single[:, None, :]).any())


def test_the_farther_or_the_nearer_neighbor_is_preferred() -> None:
    """A path 0 - 1 - 2 whose second edge is longer; vertex 1 chooses first."""
    joined = torch.zeros(1, 3, 3, dtype=torch.bool)
    joined[0, [0, 1, 1, 2], [1, 0, 2, 1]] = True
    pos = torch.tensor([[[0.0, 0], [1, 0], [3, 0]]])
    graphs, order = DenseGraphs(joined, pos, torch.tensor([3])), torch.tensor([[1, 0, 2]])
    assert match_dense(graphs.scores(), order).tolist() == [[0, 2, 1]]
    assert match_dense(graphs.with_similarity(1.0).scores(), order).tolist() == [[1, 0, 2]]


def test_far_weights_are_the_normalized_cut_of_the_distance() -> None:
    graphs = random_graphs(3)
    scores = graphs.scores()
    for g, i, j in graphs.adjacency.nonzero().tolist():
        distance = float((graphs.pos[g, i] - graphs.pos[g, j]).norm())
        degrees = graphs.adjacency[g].sum(1)
        expected = distance * (1 / float(degrees[i]) + 1 / float(degrees[j]))
        assert float(scores[g, i, j]) == pytest.approx(expected, rel=1e-6)


@sometimes
@given(SEEDS, st.sampled_from([1, 2]), st.sampled_from(["near", "far"]))
def test_a_coarser_graph_is_that_of_its_clusters(seed: int, matchings: int, weight: str) -> None:
    graphs = random_graphs(seed)
    graphs = graphs.with_similarity(1.5) if weight == "near" else graphs
    coarser, clusters = coarsen(graphs, orders(graphs, matchings, seed))
    for g, size in enumerate(graphs.sizes.tolist()):
        own = clusters[g, :size]
        count = int(own.max()) + 1
        assert int(coarser.sizes[g]) == count
        # Numbered by their first vertex.
        firsts = [own.tolist().index(cluster) for cluster in range(count)]
        assert firsts == sorted(firsts)
        expected = torch.zeros_like(coarser.adjacency[g])
        for i, j in graphs.adjacency[g].nonzero().tolist():
            if own[i] != own[j]:
                expected[own[i], own[j]] = True
        assert torch.equal(coarser.adjacency[g], expected)
        for cluster in range(count):
            mean = graphs.pos[g, :size][own == cluster].mean(0)
            torch.testing.assert_close(coarser.pos[g, cluster], mean)


@sometimes
@given(SEEDS)
def test_near_weights_add_up_as_in_the_stored_coarsening(seed: int) -> None:
    """The similarity between clusters is the sum over the edges between them, and volumes add up."""
    graphs = random_graphs(seed, count=1).with_similarity(1.5)
    assert graphs.similarity is not None
    assert graphs.volumes is not None
    coarser, clusters = coarsen(graphs, orders(graphs, 2, seed))
    size = int(graphs.sizes[0])
    own = clusters[0, :size].numpy()
    receivers, senders = graphs.adjacency[0].nonzero().numpy().T
    weights = graphs.similarity[0].numpy()[receivers, senders].astype(np.float64)
    edges, sums = contract(np.stack([senders, receivers]), weights, own, int(own.max()) + 1)
    assert coarser.similarity is not None
    assert coarser.volumes is not None
    np.testing.assert_allclose(coarser.similarity[0].numpy()[edges[1], edges[0]], sums, rtol=1e-5)
    volumes = np.bincount(own, graphs.volumes[0, :size].numpy())
    np.testing.assert_allclose(coarser.volumes[0, : len(volumes)].numpy(), volumes, rtol=1e-5)


@sometimes
@given(SEEDS, st.integers(0, 4))
def test_a_graph_is_coarsened_alike_alone_and_among_others(seed: int, item: int) -> None:
    """Padding and neighbors in the batch change nothing: the order follows from the item's number."""
    graphs = random_graphs(seed)
    together, clusters = coarsen(graphs, orders(graphs, 1, seed))
    size = int(graphs.sizes[item])
    one = DenseGraphs(
        graphs.adjacency[item : item + 1, :size, :size], graphs.pos[item : item + 1, :size], graphs.sizes[[item]]
    )
    number = torch.tensor([item])
    alone, own = coarsen(one, [lambda n: random_order(seed, 0, 0, number, n)])
    assert torch.equal(own[0], clusters[item, :size])
    count = int(alone.sizes[0])
    assert torch.equal(alone.adjacency[0], together.adjacency[item, :count, :count])


def test_orders_are_permutations_that_differ_between_epochs_items_depths_and_seeds() -> None:
    def order(seed: int = 0, epoch: int = 0, depth: int = 0, item: int = 0) -> tuple[int, ...]:
        return tuple(random_order(seed, epoch, depth, torch.tensor([item]), 20)[0].tolist())

    assert sorted(order()) == list(range(20))
    assert order() == order()
    assert len({order(), order(seed=1), order(epoch=1), order(depth=1), order(item=1)}) == 5


def test_every_vertex_is_as_likely_to_be_first() -> None:
    firsts = random_order(0, 0, 0, torch.arange(30_000), 10)[:, 0]
    shares = torch.bincount(firsts, minlength=10) / len(firsts)
    assert float((shares - 0.1).abs().max()) < 0.01  # more than five standard deviations


def test_numbers_are_mixed_as_splitmix64_does() -> None:
    """The first outputs of the published generator for seed 0."""
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    step = 0x9E3779B97F4A7C15
    states = torch.tensor([(k * step + 2**63) % 2**64 - 2**63 for k in range(3)])
    assert [number % 2**64 for number in mix(states).tolist()] == expected


def test_graclus_and_the_batched_matching_draw_from_one_distribution() -> None:
    """Cluster counts of the two implementations on the same graphs, over many orders."""
    graphs = random_graphs(1, count=1, size=12, density=0.25).with_similarity(1.5)
    size = int(graphs.sizes[0])
    receivers, senders = graphs.adjacency[0].nonzero().numpy().T
    assert graphs.similarity is not None
    weights = graphs.similarity[0].numpy()[receivers, senders].astype(np.float64)
    old = [
        len(graclus(np.stack([senders, receivers]), weights, np.array([0, size]), matchings=1, seed=seed).volumes)
        for seed in range(300)
    ]
    many = DenseGraphs(*(_repeat(each, 300) for each in (graphs.adjacency, graphs.pos, graphs.sizes))).with_similarity(
        1.5
    )
    new = coarsen(many, orders(many, 1, 0))[0].sizes
    assert float(new.double().mean()) == pytest.approx(np.mean(old), abs=5 * np.std(old) / 300**0.5 + 1e-9)


def _repeat(tensor: Tensor, count: int) -> Tensor:
    return tensor.repeat(count, *(1,) * (tensor.dim() - 1))
