"""Discriminative power: which graphs random networks distinguish, compared with the Weisfeiler-Lehman test (1-WL).

The test refines the colors of vertices by the colors of their neighbors (Weisfeiler and Leman, The reduction of a graph
to canonical form and the algebra which appears therein, 1968). It bounds what any message passing network can
distinguish (Xu et al., `How powerful are graph neural networks? <https://arxiv.org/abs/1810.00826>`_, ICLR 2019).

    python docs/analyze_power.py [--seeds 20] -o results/analysis/power.json
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import elu

from geoskip.blocks import skip_prefix
from geoskip.cli.console import print_table
from geoskip.graphs import Graph, attach, target_degree
from geoskip.models import layer_maker
from geoskip.paper.baselines import refine
from geoskip.paper.findings import record_analysis
from geoskip.paper.rows import SKIPS
from geoskip.shapes import Float

# Operator, kernel size and options by their names in tables. MoNet uses degrees as pseudo-coordinates, as in the paper
# on superpixels.
OPERATORS: dict[str, tuple[str, int | None, dict[str, Any]]] = {
    "GCN": ("gcn", None, {}),
    "MoNet": ("monet", 4, {}),
    "FeaStNet": ("feast", 4, {}),
    "FeaStNet†": ("feast", 4, {"self_loops": False}),
    "GIN-0": ("gin", None, {}),
}
# Every operator, plain, with residual and with affine skips: the skip and the operator's name.
METHODS = {skip_prefix(skip) + operator: (skip, operator) for operator in OPERATORS for skip in SKIPS}
WIDTH, LAYERS = 16, 3
# Relative distance of two outputs in float64 that rounding alone does not reach.
SAME = 1e-10


class RandomNetwork(nn.Module):
    """Three blocks with ELU between them and a sum over the vertices at the end, in float64.

    All parameters, including biases and attention, are normal with variance 1 / rows. Functions of the weights that
    are not identically equal are then almost surely different, up to the pieces that ELU and GIN's ReLU are made of.
    """

    def __init__(self, method: str, in_channels: int, seed: int) -> None:
        super().__init__()
        skip, name = METHODS[method]
        operator, kernel_size, options = OPERATORS[name]
        make = layer_maker(operator, skip, kernel_size, 1, options)
        self.blocks = nn.ModuleList(make(WIDTH if k else in_channels, WIDTH) for k in range(LAYERS))
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


def power_table(seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Every method on every pair: how many of the random networks distinguish it, and the median of their gaps."""
    rows = []
    for method in METHODS:
        for pair in GRAPH_PAIRS:
            gaps = torch.tensor([gap(method, pair, seed) for seed in seeds], dtype=torch.float64)
            row = {"method": method, "pair": pair.name, "wl": pair.wl, "distinguished": int((gaps > SAME).sum())}
            rows.append({**row, "seeds": len(gaps), "gap": float(gaps.median())})
    return rows


def gap(method: str, pair: GraphPair, seed: int) -> float:
    """Relative distance of the outputs of one random network for the two graphs."""
    network = RandomNetwork(method, pair.features[0].shape[1], seed)
    first, second = (network(x, graph) for x, graph in zip(pair.features, pair.graphs, strict=True))
    return float((first - second).norm() / torch.maximum(first.norm(), second.norm()))


def wl_distinguishes(
    first: Graph,
    second: Graph,
    features: tuple[Float[Tensor, "vertices channels"], Float[Tensor, "others channels"]] | None = None,
) -> bool:
    """Whether 1-WL distinguishes the graphs: their stable colors differ in number."""
    count = first.num_vertices
    start = np.zeros(count + second.num_vertices, dtype=np.int64)
    if features is not None:
        start = torch.unique(torch.cat(features), dim=0, return_inverse=True)[1].numpy()
    # As many rounds as vertices: by then no color splits any more.
    one, other = (
        np.sort(refine(graph.edge_index.numpy(), own, rounds=len(start)))
        for graph, own in ((first, start[:count]), (second, start[count:]))
    )
    return not np.array_equal(one, other)


Edges = Sequence[tuple[int, int]]


def ring(length: int, first: int = 0) -> Edges:
    """Vertices from ``first`` on."""
    return [(first + v, first + (v + 1) % length) for v in range(length)]


def circulant(length: int, steps: Sequence[int]) -> Edges:
    """Vertices on a circle, each joined to those ``steps`` away."""
    return [(v, (v + step) % length) for step in steps for v in range(length)]


@dataclass(frozen=True, eq=False)
class GraphPair:
    """Two graphs.

    Attributes:
        name: a few words.
        about: what differs, in a sentence.
        graphs: the two.
        features: of their vertices: ones, one-hot colors, or intensities.
    """

    name: str
    about: str
    graphs: tuple[Graph, Graph]
    features: tuple[Float[Tensor, "vertices channels"], Float[Tensor, "vertices channels"]]

    @property
    def wl(self) -> bool:
        """Whether 1-WL distinguishes them."""
        return wl_distinguishes(*self.graphs, self.features)


def undirected(edges: Edges) -> Graph:
    """The graph with both directions of every edge, and degrees, up to 10, as pseudo-coordinates for MoNet."""
    both = torch.tensor([*edges, *((j, i) for i, j in edges)]).t()
    graph = Graph.from_edge_index(both, int(both.max()) + 1)
    return attach(graph, target_degree(graph, largest=10.0, dtype=torch.float64))


def _features(values: Sequence[float] | str) -> Tensor:
    """Letters become one-hot colors, numbers one channel."""
    if isinstance(values, str):
        return torch.eye(3, dtype=torch.float64)[["abc".index(letter) for letter in values]]
    return torch.tensor(values, dtype=torch.float64).unsqueeze(1)


def graph_pair(name: str, about: str, first: Edges, second: Edges, colors: tuple[Any, Any] | None = None) -> GraphPair:
    """Graphs by their edges, and the colors or intensities of their vertices, if they differ."""
    graphs = undirected(first), undirected(second)
    x, y = colors or ([1.0] * graphs[0].num_vertices,) * 2
    return GraphPair(name, about, graphs, (_features(x), _features(y)))


# Those that 1-WL distinguishes last.
GRAPH_PAIRS = (
    graph_pair("hexagon, two triangles", "Every vertex has two neighbors.", ring(6), [*ring(3), *ring(3, 3)]),
    graph_pair(
        "decalin, bicyclopentyl",
        "Two fused rings of six atoms, two joined rings of five.",
        [*ring(10), (0, 5)],
        [*ring(5), *ring(5, 5), (0, 5)],
    ),
    graph_pair(
        "circulants 11(1,2), 11(1,3)",
        "Rings of eleven with chords of two kinds: every vertex has four neighbors.",
        circulant(11, (1, 2)),
        circulant(11, (1, 3)),
    ),
    graph_pair(
        "path, star",
        "Four vertices; degrees 1, 2, 2, 1 and 3, 1, 1, 1.",
        [(0, 1), (1, 2), (2, 3)],
        [(0, 1), (0, 2), (0, 3)],
    ),
    graph_pair(
        "hexagon, K3,3",
        "Every vertex has two neighbors, or every vertex has three.",
        ring(6),
        [(i, j) for i in range(3) for j in range(3, 6)],
    ),
    graph_pair(
        "two edges ab, complete aabb",
        "Closed neighborhoods of the same mixture, {a, b} and {a, a, b, b}.",
        [(0, 1), (2, 3)],
        [(i, j) for i in range(4) for j in range(i)],
        ("abab", "abab"),
    ),
    graph_pair(
        "two edges ab, square abab",
        "Neighborhoods of the same mixture, {b} and {b, b}.",
        [(0, 1), (2, 3)],
        [(0, 1), (2, 3), (0, 3), (2, 1)],
        ("abab", "abab"),
    ),
    graph_pair(
        "ring of nine, colored in two ways",
        "The closed neighborhoods are the same, but not which of their vertices is the center.",
        ring(9),
        ring(9),
        ("abaabbabc", "baababbac"),
    ),
    graph_pair(
        "ring of eight, a and a near or far",
        "Two vertices of color a are neighbors, or three steps apart; the open neighborhoods are the same.",
        ring(8),
        ring(8),
        ("aabbbbbb", "abbabbbb"),
    ),
    graph_pair(
        "edge 0-2, edge 1-1",
        "One edge between intensities 0 and 2, one between 1 and 1; the sums are the same.",
        [(0, 1)],
        [(0, 1)],
        ([0.0, 2.0], [1.0, 1.0]),
    ),
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Which pairs of graphs random networks distinguish.")
    parser.add_argument("--seeds", type=int, default=20, help="number of random networks")
    parser.add_argument("-o", "--output", type=Path, required=True, help="write the record to this file")
    args = parser.parse_args(arguments)
    started = time.perf_counter()
    rows = power_table(range(args.seeds))
    header = ("method", *(f"{number}" if pair.wl else f"({number})" for number, pair in enumerate(GRAPH_PAIRS, 1)))
    lines = [(m, *(str(row["distinguished"]) for row in rows if row["method"] == m)) for m in METHODS]
    print_table(
        header, lines, title=f"Networks, of {args.seeds}, that distinguish the pair; in brackets: 1-WL does not"
    )
    settings = {"seeds": args.seeds, "layers": LAYERS, "width": WIDTH, "same_below": SAME}
    record_analysis(args.output, "power", settings, rows, started)


if __name__ == "__main__":
    main()
