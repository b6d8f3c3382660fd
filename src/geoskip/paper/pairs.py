"""Pairs of graphs that are not isomorphic: some that the Weisfeiler-Lehman test parts, some that it does not.

Both graphs of a pair have as many vertices, with the same features, so that no readout can tell them apart by counting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from geoskip.graphs import Graph, attach, target_degree
from geoskip.shapes import Float

Edges = list[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class GraphPair:
    """Two graphs.

    Attributes:
        name: a few words.
        about: what differs, in a sentence.
        wl: whether 1-WL tells them apart.
        graphs: the two.
        features: of their vertices: ones, one-hot colours, or intensities.
    """

    name: str
    about: str
    wl: bool
    graphs: tuple[Graph, Graph]
    features: tuple[Float[Tensor, "vertices channels"], Float[Tensor, "vertices channels"]]


def graph_pairs() -> list[GraphPair]:
    """All pairs, those that 1-WL parts last."""
    return [
        _pair("hexagon, two triangles", "Every vertex has two neighbours.", False, ring(6), triangles(2)),
        _pair(
            "decalin, bicyclopentyl",
            "Two fused rings of six atoms, two joined rings of five.",
            False,
            [*ring(10), (0, 5)],
            [*ring(5), *shifted(ring(5), 5), (0, 5)],
        ),
        _pair(
            "circulants 11(1,2), 11(1,3)",
            "Rings of eleven with chords of two kinds: every vertex has four neighbours.",
            False,
            circulant(11, (1, 2)),
            circulant(11, (1, 3)),
        ),
        _pair("path, star", "Four vertices; degrees 1, 2, 2, 1 and 3, 1, 1, 1.", True, path(4), star(3)),
        _pair(
            "hexagon, K3,3",
            "Every vertex has two neighbours, or every vertex has three.",
            True,
            ring(6),
            [(i, j) for i in range(3) for j in range(3, 6)],
        ),
        _pair(
            "two edges ab, complete aabb",
            "Closed neighbourhoods of the same mixture, {a, b} and {a, a, b, b}.",
            True,
            [(0, 1), (2, 3)],
            [(i, j) for i in range(4) for j in range(i)],
            ("abab", "abab"),
        ),
        _pair(
            "two edges ab, square abab",
            "Neighbourhoods of the same mixture, {b} and {b, b}.",
            True,
            [(0, 1), (2, 3)],
            [(0, 1), (2, 3), (0, 3), (2, 1)],
            ("abab", "abab"),
        ),
        _pair(
            "ring of nine, coloured in two ways",
            "Closed neighbourhoods are the same one by one; which of their vertices is the centre differs.",
            True,
            ring(9),
            ring(9),
            ("abaabbabc", "baababbac"),
        ),
        _pair(
            "ring of eight, a and a near or far",
            "Two vertices of colour a lie side by side, or three steps apart; what a vertex hears is the same.",
            True,
            ring(8),
            ring(8),
            ("aabbbbbb", "abbabbbb"),
        ),
        _pair(
            "edge 0-2, edge 1-1",
            "One edge between intensities 0 and 2, one between 1 and 1; the sums are the same.",
            True,
            [(0, 1)],
            [(0, 1)],
            ((0.0, 2.0), (1.0, 1.0)),
        ),
    ]


def ring(length: int) -> Edges:
    return [(v, (v + 1) % length) for v in range(length)]


def path(length: int) -> Edges:
    return [(v, v + 1) for v in range(length - 1)]


def star(leaves: int) -> Edges:
    return [(0, leaf) for leaf in range(1, leaves + 1)]


def triangles(count: int) -> Edges:
    return [edge for number in range(count) for edge in shifted(ring(3), 3 * number)]


def circulant(length: int, steps: Sequence[int]) -> Edges:
    """Vertices on a circle, each joined to those ``steps`` away."""
    return [(v, (v + step) % length) for step in steps for v in range(length)]


def shifted(edges: Edges, by: int) -> Edges:
    return [(i + by, j + by) for i, j in edges]


def undirected(edges: Edges) -> Graph:
    """The graph with both directions of every edge."""
    both = torch.tensor([*edges, *((j, i) for i, j in edges)]).t()
    return with_degrees(Graph.from_edge_index(both, int(both.max()) + 1))


def with_degrees(graph: Graph) -> Graph:
    """With pseudo-coordinates that know nothing but degrees, up to 10, for MoNet to look at."""
    return attach(graph, target_degree(graph, largest=10.0, dtype=torch.float64))


def _pair(
    name: str,
    about: str,
    wl: bool,
    first: Edges,
    second: Edges,
    features: tuple[Sequence[float] | str, Sequence[float] | str] | None = None,
) -> GraphPair:
    graphs = undirected(first), undirected(second)
    if features is None:
        ones = torch.ones(graphs[0].num_vertices, 1, dtype=torch.float64)
        return GraphPair(name, about, wl, graphs, (ones, ones))
    return GraphPair(name, about, wl, graphs, (_columns(features[0]), _columns(features[1])))


def _columns(values: Sequence[float] | str) -> Tensor:
    """Letters become one-hot colours, numbers one channel."""
    if isinstance(values, str):
        return torch.eye(3, dtype=torch.float64)[["abc".index(letter) for letter in values]]
    return torch.tensor(values, dtype=torch.float64).unsqueeze(1)
