r"""Pooling over clusters of vertices and over whole graphs.

All of it reduces contiguous segments in a fixed order: no sum depends on which thread is done first. Pooling along a
mesh hierarchy is a product with a fixed matrix instead: ``hierarchy.down[k] @ x`` and ``hierarchy.up[k] @ x``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from geoskip.arguments import check_type
from geoskip.graphs import Graph
from geoskip.graphs.checks import check_floating
from geoskip.kernels import Pattern, is_traced, is_transformed
from geoskip.kernels.autograd import formula_gradients, must_be_differentiable
from geoskip.shapes import Float, Int


def max_pool(
    x: Float[Tensor, "*batch vertices channels"], clusters: Pattern
) -> Float[Tensor, "*batch clusters channels"]:
    r""":math:`y_c = \max_{i \in c} x_i`, channel by channel. Equal maxima share the gradient.

    ``clusters`` comes from :class:`~geoskip.graphs.graph_hierarchy.PooledGraphs` or
    :func:`~geoskip.graphs.graph_hierarchy.cluster_pattern`.
    """
    return _reduce(_members(x, clusters), clusters.offsets[0], "max")


def mean_pool(
    x: Float[Tensor, "*batch vertices channels"], clusters: Pattern
) -> Float[Tensor, "*batch clusters channels"]:
    r""":math:`y_c = \tfrac1{|c|} \sum_{i \in c} x_i`."""
    return _mean(_members(x, clusters), clusters.offsets[0])


def mean_over_graphs(
    x: Float[Tensor, "*batch vertices channels"], graph: Graph
) -> Float[Tensor, "*batch graphs channels"]:
    r""":math:`y_g = \tfrac1{|g|} \sum_{i \in g} x_i` over the vertices of each packed graph; 0 if it has none."""
    check_type("graph", graph, Graph)
    _check_vertices(x, graph.num_vertices, "the graph", graph.device)
    if graph.graph_offsets is None:
        return x.sum(-2, keepdim=True) / max(graph.num_vertices, 1)
    return _mean(x, graph.graph_offsets)


Pooling = Callable[[Tensor, Pattern], Tensor]
POOLINGS: dict[str, Pooling] = {"max": max_pool, "mean": mean_pool}


def choose_pooling(name: str) -> Pooling:
    """:func:`max_pool` or :func:`mean_pool`, by name."""
    if not isinstance(name, str) or name not in POOLINGS:
        raise ValueError(f"pooling: unknown name {name!r}; choose from {', '.join(sorted(POOLINGS))}")
    return POOLINGS[name]


def _members(x: Tensor, clusters: Pattern) -> Tensor:
    check_type("clusters", clusters, Pattern)
    _check_vertices(x, clusters.num_senders, "the clusters are made of", clusters.device)
    return x.index_select(-2, clusters.senders)


def _check_vertices(x: Tensor, num_vertices: int, owner: str, device: torch.device) -> None:
    check_type("x", x, Tensor)
    check_floating("x", x)
    if x.dim() < 2:
        raise ValueError(f"x: expected shape [*batch, vertices, channels], got {list(x.shape)}")
    if x.shape[-2] != num_vertices:
        raise ValueError(f"x: has {x.shape[-2]} vertices, {owner} {num_vertices}")
    if x.device != device:
        raise ValueError(f"x: is on {x.device}, what it is pooled by on {device}; move one of them with .to()")


def _mean(x: Tensor, offsets: Int[Tensor, " segments_plus_1"]) -> Tensor:
    return _reduce(x, offsets, "sum") / offsets.diff().clamp(min=1).unsqueeze(-1)


def _reduce(x: Tensor, offsets: Tensor, how: str) -> Tensor:
    """Segments ``offsets[s] : offsets[s + 1]`` of the vertices, reduced."""
    x = x.movedim(-2, 0)
    if is_transformed():
        y = _reduce_by_formula(x, offsets, how)
    elif is_traced(x):
        y = torch.segment_reduce(x, how, offsets=offsets, axis=0)
    else:
        y = _SegmentReduce.apply(x, offsets, how)
    return y.movedim(0, -2)


class _SegmentReduce(torch.autograd.Function):
    """``torch.segment_reduce``, whose gradient torch cannot differentiate again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, offsets: Tensor, how: str) -> Tensor:
        y = torch.segment_reduce(x, how, offsets=offsets, axis=0)
        ctx.save_for_backward(x, y, offsets)
        ctx.how = how
        return y

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> Any:
        x, y, offsets = ctx.saved_tensors
        if must_be_differentiable(grad_y):
            grad_x, _, _ = formula_gradients(_reduce_by_formula, (x, offsets, ctx.how), ctx.needs_input_grad, grad_y)
        else:
            grad_x = torch.ops.aten._segment_reduce_backward(
                grad_y.contiguous(), y, x, ctx.how, offsets=offsets, axis=0
            )
        return grad_x, None, None


def _reduce_by_formula(x: Tensor, offsets: Tensor, how: str) -> Tensor:
    """The same in operations that can be differentiated and transformed any number of times."""
    segments = torch.searchsorted(offsets, torch.arange(x.shape[0], device=x.device), right=True) - 1
    empty = x.new_zeros(offsets.shape[0] - 1, *x.shape[1:])
    if how == "sum":
        return empty.index_add(0, segments, x)
    index = segments.view(-1, *[1] * (x.dim() - 1)).expand(x.shape)
    return empty.scatter_reduce(0, index, x, "amax", include_self=False)
