"""Discriminative power: which graphs do random networks of a kind map to the same, whatever their weights?"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import elu

from geoskip.graphs import Graph
from geoskip.models.layers import layer_maker
from geoskip.paper.pairs import GraphPair, graph_pairs
from geoskip.shapes import Float

# What the tables call them, and how they are made; MoNet looks at degrees, as the paper's does on superpixels.
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
