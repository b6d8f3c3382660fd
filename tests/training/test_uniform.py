"""Meshes of one connectivity: the same batches as those of graphs that may differ, out of one stored graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from geoskip.graphs import Graph
from geoskip.kernels import Pattern
from geoskip.training import graph_store
from geoskip.training.graph_store import GraphStore, UniformStore, store_graphs
from geoskip.training.learner import Learner
from geoskip.training.packed_graphs import PackedBatch
from geoskip.training.tasks.correspondence import Correspondence, connect
from tests.training import sets

CHOSEN: list[dict[str, Any]] = [
    {"operator": "monet"},
    {"operator": "monet", "pseudo": "degree"},
    {"operator": "spline"},
    {"operator": "feast"},
    {"operator": "gcn"},
    {"operator": "gin"},
    {"operator": "cheb"},
    {"operator": "spiral"},
]
ITEMS = torch.tensor([3, 0, 2])


def stores(**chosen: Any) -> tuple[GraphStore, GraphStore, Correspondence]:
    """Of one graph that all share, and of graphs that are alike without being the same."""
    task = Correspondence(sets.config("correspondence", **chosen), sets.correspondences())
    meshes = [task.data.meshes[item] for item in task.data.split.train.tolist()]
    pos = [torch.tensor(mesh.verts).float() for mesh in meshes]
    coordinates = task.store.coordinates
    looped = task.store.levels[0].looped is not None
    alike = [connect(meshes[0], task.config) for _ in meshes]
    apart = store_graphs(alike, pos, coordinates, looped=looped)
    return task.store, apart, task


def same(found: PackedBatch, expected: PackedBatch) -> None:
    assert torch.equal(found.x, expected.x)
    (one,), (other,) = found.graphs.levels, expected.graphs.levels
    same_pattern(one.pattern, other.pattern)
    for name in ("order", "pseudo", "spirals", "graph_offsets"):
        a, b = getattr(one, name), getattr(other, name)
        assert (a is None) == (b is None), name
        assert a is None or torch.equal(a, b), name
    (ours,), (theirs,) = found.verts, expected.verts
    for name in ("starts", "graphs", "rows", "real"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    each = torch.arange(1.0, 1 + len(found.items))
    assert torch.equal(ours.spread(each), theirs.spread(each))


def same_pattern(found: Pattern, expected: Pattern) -> None:
    for name in ("senders", "receivers", "offsets", "by_sender", "sender_offsets"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name


@pytest.mark.parametrize("stored", [2**28, 0], ids=["stored", "computed"])
@pytest.mark.parametrize("chosen", CHOSEN, ids=lambda chosen: "-".join(map(str, chosen.values())))
def test_batches_are_those_of_graphs_that_may_differ(
    chosen: dict[str, Any], stored: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_store, "MAX_STORED", stored)
    shared, apart, _ = stores(**chosen)
    assert isinstance(shared, UniformStore)
    assert not isinstance(apart, UniformStore)
    assert len(shared) == len(apart)
    for items in (ITEMS, ITEMS[:1], ITEMS.flip(0)):
        same(shared.batch(items), apart.batch(items))
    moved = shared.to("cpu", padded=True)
    assert isinstance(moved, UniformStore)
    assert not {"_templates", "_pseudo"} & vars(moved).keys(), "made for the other device"
    same(moved.batch(ITEMS), apart.batch(ITEMS))


@pytest.mark.parametrize("chosen", CHOSEN, ids=lambda chosen: "-".join(map(str, chosen.values())))
def test_training_is_the_same(chosen: dict[str, Any]) -> None:
    """What an operator remembers of one batch must not reach the next."""
    losses = []
    for place in range(2):
        *both, task = stores(**chosen)
        task.store = both[place]
        torch.manual_seed(0)
        learner = Learner(task, task.make_model(), task.config)
        found = []
        for items in (ITEMS, torch.tensor([1, 2, 3]), ITEMS):
            learner.update(items)
            found.append(float(learner.last_loss))
        losses.append(found)
    assert losses[0] == losses[1]


@pytest.mark.parametrize("chosen", [{"operator": "monet"}, {"operator": "gcn"}], ids=lambda chosen: chosen["operator"])
def test_what_inference_made_serves_training(chosen: dict[str, Any]) -> None:
    shared, _, task = stores(**chosen)
    with torch.inference_mode():
        shared.batch(ITEMS)
    model = task.make_model()
    task.loss(model, task.batch(ITEMS)).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_shapes_are_exact() -> None:
    task = Correspondence(sets.config("correspondence", operator="feast"), sets.correspondences())
    graph: Graph = connect(task.data.meshes[0], task.config)
    (shape,) = task.store.batch_shapes(3)
    assert (shape.verts, shape.edges) == (3 * graph.num_vertices, 3 * graph.num_edges)
    assert shape.looped == 3 * (graph.num_edges + graph.num_vertices)


def test_mixed_meshes_are_stored_one_by_one() -> None:
    task = Correspondence(sets.config("correspondence"), sets.correspondences(mixed=True))
    assert not isinstance(task.store, UniformStore)
