"""Discriminative power: which graphs random networks distinguish, compared with the Weisfeiler-Lehman test (1-WL).

The test refines the colors of vertices by the colors of their neighbors (Weisfeiler and Leman, The reduction of a graph
to canonical form and the algebra which appears therein, 1968). It bounds what any message passing network can
distinguish (Xu et al., `How powerful are graph neural networks? <https://arxiv.org/abs/1810.00826>`_, ICLR 2019).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import elu

from geoskip.graphs import Graph, attach, pack, target_degree
from geoskip.models import layer_maker
from geoskip.shapes import Float, Int

# By their names in tables. MoNet uses degrees as pseudo-coordinates, as in the paper on superpixels.
OPERATORS: dict[str, dict[str, Any]] = {
    "GCN": {"operator": "gcn"},
    "MoNet": {"operator": "monet", "kernel_size": 4},
    "FeaStNet": {"operator": "feast", "kernel_size": 4},
    "FeaStNet†": {"operator": "feast", "kernel_size": 4, "self_loops": False},
    "GIN-0": {"operator": "gin"},
}
PREFIXES = {"none": "", "residual": "Res-", "affine": "Aff-"}
# Relative distance of two readouts in float64 that rounding alone does not reach.
SAME = 1e-10


@dataclass(frozen=True)
class PowerRow:
    """One method on one pair of graphs.

    Attributes:
        method: such as ``"Aff-GCN"``.
        pair: name of the pair.
        wl: whether 1-WL tells it apart.
        told_apart: how many of the networks told it apart.
        seeds: how many networks there were.
        gap: median over them of the relative distance of the two readouts.
    """

    method: str
    pair: str
    wl: bool
    told_apart: int
    seeds: int
    gap: float


class RandomNetwork(nn.Module):
    """Blocks with ELU between them and a sum over the vertices at the end, in float64.

    All parameters, biases and attention too, are normal with variance 1 / rows. Functions of the weights that are not
    identically equal are then almost surely different, up to the pieces that ELU and GIN's ReLU are made of.
    """

    def __init__(self, method: str, in_channels: int, seed: int, width: int = 16, layers: int = 3) -> None:
        super().__init__()
        prefix, operator = _split(method)
        chosen = dict(OPERATORS[operator])
        make = layer_maker(chosen.pop("operator"), prefix, chosen.pop("kernel_size", None), 1, chosen)
        self.blocks = nn.ModuleList(make(in_channels if k == 0 else width, width) for k in range(layers))
        self.double().requires_grad_(False)
        random = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            rows = parameter.shape[-2] if parameter.dim() > 1 else 1
            parameter.normal_(0, 1 / math.sqrt(rows), generator=random)

    def vertices(self, x: Float[Tensor, "vertices channels"], graph: Graph) -> Float[Tensor, "vertices width"]:
        """Features of the vertices after the last layer."""
        for block in self.blocks:
            x = elu(block(x, graph))
        return x

    def forward(self, x: Float[Tensor, "vertices channels"], graph: Graph) -> Float[Tensor, " width"]:
        return self.vertices(x, graph).sum(0)


def methods() -> list[str]:
    """Every operator, plain, with residual and with affine skips."""
    return [prefix + operator for operator in OPERATORS for prefix in PREFIXES.values()]


def gap(method: str, pair: GraphPair, seed: int) -> float:
    """Relative distance of what one random network makes of the two graphs."""
    network = RandomNetwork(method, pair.features[0].shape[1], seed)
    first, second = (network(x, graph) for x, graph in zip(pair.features, pair.graphs, strict=True))
    return float((first - second).norm() / torch.maximum(first.norm(), second.norm()))


def collisions(method: str, pair: GraphPair, seeds: Iterable[int]) -> PowerRow:
    """How many random networks tell the pair apart."""
    gaps = torch.tensor([gap(method, pair, seed) for seed in seeds], dtype=torch.float64)
    if not len(gaps):
        raise ValueError("seeds: give at least one")
    return PowerRow(method, pair.name, pair.wl, int((gaps > SAME).sum()), len(gaps), float(gaps.median()))


def power_table(seeds: Iterable[int]) -> list[PowerRow]:
    """Every method on every pair."""
    kept = list(seeds)
    return [collisions(method, pair, kept) for method in methods() for pair in graph_pairs()]


def _split(method: str) -> tuple[str, str]:
    """The skip and the operator of a method's name."""
    for skip, prefix in PREFIXES.items():
        if method.startswith(prefix) and method.removeprefix(prefix) in OPERATORS:
            return skip, method.removeprefix(prefix)
    raise ValueError(f"method: unknown name {method!r}; choose from {', '.join(methods())}")


def refine(
    graph: Graph, colors: Int[Tensor, " vertices"] | None = None, rounds: int | None = None
) -> Int[Tensor, " vertices"]:
    r"""Colors after ``rounds`` of refinement, or when they no longer split:

    .. math:: c_i \leftarrow \big(c_i,\ \{\!\{ c_j : j \in \mathcal N(i) \}\!\}\big)

    ``colors`` are those at the start, one for all where not given. The result is numbered from 0, in an order that
    depends on the colors alone and not on how vertices are numbered. To compare two graphs refine them packed, for
    numbers of separate refinements mean nothing to each other.
    """
    if colors is not None and colors.shape != (graph.num_vertices,):
        raise ValueError(f"colors: expected one for each of {graph.num_vertices} vertices, got {list(colors.shape)}")
    current = [0] * graph.num_vertices if colors is None else _numbered(colors.tolist())
    neighbors = _neighbors(graph)
    done = 0
    while rounds is None or done < rounds:
        finer = _numbered([(own, *sorted(current[j] for j in js)) for own, js in zip(current, neighbors, strict=True)])
        stable = len(set(finer)) == len(set(current))
        current, done = finer, done + 1
        if stable:
            break
    return torch.tensor(current, dtype=torch.long)


def colors_of(features: Float[Tensor, "vertices channels"]) -> Int[Tensor, " vertices"]:
    """One color for each different row."""
    return torch.unique(features, dim=0, return_inverse=True)[1]


def told_apart(
    first: Graph,
    second: Graph,
    features: tuple[Float[Tensor, "vertices channels"], Float[Tensor, "others channels"]] | None = None,
) -> bool:
    """Whether 1-WL tells the graphs apart: their stable colors, refined together, differ in number."""
    start = None if features is None else colors_of(torch.cat(features))
    colors = refine(pack([first, second]), start)
    counts = torch.bincount(colors), torch.bincount(colors[: first.num_vertices], minlength=int(colors.max()) + 1)
    return not torch.equal(counts[0], 2 * counts[1])


def _neighbors(graph: Graph) -> list[list[int]]:
    lists: list[list[int]] = [[] for _ in range(graph.num_vertices)]
    for sender, receiver in graph.edge_index.t().tolist():
        lists[receiver].append(sender)
    return lists


def _numbered(signatures: list) -> list[int]:
    """Equal signatures get equal numbers, in sorted order."""
    number = {signature: place for place, signature in enumerate(sorted(set(signatures)))}
    return [number[signature] for signature in signatures]


Edges = list[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class GraphPair:
    """Two graphs.

    Attributes:
        name: a few words.
        about: what differs, in a sentence.
        wl: whether 1-WL tells them apart.
        graphs: the two.
        features: of their vertices: ones, one-hot colors, or intensities.
    """

    name: str
    about: str
    wl: bool
    graphs: tuple[Graph, Graph]
    features: tuple[Float[Tensor, "vertices channels"], Float[Tensor, "vertices channels"]]


def graph_pairs() -> list[GraphPair]:
    """All pairs, those that 1-WL parts last."""
    return [
        _pair("hexagon, two triangles", "Every vertex has two neighbors.", False, ring(6), triangles(2)),
        _pair(
            "decalin, bicyclopentyl",
            "Two fused rings of six atoms, two joined rings of five.",
            False,
            [*ring(10), (0, 5)],
            [*ring(5), *shifted(ring(5), 5), (0, 5)],
        ),
        _pair(
            "circulants 11(1,2), 11(1,3)",
            "Rings of eleven with chords of two kinds: every vertex has four neighbors.",
            False,
            circulant(11, (1, 2)),
            circulant(11, (1, 3)),
        ),
        _pair("path, star", "Four vertices; degrees 1, 2, 2, 1 and 3, 1, 1, 1.", True, path(4), star(3)),
        _pair(
            "hexagon, K3,3",
            "Every vertex has two neighbors, or every vertex has three.",
            True,
            ring(6),
            [(i, j) for i in range(3) for j in range(3, 6)],
        ),
        _pair(
            "two edges ab, complete aabb",
            "Closed neighborhoods of the same mixture, {a, b} and {a, a, b, b}.",
            True,
            [(0, 1), (2, 3)],
            [(i, j) for i in range(4) for j in range(i)],
            ("abab", "abab"),
        ),
        _pair(
            "two edges ab, square abab",
            "Neighborhoods of the same mixture, {b} and {b, b}.",
            True,
            [(0, 1), (2, 3)],
            [(0, 1), (2, 3), (0, 3), (2, 1)],
            ("abab", "abab"),
        ),
        _pair(
            "ring of nine, colored in two ways",
            "Closed neighborhoods are the same one by one; which of their vertices is the center differs.",
            True,
            ring(9),
            ring(9),
            ("abaabbabc", "baababbac"),
        ),
        _pair(
            "ring of eight, a and a near or far",
            "Two vertices of color a lie side by side, or three steps apart; what a vertex sees is the same.",
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
    """Letters become one-hot colors, numbers one channel."""
    if isinstance(values, str):
        return torch.eye(3, dtype=torch.float64)[["abc".index(letter) for letter in values]]
    return torch.tensor(values, dtype=torch.float64).unsqueeze(1)
