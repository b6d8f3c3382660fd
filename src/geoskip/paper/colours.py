r"""The Weisfeiler-Lehman test: colours of vertices, refined by the colours of their neighbours.

Weisfeiler and Leman, The reduction of a graph to canonical form and the algebra which appears therein, 1968. It bounds
what any message passing network can tell apart (Xu et al., `How powerful are graph neural networks?
<https://arxiv.org/abs/1810.00826>`_, ICLR 2019; Morris et al., AAAI 2019).
"""

from __future__ import annotations

import torch
from torch import Tensor

from geoskip.graphs import Graph, pack
from geoskip.shapes import Float, Int


def refine(
    graph: Graph, colours: Int[Tensor, " vertices"] | None = None, rounds: int | None = None
) -> Int[Tensor, " vertices"]:
    r"""Colours after ``rounds`` of refinement, or when they no longer split:

    .. math:: c_i \leftarrow \big(c_i,\ \{\!\{ c_j : j \in \mathcal N(i) \}\!\}\big)

    ``colours`` are those at the start, one for all where not given. The result is numbered from 0, in an order that
    depends on the colours alone and not on how vertices are numbered. To compare two graphs refine them packed, for
    numbers of separate refinements mean nothing to each other.
    """
    if colours is not None and colours.shape != (graph.num_vertices,):
        raise ValueError(f"colours: expected one for each of {graph.num_vertices} vertices, got {list(colours.shape)}")
    current = [0] * graph.num_vertices if colours is None else _numbered(colours.tolist())
    neighbours = _neighbours(graph)
    done = 0
    while rounds is None or done < rounds:
        finer = _numbered([(own, *sorted(current[j] for j in js)) for own, js in zip(current, neighbours, strict=True)])
        stable = len(set(finer)) == len(set(current))
        current, done = finer, done + 1
        if stable:
            break
    return torch.tensor(current, dtype=torch.long)


def colours_of(features: Float[Tensor, "vertices channels"]) -> Int[Tensor, " vertices"]:
    """One colour for each different row."""
    return torch.unique(features, dim=0, return_inverse=True)[1]


def told_apart(
    first: Graph,
    second: Graph,
    features: tuple[Float[Tensor, "vertices channels"], Float[Tensor, "others channels"]] | None = None,
) -> bool:
    """Whether 1-WL tells the graphs apart: their stable colours, refined together, differ in number."""
    start = None if features is None else colours_of(torch.cat(features))
    colours = refine(pack([first, second]), start)
    counts = torch.bincount(colours), torch.bincount(colours[: first.num_vertices], minlength=int(colours.max()) + 1)
    return not torch.equal(counts[0], 2 * counts[1])


def _neighbours(graph: Graph) -> list[list[int]]:
    lists: list[list[int]] = [[] for _ in range(graph.num_vertices)]
    for sender, receiver in graph.edge_index.t().tolist():
        lists[receiver].append(sender)
    return lists


def _numbered(signatures: list) -> list[int]:
    """Equal signatures get equal numbers, in sorted order."""
    number = {signature: place for place, signature in enumerate(sorted(set(signatures)))}
    return [number[signature] for signature in signatures]
