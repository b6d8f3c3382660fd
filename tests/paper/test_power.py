"""The Weisfeiler-Lehman test, and what networks can and cannot tell apart."""

from __future__ import annotations

from random import Random

import pytest
import torch
from docs.analyze_power import (
    GRAPH_PAIRS,
    METHODS,
    SAME,
    GraphPair,
    RandomNetwork,
    circulant,
    gap,
    power_table,
    ring,
    undirected,
    wl_distinguishes,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from geoskip.graphs import Graph, attach, pack, target_degree
from geoskip.paper.baselines import refine as refine_edges
from tests.specimens import features

PAIRS = {pair.name: pair for pair in GRAPH_PAIRS}
# The pairs that the test confuses.
ALIKE = ("hexagon, two triangles", "decalin, bicyclopentyl", "circulants 11(1,2), 11(1,3)")
SEEDS = range(4)
PATH = [(v, v + 1) for v in range(6)]


def refine(graph: Graph, colors: Tensor | None = None, rounds: int = 9) -> Tensor:
    """Colors numbered from 0; nine rounds are enough for the graphs here."""
    start = torch.zeros(graph.num_vertices, dtype=torch.long) if colors is None else colors
    return torch.from_numpy(refine_edges(graph.edge_index.numpy(), start.numpy(), rounds))


def name(pair: GraphPair) -> str:
    return pair.name


@st.composite
def small_graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(2, 7))
    possible = [(i, j) for i in range(count) for j in range(i)]
    chosen = draw(st.lists(st.sampled_from(possible), min_size=1, unique=True))
    both = torch.tensor([*chosen, *((j, i) for i, j in chosen)]).t()
    graph = Graph.from_edge_index(both, count)
    return attach(graph, target_degree(graph, largest=10.0, dtype=torch.float64))


def same(values: Tensor) -> Tensor:
    """Which rows equal which, to rounding."""
    size = values.abs().max().clamp(min=1e-300)
    return torch.cdist(values, values, p=float("inf"), compute_mode="donot_use_mm_for_euclid_dist") < 1e-11 * size


def test_a_path_is_colored_by_the_distance_to_its_ends() -> None:
    colors = refine(undirected(PATH))
    assert torch.equal(colors, colors.flip(0))
    assert len(set(colors[:4].tolist())) == 4


def test_rounds_are_counted() -> None:
    long = undirected(PATH)
    assert refine(long, rounds=0).unique().numel() == 1
    assert [refine(long, rounds=k).unique().numel() for k in (1, 2, 3, 9)] == [2, 3, 4, 4]


def test_colors_at_the_start_are_kept_apart() -> None:
    graph = undirected(ring(6))
    assert refine(graph).unique().numel() == 1
    assert refine(graph, torch.tensor([5, 5, 5, 5, 5, 9])).unique().numel() == 4


@given(small_graphs(), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_names_of_vertices_do_not_matter(graph: Graph, random: Random) -> None:
    labels = list(range(graph.num_vertices))
    random.shuffle(labels)
    moved = torch.tensor(labels)
    renamed = Graph.from_edge_index(moved[graph.edge_index], graph.num_vertices)
    assert torch.equal(refine(renamed)[moved], refine(graph))
    assert not wl_distinguishes(graph, renamed)


@pytest.mark.parametrize("pair", GRAPH_PAIRS, ids=name)
def test_the_pairs_are_what_they_say(pair: GraphPair) -> None:
    assert pair.wl == (pair.name not in ALIKE)
    assert pair.graphs[0].num_vertices == pair.graphs[1].num_vertices
    for graph in pair.graphs:
        assert bool((graph.edge_index[0] != graph.edge_index[1]).all())
        assert torch.unique(graph.edge_index, dim=1).shape[1] == graph.num_edges
        assert {tuple(edge) for edge in graph.edge_index.t().tolist()} == {
            tuple(edge) for edge in graph.edge_index.flip(0).t().tolist()
        }


def closed_walks(graph: Graph, longest: int = 8) -> list[int]:
    """How many closed walks there are of each length: equal for isomorphic graphs."""
    adjacency = torch.zeros(graph.num_vertices, graph.num_vertices, dtype=torch.float64)
    adjacency[graph.edge_index[0], graph.edge_index[1]] = 1
    return [round(float(torch.linalg.matrix_power(adjacency, k).trace())) for k in range(longest)]


def distinguished(method: str, pair: GraphPair) -> int:
    return sum(gap(method, pair, seed) > SAME for seed in SEEDS)


@pytest.mark.parametrize("pair", [pair for pair in GRAPH_PAIRS if not pair.wl], ids=name)
def test_pairs_that_wl_confuses_are_not_isomorphic(pair: GraphPair) -> None:
    assert closed_walks(pair.graphs[0]) != closed_walks(pair.graphs[1])


@given(small_graphs(), st.integers(0, 99), st.sampled_from(list(METHODS)))
@settings(max_examples=60, deadline=None)
def test_no_network_sees_more_than_wl(graph: Graph, seed: int, method: str) -> None:
    """Vertices of one color after three rounds have one feature after three layers (Xu et al. 2019, lemma 2)."""
    values = RandomNetwork(method, 1, seed).vertices(torch.ones(graph.num_vertices, 1, dtype=torch.float64), graph)
    colors = refine(graph, rounds=3)
    assert bool(same(values)[colors.unsqueeze(0) == colors.unsqueeze(1)].all())


@given(small_graphs(), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_affine_gin_sees_as_much_as_wl(graph: Graph, seed: int) -> None:
    """And vertices of different colors have different features, with colored vertices too."""
    start = torch.randint(2, (graph.num_vertices,), generator=torch.Generator().manual_seed(seed))
    x = torch.eye(2, dtype=torch.float64)[start]
    colors = refine(graph, start, rounds=3)
    assert torch.equal(
        same(RandomNetwork("Aff-GIN-0", 2, seed).vertices(x, graph)), colors.unsqueeze(0) == colors.unsqueeze(1)
    )


@pytest.mark.parametrize("pair", [pair for pair in GRAPH_PAIRS if not pair.wl], ids=name)
@pytest.mark.parametrize("method", METHODS)
def test_where_wl_is_blind_all_networks_are(method: str, pair: GraphPair) -> None:
    assert distinguished(method, pair) == 0


# What follows from the formulas, for all weights: means, and GCN's weights in regular graphs, do not count; MoNet hears
# no centre; a self-loop or ε = 0 hides which vertex is the centre. The centre is all that a skip adds.
FEAST = {"FeaStNet", "Aff-FeaStNet"}
FEAST_DAGGER = {"FeaStNet†", "Aff-FeaStNet†"}
GCN, GIN, MONET = {"GCN", "Aff-GCN"}, {"GIN-0", "Aff-GIN-0"}, {"MoNet", "Aff-MoNet"}
ALWAYS = {
    "path, star": GCN | GIN | MONET,
    "hexagon, K3,3": GIN | MONET,
    "two edges ab, complete aabb": FEAST_DAGGER | GIN | MONET,
    "two edges ab, square abab": GCN | FEAST | GIN | MONET,
    "ring of nine, colored in two ways": FEAST | FEAST_DAGGER | MONET | {"Aff-GCN", "Aff-GIN-0"},
    "ring of eight, a and a near or far": GCN | FEAST | FEAST_DAGGER | GIN | {"Aff-MoNet"},
    "edge 0-2, edge 1-1": FEAST | FEAST_DAGGER | MONET | {"Aff-GCN", "Aff-GIN-0"},
}


@pytest.mark.parametrize("pair", ALWAYS)
def test_who_tells_what_apart(pair: str) -> None:
    """With every seed, or with none; residual skips see as much as affine ones, but not with all weights."""
    for method in METHODS:
        if not method.startswith("Res-"):
            expected = len(SEEDS) if method in ALWAYS[pair] else 0
            assert distinguished(method, PAIRS[pair]) == expected, method


def test_closed_neighborhoods_of_the_rings_are_the_same() -> None:
    """So GCN's and GIN-0's first layers give equal features vertex by vertex, in the same places."""
    pair = PAIRS["ring of nine, colored in two ways"]
    sums = [x + x.roll(1, 0) + x.roll(-1, 0) for x in pair.features]
    assert torch.equal(*sums)
    assert not torch.equal(*pair.features)


def test_neighborhoods_of_the_rings_of_eight_are_the_same() -> None:
    """Even vertices hear odd ones only, and the other way round: turning one half of the ring against the other changes
    no neighborhood, at any depth."""
    first, second = PAIRS["ring of eight, a and a near or far"].features
    assert torch.equal(first[0::2], second[0::2])
    assert torch.equal(first[1::2].roll(1, 0), second[1::2])


def test_a_network_reads_graphs_apart_by_their_sum() -> None:
    """Packed graphs give the sum of both readouts, so nothing leaks from one to the other."""
    first, second = undirected([(0, 1), (0, 2), (0, 3)]), undirected(circulant(7, (1, 3)))
    x, y = features(4, 2), features(7, 2, seed=5)
    network = RandomNetwork("Aff-GCN", 2, 0)
    torch.testing.assert_close(
        network(torch.cat([x, y]), pack([first, second])), network(x, first) + network(y, second)
    )


def test_weights_follow_the_seed() -> None:
    pair = PAIRS["path, star"]
    assert gap("GCN", pair, 1) == gap("GCN", pair, 1) != gap("GCN", pair, 2)


def test_the_table_has_every_cell() -> None:
    rows = power_table([0])
    assert {(row["method"], row["pair"]) for row in rows} == {(method, pair) for method in METHODS for pair in PAIRS}
    assert {row["seeds"] for row in rows} == {1}
