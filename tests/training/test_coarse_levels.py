"""The kernels that draw coarser levels, bitwise against the formula; in Triton's interpreter and on CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from geoskip.graphs import Graph, PooledGraphs, move, pack
from geoskip.kernels import use_path
from geoskip.kernels.paths import recorded_launches
from geoskip.training.packed_graphs import PackedLevel
from geoskip.training.random_coarsening import Coarsening, RandomCoarsener
from tests.training.test_drawn import AUTHORS

PATHS = [
    pytest.param("interpreter", "cpu", marks=pytest.mark.compiled),
    pytest.param("fast", "cuda", marks=pytest.mark.gpu),
]
# Sizes on both sides of a block's, single vertices, no vertices.
SETS = {"small": [9, 1, 0, 5, 2, 8, 3, 9, 1], "medium": [33, 32, 1, 31], "large": [65, 20, 64, 66]}


def random_graph(size: int, density: float, random: torch.Generator, directed: bool = False) -> Graph:
    """With self-loops, and with repeated edges."""
    count = int(density * size * size)
    ends = torch.randint(max(size, 1), (2, count), generator=random)
    return Graph.from_edge_index(ends if directed else torch.cat([ends, ends.flip(0)], 1), size)


def coarsener(
    graphs: Sequence[Graph], pos: Tensor, looped: bool = False, num_levels: int = 3, **coarsening: Any
) -> RandomCoarsener:
    (finest,) = PackedLevel.from_pooled(PooledGraphs.from_clusters([pack(graphs)], []), looped)
    # The random order follows from the number of a graph, not from its place.
    items = 5 + 3 * torch.arange(len(graphs))
    return RandomCoarsener(finest, pos, items, Coarsening(**AUTHORS | coarsening), num_levels, sigma=1.0, seed=4)


def random_set(name: str, directed: bool = False, dim: int = 2, **given: Any) -> RandomCoarsener:
    """Every third graph is without edges or sparse, so that it has several parts. Many vertices have the same position
    or distance, so that scores are equal."""
    random = torch.Generator().manual_seed(len(SETS[name]) + dim)
    densities = [(0.4, 0.15, 0.0, 0.02)[k % 4] for k in range(len(SETS[name]))]
    graphs = [random_graph(size, d, random, directed) for size, d in zip(SETS[name], densities, strict=True)]
    pos = torch.randint(0, 4, (sum(SETS[name]), dim), generator=random) / 3
    return coarsener(graphs, pos, **given)


def moved(one: RandomCoarsener, device: str) -> RandomCoarsener:
    return RandomCoarsener(
        move(one.finest, device),
        one.pos.to(device),
        one.items.to(device),
        one.coarsening,
        one.num_levels,
        one.sigma,
        one.seed,
    )


def drawn(levels: tuple[PackedLevel, ...], pos: tuple[Tensor, ...]) -> list[Any]:
    return tree_leaves((levels[0].members, levels[0].targets, levels[1:], pos[1:]))


def stored_draw(
    one: RandomCoarsener, path: str, device: str, epoch: int, measured: str | None
) -> tuple[tuple[PackedLevel, ...], tuple[Tensor, ...]]:
    """What a draw leaves in memory that held 77."""
    own = moved(one, device)
    levels = own.empty_levels(measured)
    pos = own.pos, *(torch.zeros_like(own.pos) for _ in levels[1:])
    for tensor in drawn(levels, pos):
        if isinstance(tensor, Tensor):
            # Offsets begin with 0.
            tensor[1 if tensor.dtype == torch.int64 else 0 :] = 77
    for level in levels[1:]:
        if level.looped is not None and level.looped.weights is not None:
            level.looped.weights.fill_(1)
    with use_path(path):
        own.fill(levels, pos, epoch, measured)
    return tree_map(lambda leaf: leaf.cpu() if isinstance(leaf, Tensor) else leaf, (levels, pos))


def check_draw(one: RandomCoarsener, path: str, device: str, epoch: int, measured: str | None) -> None:
    with use_path("reference"):
        expected = drawn(*one.packed(epoch, measured))
    found = drawn(*stored_draw(one, path, device, epoch, measured))
    assert sum(isinstance(tensor, Tensor) for tensor in expected) >= 11 * (one.num_levels - 1)
    for values, wanted in zip(found, expected, strict=True):
        assert isinstance(values, Tensor) == isinstance(wanted, Tensor)
        if isinstance(values, Tensor):
            assert values.is_floating_point() == wanted.is_floating_point()
            # Draws are stored in types that are wide enough for all of them.
            assert torch.equal(values[: len(wanted)].double(), wanted.double())
            # Nothing is written after the draw.
            assert bool(((values[len(wanted) :] == 77) | (values[len(wanted) :] == 1)).all())


@pytest.mark.parametrize("measured", [None, "position", "degree"])
@pytest.mark.parametrize("looped", [False, True], ids=["plain", "looped"])
@pytest.mark.parametrize("epoch", [0, 3])
@pytest.mark.parametrize(("path", "device"), PATHS)
def test_every_tensor_is_that_of_the_formula(
    path: str, device: str, epoch: int, looped: bool, measured: str | None
) -> None:
    check_draw(random_set("small", looped=looped), path, device, epoch, measured)


@pytest.mark.parametrize("name", ["medium", "large"])
@pytest.mark.parametrize("directed", [False, True], ids=["both-ways", "directed"])
@pytest.mark.parametrize(("path", "device"), PATHS)
def test_graphs_of_every_size(path: str, device: str, directed: bool, name: str) -> None:
    check_draw(random_set(name, directed, looped=True), path, device, 1, "position")


@pytest.mark.parametrize("num_levels", [1, 2, 5])
@pytest.mark.parametrize("dim", [0, 1, 3])
@pytest.mark.parametrize(("path", "device"), PATHS)
def test_dimensions_and_levels(path: str, device: str, dim: int, num_levels: int) -> None:
    one = random_set("small", dim=dim, num_levels=num_levels)
    check_draw(one, path, device, 0, "position")


@pytest.mark.parametrize(
    "coarsening", [{"drawn": "frozen"}, {"matchings": 2}, {"weight": "near"}], ids=lambda given: "-".join(given)
)
@pytest.mark.parametrize(("path", "device"), PATHS)
def test_every_recipe(path: str, device: str, coarsening: dict[str, Any]) -> None:
    """Those without kernels are drawn by the formula."""
    check_draw(random_set("small", looped=True, **coarsening), path, device, 2, "degree")


@pytest.mark.parametrize(("path", "device"), PATHS)
def test_positions_in_float64_are_kept(path: str, device: str) -> None:
    one = random_set("small")
    exact = RandomCoarsener(
        one.finest, one.pos.double(), one.items, one.coarsening, one.num_levels, one.sigma, one.seed
    )
    check_draw(exact, path, device, 0, "position")


@pytest.mark.compiled
def test_launches_of_a_draw() -> None:
    """Three kernels per level, each for two sizes of graphs."""
    one = random_set("large", looped=True)
    levels = one.empty_levels(None)
    pos = one.pos, *(torch.zeros_like(one.pos) for _ in levels[1:])
    with use_path("interpreter"), recorded_launches() as launches:
        one.fill(levels, pos, 0, None)
    assert len(launches) == 2 * 3 * 2


def superpixels(count: int, looped: bool) -> RandomCoarsener:
    """Random points on a grid, joined to those within a radius, with 18 neighbors on average, or to all others.

    Squares of distances are rounded: (7, 3) is as long as (3, 7), but would not be if one of the two squares was exact.
    """
    random = torch.Generator().manual_seed(0)
    pos = torch.randint(28, (count, 75, 2), generator=random).float()
    radius = torch.where(torch.arange(count) % 2 > 0, 8.8, 100)
    joined = torch.cdist(pos, pos) < radius[:, None, None]
    joined.diagonal(dim1=1, dim2=2).fill_(False)
    graphs = [Graph.from_edge_index(one.nonzero().t(), 75) for one in joined]
    return coarsener(graphs, 2477 * pos.flatten(0, 1), looped)


@pytest.mark.parametrize("looped", [False, True], ids=["plain", "looped"])
@pytest.mark.parametrize(
    ("path", "device", "count"),
    [
        pytest.param("interpreter", "cpu", 3, marks=pytest.mark.compiled),
        pytest.param("fast", "cuda", 500, marks=pytest.mark.gpu),
    ],
)
def test_scores_are_rounded_as_in_the_formula(path: str, device: str, count: int, looped: bool) -> None:
    """Scores that are equal stay equal; on a GPU, if a product and a sum were fused, they would not."""
    one = superpixels(count, looped)
    for epoch in range(3):
        check_draw(one, path, device, epoch, "position")


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature:UserWarning")
def test_the_host_does_not_wait() -> None:
    one = moved(superpixels(50, looped=True), "cuda")
    levels = one.empty_levels("position")
    pos = one.pos, *(torch.zeros_like(one.pos) for _ in levels[1:])
    one.fill(levels, pos, 0, "position")
    torch.cuda.set_sync_debug_mode("error")
    try:
        one.fill(levels, pos, 1, "position")
    finally:
        torch.cuda.set_sync_debug_mode("default")
