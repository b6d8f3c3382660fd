"""Pooling on every path, against a loop over the clusters in float64: clusters without members and with many, vertices
in several clusters and in none, equal maxima, NaN and padding."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.testing import assert_close

from geoskip.kernels import Pattern, functional, sort_edges, use_path
from geoskip.kernels.packing import packed_clusters
from geoskip.kernels.paths import recorded_launches
from tests.kernels.paths import EVERYWHERE, Where, drawn, moved

pytestmark = pytest.mark.usefixtures("poisoned")

Pooling = Callable[[Tensor, Pattern], Tensor]
POOLINGS = [pytest.param(functional.max_pool, id="max"), pytest.param(functional.mean_pool, id="mean")]
WHERES = [*EVERYWHERE, pytest.param(Where("reference"), id="reference")]
ON_TRITON = [
    pytest.param(Where("interpreter"), id="interpreter", marks=pytest.mark.compiled),
    pytest.param(Where("fast", "cuda"), id="cuda", marks=pytest.mark.gpu),
]
# Vertices, batch, channels: one of each, odd numbers, more of them than in a block.
SHAPES = [(1, (), 1), (9, (2,), 3), (21, (2, 3), 5), (71, (), 33), (40, (), 130), (600, (), 1), (5, (0,), 3)]
# Of 11 clusters: no members, one, more than are read at a time, and many.
CLUSTERS = [0, 3, 1, 5, 4, 0, 8, 2, 70, 1, 0]
# Of 6 graphs; the last vertices are in none.
GRAPHS = [3, 0, 1, 40, 16, 0]


def clusters(num_vertices: int) -> Pattern:
    """Members drawn at random: a vertex may be in several clusters, in one twice, or in none."""
    receivers = torch.arange(len(CLUSTERS)).repeat_interleave(torch.tensor(CLUSTERS))
    senders = torch.randint(num_vertices, receivers.shape, generator=torch.Generator().manual_seed(num_vertices))
    return sort_edges(senders, receivers, num_vertices, len(CLUSTERS))[0]


def pooled_by_hand(x: Tensor, members: list[list[int]], is_max: bool) -> Tensor:
    """Equal maxima share the gradient of ``amax``."""
    rows = []
    for cluster in members:
        if not cluster:
            rows.append(x.new_full((*x.shape[:-2], x.shape[-1]), -torch.inf if is_max else 0.0))
        else:
            own = torch.stack([x[..., member, :] for member in cluster], dim=-2)
            rows.append(own.amax(-2) if is_max else own.sum(-2) / len(cluster))
    return torch.stack(rows, dim=-2)


def members_of(pattern: Pattern) -> list[list[int]]:
    return [pattern.senders[a:b].tolist() for a, b in pairwise(pattern.offsets[0].tolist())]


def value_and_gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    y = function(x)
    # Zeros where there is no vertex to depend on.
    if not y.requires_grad:
        return y, torch.zeros_like(x)
    (grad,) = torch.autograd.grad(y, x, drawn(*y.shape, seed=99).to(y))
    return y.detach(), grad


def same(function: Callable[[Tensor], Tensor], by_hand: Callable[[Tensor], Tensor], x: Tensor, where: Where) -> None:
    expected = value_and_gradient(by_hand, x)
    with use_path(where.path):
        found, again = (value_and_gradient(function, x.to(where.device, where.dtype)) for _ in range(2))
    for one, repeated, other in zip(found, again, expected, strict=True):
        assert torch.equal(one, repeated)
        assert_close(one.cpu().double(), other, rtol=where.tolerance, atol=where.tolerance)


def rounded(*shape: int) -> Tensor:
    """Numbers of which many are equal."""
    return (2 * drawn(*shape, seed=1)).round() / 2


@pytest.mark.parametrize("pool", POOLINGS)
@pytest.mark.parametrize(("num_vertices", "batch", "channels"), SHAPES)
@pytest.mark.parametrize("where", WHERES)
def test_clusters(where: Where, num_vertices: int, batch: tuple[int, ...], channels: int, pool: Pooling) -> None:
    pattern = clusters(num_vertices)
    given, members = moved(pattern, where.device), members_of(pattern)

    def by_hand(x: Tensor) -> Tensor:
        return pooled_by_hand(x, members, pool is functional.max_pool)

    same(lambda x: pool(x, given), by_hand, rounded(*batch, num_vertices, channels), where)


@pytest.mark.parametrize(("batch", "channels"), [((), 1), ((2, 3), 5), ((), 33), ((), 130), ((), 64), ((0,), 3)])
@pytest.mark.parametrize("spare", [0, 30])
@pytest.mark.parametrize("where", WHERES)
def test_segments(where: Where, spare: int, batch: tuple[int, ...], channels: int) -> None:
    offsets = torch.tensor([0, *GRAPHS]).cumsum(0)
    members = [[*range(a, b)] for a, b in pairwise(offsets.tolist())]
    given, x = offsets.to(where.device), drawn(*batch, sum(GRAPHS) + spare, channels, seed=1)
    same(lambda x: functional.segment_mean(x, given), lambda x: pooled_by_hand(x, members, False), x, where)


@pytest.mark.parametrize("where", WHERES)
def test_one_large_segment(where: Where) -> None:
    """Several programs write its gradient."""
    offsets = torch.tensor([0, 900], device=where.device)
    x = drawn(1000, 3, seed=1)
    same(lambda x: functional.segment_mean(x, offsets), lambda x: x[:900].mean(0, keepdim=True), x, where)


@pytest.mark.parametrize("where", WHERES)
def test_a_segment_of_more_blocks_than_a_grid_has_programs(where: Where, monkeypatch: pytest.MonkeyPatch) -> None:
    if where.path == "interpreter" or where.device == "cuda":
        monkeypatch.setattr("geoskip.kernels.triton.segments.MAX_PROGRAMS", 2)
    offsets = torch.tensor([0, 20], device=where.device)
    x = drawn(23, 128, seed=1)
    same(lambda x: functional.segment_mean(x, offsets), lambda x: x[:20].mean(0, keepdim=True), x, where)


@pytest.mark.compiled
def test_grids_are_not_larger_than_a_device_allows() -> None:
    with use_path("interpreter"), recorded_grids() as grids:
        x = torch.empty(600_000, 128, requires_grad=True)
        functional.segment_mean(x, torch.tensor([0, len(x)])).backward(torch.empty(1, 128))
    assert len(grids) == 2
    assert all(size < 2**16 for grid in grids for size in grid[1:])


@contextmanager
def recorded_grids() -> Iterator[list[tuple[int, ...]]]:
    """Those of launches, which do not run."""
    segments, grids = importlib.import_module("geoskip.kernels.triton.segments"), list[tuple[int, ...]]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "launch", lambda kernel, grid, *rest: grids.append(grid))
        yield grids


@pytest.mark.parametrize("where", WHERES)
def test_no_clusters_and_no_vertices(where: Where) -> None:
    none = moved(sort_edges(torch.empty(0).long(), torch.empty(0).long(), 4, 0)[0], where.device)
    empty = moved(sort_edges(torch.empty(0).long(), torch.empty(0).long(), 0, 3)[0], where.device)
    for pool, value in ((functional.max_pool, -torch.inf), (functional.mean_pool, 0.0)):
        same(partial(pool, pattern=none), lambda x: x[:0], drawn(4, 2, seed=1), where)
        with use_path(where.path):
            y = pool(torch.empty(0, 2, device=where.device, dtype=where.dtype), empty)
        assert y.tolist() == [[value] * 2] * 3


@pytest.mark.parametrize("where", EVERYWHERE)
def test_nan_is_the_maximum_and_gets_the_gradient(where: Where) -> None:
    nan, inf = torch.nan, torch.inf
    columns = [[1, nan, 3, 3, 2, 3], [nan, 1, nan, 2, 2, nan], [-inf] * 6, [1, 2, 2, -inf, -inf, nan]]
    x = torch.tensor(columns, device=where.device, dtype=where.dtype).t().requires_grad_()
    receivers = torch.zeros(6, dtype=torch.long)
    pattern = moved(sort_edges(torch.arange(6), receivers, 6, 1)[0], where.device)
    with use_path(where.path):
        y = functional.max_pool(x, pattern)
        (grad,) = torch.autograd.grad(y.sum(), x)
    assert_close(y.tolist()[0], [nan, nan, -inf, nan], equal_nan=True)
    third, sixth = 1 / 3, 1 / 6
    expected = [[0, 1, 0, 0, 0, 0], [third, 0, third, 0, 0, third], [sixth] * 6, [0, 0, 0, 0, 0, 1]]
    assert_close(grad.t().cpu(), torch.tensor(expected, dtype=where.dtype))


@pytest.mark.parametrize("where", EVERYWHERE)
def test_nan_stays_in_its_cluster(where: Where) -> None:
    x = drawn(6, 3, seed=1).to(where.device, where.dtype)
    x[2, 1] = torch.nan
    pattern = moved(sort_edges(torch.arange(6), torch.tensor([0, 0, 1, 1, 2, 2]), 6, 3)[0], where.device)
    expected = [[False] * 3, [False, True, False], [False] * 3]
    with use_path(where.path):
        for y in (
            functional.max_pool(x, pattern),
            functional.mean_pool(x, pattern),
            functional.segment_mean(x, pattern.offsets[0]),
        ):
            assert y.isnan().tolist() == expected


@pytest.mark.parametrize("pool", POOLINGS)
@pytest.mark.parametrize("where", WHERES)
def test_padding_neither_reaches_a_cluster_nor_has_a_gradient(where: Where, pool: Pooling) -> None:
    """Graphs of 3 and 5 vertices with 2 clusters each, in 12 and 9 places."""
    targets = [[1, 0, 1], [0, 1, 0, 1, 1]]
    patterns = [sort_edges(torch.arange(len(t)), torch.tensor(t), len(t), 2)[0] for t in targets]
    members, receivers = (torch.cat([getattr(p, name) for p in patterns]) for name in ("senders", "receivers"))
    first = torch.cat([p.offsets[0, :-1] for p in patterns])
    offsets = torch.tensor([0, 3, 8]), torch.tensor([0, 2, 4])
    items, fine, coarse, *tables = (
        tensor.to(where.device) for tensor in (torch.tensor([0, 1]), *offsets, members, receivers, first)
    )
    with use_path(where.path):
        packed = packed_clusters(items, fine, coarse, tables[0], tables[1], tables[2], 12, 9, True)
    of_vertices = [[1], [0, 2], [3, 5], [4, 6, 7]]
    x = drawn(12, 3, seed=1)
    # The gradient of the reference, like that of torch's own maxima, spreads NaN.
    x[8:] = 1e6 if where.path == "reference" else torch.nan

    def by_hand(x: Tensor) -> Tensor:
        return pooled_by_hand(x, of_vertices, pool is functional.max_pool)

    same(lambda x: pool(x, packed)[:4], by_hand, x, where)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("where", ON_TRITON)
def test_lower_precision_is_summed_in_float32(where: Where, dtype: torch.dtype) -> None:
    pattern = clusters(71)
    offsets, x = pattern.offsets[0], drawn(71, 5, seed=1).to(where.device, dtype)
    given = moved(pattern, where.device)
    calls: list[Callable[[Tensor], Tensor]] = [
        lambda x: functional.max_pool(x, given),
        lambda x: functional.mean_pool(x, given),
        lambda x: functional.segment_mean(x, offsets[-3:].to(x.device) - offsets[-3]),
    ]
    for call in calls:
        with use_path(where.path):
            y = call(x.requires_grad_())
            grad_y = drawn(*y.shape, seed=2).to(y)
            (grad_x,) = torch.autograd.grad(y, x, grad_y)
            precise = x.detach().float().requires_grad_()
            expected = call(precise)
            (expected_grad,) = torch.autograd.grad(expected, precise, grad_y.float())
        # Triton's interpreter does not round to bfloat16: it cuts off.
        error = 2**-7 if dtype == torch.bfloat16 else 2**-10
        assert_close(y, expected.to(dtype), rtol=error, atol=0)
        assert_close(grad_x, expected_grad.to(dtype), rtol=error, atol=0)


@pytest.mark.compiled
def test_one_launch_each_way() -> None:
    pattern, offsets = clusters(71), torch.tensor([0, 30, 60])
    x = drawn(71, 5, seed=1).float().requires_grad_()
    calls: list[tuple[Callable[[Tensor], Tensor], str]] = [
        (lambda x: functional.max_pool(x, pattern), "_pool_gradients_kernel"),
        (lambda x: functional.mean_pool(x, pattern), "_pool_gradients_kernel"),
        (lambda x: functional.segment_mean(x, offsets), "_segment_gradients_kernel"),
    ]
    for call, gradients in calls:
        with use_path("interpreter"), recorded_launches() as launches:
            y = call(x)
            torch.autograd.grad(y, x, torch.ones_like(y))
        assert [kernel.__name__ for kernel, *_ in launches] == ["_pool_kernel", gradients]


@pytest.mark.compiled
def test_no_other_operation_of_torch_that_computes() -> None:
    """Only memory is allocated; ``recorded_launches`` fills it with zeros."""
    pattern, offsets = clusters(71), torch.tensor([0, 30, 60])
    x = drawn(71, 5, seed=1).float().requires_grad_()
    grad_y = [torch.ones(pattern.num_receivers, 5)] * 2 + [torch.ones(2, 5)]
    with (
        use_path("interpreter"),
        recorded_launches(),
        profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler,
    ):
        ys = functional.max_pool(x, pattern), functional.mean_pool(x, pattern), functional.segment_mean(x, offsets)
        for y, grad in zip(ys, grad_y, strict=True):
            torch.autograd.grad(y, x, grad)
    names = {event.key for event in profiler.key_averages() if event.key.startswith("aten::")}
    allocations = {"empty", "empty_like", "new_empty", "empty_strided"}
    assert names <= {f"aten::{name}" for name in (*allocations, "zero_", "fill_", "detach", "view", "reshape")}


def test_no_gradient_of_a_tensor_that_needs_none() -> None:
    x = drawn(71, 5, seed=1)
    assert not functional.max_pool(x, clusters(71)).requires_grad
