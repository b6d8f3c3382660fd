r"""Pooling over clusters of vertices and over whole graphs.

All of it reduces contiguous segments in a fixed order: no sum depends on which thread is done first. Pooling along a
mesh hierarchy is a product with a fixed matrix instead: ``hierarchy.down[k] @ x`` and ``hierarchy.up[k] @ x``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from geoskip.arguments import check_type
from geoskip.graphs import Graph
from geoskip.graphs.checks import check_device, check_floating
from geoskip.kernels import Pattern, functional
from geoskip.shapes import Float


def max_pool(
    x: Float[Tensor, "*batch vertices channels"], clusters: Pattern
) -> Float[Tensor, "*batch clusters channels"]:
    r""":math:`y_c = \max_{i \in c} x_i`, channel by channel. Equal maxima share the gradient.

    ``clusters`` comes from :class:`~geoskip.graphs.graph_hierarchy.PooledGraphs` or
    :func:`~geoskip.graphs.graph_hierarchy.cluster_pattern`.
    """
    _check(x, clusters)
    return functional.max_pool(x, clusters)


def mean_pool(
    x: Float[Tensor, "*batch vertices channels"], clusters: Pattern
) -> Float[Tensor, "*batch clusters channels"]:
    r""":math:`y_c = \tfrac1{|c|} \sum_{i \in c} x_i`."""
    _check(x, clusters)
    return functional.mean_pool(x, clusters)


def mean_over_graphs(
    x: Float[Tensor, "*batch vertices channels"], graph: Graph
) -> Float[Tensor, "*batch graphs channels"]:
    r""":math:`y_g = \tfrac1{|g|} \sum_{i \in g} x_i` over the vertices of each packed graph; 0 if it has none."""
    check_type("graph", graph, Graph)
    _check_vertices(x, graph.num_vertices, "the graph", graph.device)
    if graph.graph_offsets is None:
        return x.sum(-2, keepdim=True) / max(graph.num_vertices, 1)
    return functional.segment_mean(x, graph.graph_offsets)


Pooling = Callable[[Tensor, Pattern], Tensor]
POOLINGS: dict[str, Pooling] = {"max": max_pool, "mean": mean_pool}


def _check(x: Tensor, clusters: Pattern) -> None:
    check_type("clusters", clusters, Pattern)
    _check_vertices(x, clusters.num_senders, "the clusters", clusters.device)


def _check_vertices(x: Tensor, num_vertices: int, owner: str, device: torch.device) -> None:
    check_type("x", x, Tensor)
    check_floating("x", x)
    if x.dim() < 2:
        raise ValueError(f"x: expected shape [*batch, vertices, channels], got {list(x.shape)}")
    if x.shape[-2] != num_vertices:
        raise ValueError(f"x: has {x.shape[-2]} vertices, {owner} {num_vertices}; pass those that belong to x")
    check_device("x", x.device, device, owner)
