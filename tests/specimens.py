"""Small graphs with everything that is awkward about graphs, as tensors and as plain lists."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from geoskip.graphs import Graph
from tests.operators.oracles import Lists


@dataclass(frozen=True)
class Specimen:
    """What a graph is made from; values of edges are in the order of ``edge_index``."""

    edge_index: Tensor
    num_vertices: int
    pseudo: Tensor
    spirals: Tensor
    edge_weight: Tensor | None = None

    def graph(self, dtype: torch.dtype = torch.float64) -> Graph:
        weight = None if self.edge_weight is None else self.edge_weight.to(dtype)
        return Graph.from_edge_index(self.edge_index, self.num_vertices, self.pseudo.to(dtype), self.spirals, weight)

    def lists(self) -> Lists:
        edges = [(int(j), int(i)) for j, i in self.edge_index.t()]
        weights = None if self.edge_weight is None else self.edge_weight.tolist()
        return Lists(self.num_vertices, edges, self.pseudo.tolist(), self.spirals.tolist(), weights)

    def weighted(self, seed: int = 7) -> Specimen:
        """With a positive weight for each edge."""
        random = torch.Generator().manual_seed(seed)
        weight = 0.2 + torch.rand(self.edge_index.shape[1], generator=random, dtype=torch.float64)
        return replace(self, edge_weight=weight)

    def relabelled(self, labels: Tensor) -> Specimen:
        """Vertex v is called ``labels[v]``."""
        named = torch.where(self.spirals < 0, self.spirals, labels[self.spirals])
        spirals = torch.empty_like(named)
        spirals[labels] = named
        return replace(self, edge_index=labels[self.edge_index], spirals=spirals)

    def reordered(self, order: Tensor) -> Specimen:
        """The edges in another order."""
        weight = None if self.edge_weight is None else self.edge_weight[order]
        return replace(self, edge_index=self.edge_index[:, order], pseudo=self.pseudo[order], edge_weight=weight)


def undirected(pairs: list[tuple[int, int]]) -> Tensor:
    """Each pair in both directions."""
    return torch.tensor([*pairs, *((j, i) for i, j in pairs)]).t()


def specimen(
    num_vertices: int = 7, dim: int = 2, length: int = 8, seed: int = 0, simple: bool = False, directed: bool = False
) -> Specimen:
    """A random graph; unless ``simple``, with a self-loop and an edge that is listed twice.

    The last vertex is isolated, some spirals end early, and pseudo-coordinates reach both ends of [0, 1].
    """
    random = torch.Generator().manual_seed(seed)
    inner = num_vertices - 1
    # A ring, so that every sender also receives, and chords.
    ring = [(v, (v + 1) % inner) for v in range(inner)]
    edge_index = torch.tensor(ring).t() if directed else undirected(ring)
    chord = torch.tensor([[0, 2], [3, 5]]) % inner
    edge_index = torch.cat([edge_index, chord], dim=1)
    if not simple:
        edge_index = torch.cat([edge_index, torch.tensor([[1, 0, 0], [1, 1, 1]])], dim=1)
    num_edges = edge_index.shape[1]
    pseudo = torch.rand(num_edges, dim, generator=random, dtype=torch.float64)
    pseudo[0], pseudo[1] = 0, 1
    spirals = torch.randint(num_vertices, (num_vertices, length), generator=random)
    spirals[:, 0] = torch.arange(num_vertices)
    spirals[0, length // 2 :], spirals[-1, 1:] = -1, -1
    made = Specimen(edge_index, num_vertices, pseudo, spirals)
    return made.reordered(torch.randperm(num_edges, generator=random))


def edgeless(num_vertices: int, dim: int = 2, length: int = 8) -> Specimen:
    """Vertices alone, each at the end of its mesh."""
    spirals = torch.full((num_vertices, length), -1)
    spirals[:, 0] = torch.arange(num_vertices)
    return Specimen(
        torch.empty(2, 0, dtype=torch.long), num_vertices, torch.empty(0, dim, dtype=torch.float64), spirals
    )


def features(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
