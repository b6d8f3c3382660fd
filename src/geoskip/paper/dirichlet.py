r"""How much features vary along a graph, and how many of their dimensions are left.

Cai and Wang, `A note on over-smoothing for graph neural networks <https://arxiv.org/abs/2006.13318>`_, 2020;
Roy and Vetterli, The effective rank: a measure of effective dimensionality, EUSIPCO 2007.
"""

from __future__ import annotations

import torch
from torch import Tensor

from geoskip.graphs import Graph, with_self_loops
from geoskip.shapes import Float


def dirichlet_energy(x: Float[Tensor, "*batch vertices channels"], graph: Graph) -> Float[Tensor, "*batch"]:
    r"""Variation of x along the edges, in the geometry in which GCN smooths:

    .. math::
        E(x) = \operatorname{tr} x^\top (I - \tilde L)\, x =
        \tfrac12 \sum_{i,\, j \in \mathcal N(i)} \Big\| \frac{x_i}{\sqrt{\tilde d_i}} -
        \frac{x_j}{\sqrt{\tilde d_j}} \Big\|^2

    with :math:`\tilde d_i = |\mathcal N(i)| + 1` and GCN's matrix :math:`\tilde L`; both directions of every edge must
    be there. It is 0 exactly where each channel is a multiple of :math:`\sqrt{\tilde d}` on every connected component.
    Computed as the sum of squares, so that small energies are exact.
    """
    _check(x, graph)
    edges = with_self_loops(graph, x.dtype)
    degrees = x.new_zeros(graph.num_vertices).index_add(0, edges.pattern.receivers, edges.weights)
    scaled = x / degrees.sqrt().unsqueeze(1)
    jumps = scaled[..., edges.pattern.senders, :] - scaled[..., edges.pattern.receivers, :]
    return (edges.weights.unsqueeze(1) * jumps.square()).sum((-2, -1)) / 2


def mean_frequency(x: Float[Tensor, "*batch vertices channels"], graph: Graph) -> Float[Tensor, "*batch"]:
    r"""The energy of x relative to its size, :math:`E(x) / \|x\|^2`: the mean of the eigenvalues :math:`1 - \lambda`
    of :math:`I - \tilde L`, weighted by how much of x they carry. 0 is smooth, the largest value is below 2."""
    return dirichlet_energy(x, graph) / x.square().sum((-2, -1))


def effective_rank(x: Float[Tensor, "*batch vertices channels"]) -> Float[Tensor, "*batch"]:
    r""":math:`\exp(-\sum_k p_k \log p_k)` with :math:`p_k = s_k / \sum_l s_l` and the singular values s of x: r
    dimensions of equal size count r, and what is negligible counts nothing. Between 1 and the rank; 0 where x is 0."""
    sizes = torch.linalg.svdvals(x)
    total = sizes.sum(-1)
    shares = sizes / torch.where(total > 0, total, 1).unsqueeze(-1)
    return torch.where(total > 0, torch.special.entr(shares).sum(-1).exp(), 0)


def _check(x: Tensor, graph: Graph) -> None:
    if x.dim() < 2 or x.shape[-2] != graph.num_vertices:
        raise ValueError(
            f"x: expected shape [*batch, vertices, channels] with {graph.num_vertices} vertices, got {list(x.shape)}"
        )
