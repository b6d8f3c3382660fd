"""Pooling over clusters and graphs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from geoskip.blocks.pooling import max_pool, mean_over_graphs, mean_pool
from geoskip.graphs import Graph, pack
from geoskip.graphs.graph_hierarchy import cluster_pattern
from geoskip.kernels import Pattern
from tests.specimens import features

CLUSTERS = [2, 0, 1, 2, 2, 0, 1]
PATTERN = cluster_pattern(torch.tensor(CLUSTERS), 3)
Pooling = Callable[[Tensor, Pattern], Tensor]


def members(x: Tensor, cluster: int) -> Tensor:
    return torch.stack([row for row, c in zip(x, CLUSTERS, strict=True) if c == cluster])


def path(num_vertices: int) -> Graph:
    steps = torch.arange(max(num_vertices - 1, 0))
    return Graph.from_edge_index(torch.stack([steps, steps + 1]), num_vertices)


def test_maximum_and_mean_of_each_cluster() -> None:
    x = features(7, 4)
    assert torch.equal(max_pool(x, PATTERN), torch.stack([members(x, c).max(0).values for c in range(3)]))
    assert_close(mean_pool(x, PATTERN), torch.stack([members(x, c).mean(0) for c in range(3)]))


@pytest.mark.parametrize("pool", [max_pool, mean_pool])
def test_batch_equals_one_by_one(pool: Pooling) -> None:
    x = features(2, 3, 7, 4)
    assert torch.equal(pool(x, PATTERN), torch.stack([torch.stack([pool(i, PATTERN) for i in row]) for row in x]))


@pytest.mark.parametrize("pool", [max_pool, mean_pool])
def test_gradients(pool: Pooling) -> None:
    x = features(2, 7, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: pool(x, PATTERN), x)


@pytest.mark.parametrize("sign", [1, -1])
def test_equal_maxima_share_the_gradient(sign: int) -> None:
    """Negative ones too, which ``torch.segment_reduce`` does not divide."""
    x = torch.ones(7, 1, requires_grad=True)
    (sign * max_pool(x, PATTERN)).sum().backward()
    assert x.grad is not None
    sizes = torch.tensor([CLUSTERS.count(c) for c in CLUSTERS])
    assert_close(x.grad, sign / sizes.unsqueeze(1))


def test_mean_over_each_packed_graph() -> None:
    x = features(2, 9, 4)
    packed = pack([path(2), path(3), path(4)])
    wanted = torch.stack([part.mean(1) for part in x.split([2, 3, 4], dim=1)], dim=1)
    assert_close(mean_over_graphs(x, packed), wanted)
    assert torch.autograd.gradcheck(lambda x: mean_over_graphs(x, packed), x.requires_grad_())


def test_mean_over_a_single_graph() -> None:
    x = features(5, 4)
    assert_close(mean_over_graphs(x, path(5)), x.mean(0, keepdim=True))


def test_graph_without_vertices_has_mean_0() -> None:
    x = features(3, 4)
    wanted = torch.stack([x[:2].mean(0), torch.zeros(4, dtype=torch.float64), x[2]])
    assert_close(mean_over_graphs(x, pack([path(2), path(0), path(1)])), wanted)
    assert torch.equal(mean_over_graphs(x[:0], path(0)), torch.zeros(1, 4, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_precision_is_kept(dtype: torch.dtype) -> None:
    x = features(7, 4, dtype=dtype)
    for y in (max_pool(x, PATTERN), mean_pool(x, PATTERN), mean_over_graphs(x, path(7))):
        assert y.dtype == dtype


@pytest.mark.parametrize("pool", [max_pool, mean_pool])
def test_another_number_of_vertices(pool: Pooling) -> None:
    with pytest.raises(ValueError, match="x: has 6 vertices, the clusters 7; pass those that belong to x"):
        pool(features(6, 4), PATTERN)


def test_another_number_of_vertices_than_the_graph() -> None:
    with pytest.raises(ValueError, match="x: has 6 vertices, the graph 7"):
        mean_over_graphs(features(6, 4), path(7))


@pytest.mark.compiled
@pytest.mark.parametrize("pool", [max_pool, mean_pool])
def test_compiled_equals_eager(pool: Pooling) -> None:
    torch._dynamo.reset()
    x = features(7, 4)
    assert torch.equal(torch.compile(pool, fullgraph=True, backend="aot_eager")(x, PATTERN), pool(x, PATTERN))


@pytest.mark.parametrize("pool", [max_pool, mean_pool])
def test_second_derivatives_and_transforms(pool: Pooling) -> None:
    x = features(2, 7, 3)

    def function(x: Tensor) -> Tensor:
        return pool(x, PATTERN).sigmoid()

    assert torch.autograd.gradgradcheck(function, x.clone().requires_grad_())
    total = lambda x: function(x).sum()  # noqa: E731
    expected = torch.autograd.functional.hessian(total, x)
    assert float(expected.abs().max()) > 1e-3
    assert_close(torch.func.hessian(total)(x), expected)
    assert_close(torch.autograd.functional.hessian(total, x, vectorize=True), expected)
    assert_close(torch.func.vmap(function)(x), function(x))
