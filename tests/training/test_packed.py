"""Batches of stored graphs equal those that are packed anew, and padding changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from geoskip.graphs import Graph, PooledGraphs, attach, cartesian, target_degree, with_self_loops
from geoskip.kernels import Pattern
from geoskip.training.graph_store import GraphStore
from geoskip.training.packed_graphs import LOOPS, PackedBatch
from geoskip.training.tasks.classification import Classification
from geoskip.training.tasks.correspondence import Correspondence, mesh_graph
from tests.training import sets

OPERATORS: list[dict[str, Any]] = [
    {"operator": "monet"},
    {"operator": "monet", "pseudo": "degree", "skip": "affine"},
    {"operator": "feast"},
    {"operator": "feast", "options": {"self_loops": False}, "skip": "residual"},
    {"operator": "gcn", "skip": "affine"},
    {"operator": "gin"},
    {"operator": "cheb"},
    {"operator": "spline"},
]
ITEMS = torch.tensor([3, 7, 1, 2])


def scores(model: nn.Module, packed: PackedBatch) -> Tensor:
    return model(packed.x, packed.graphs)


def task(padded: bool, **chosen: Any) -> Classification:
    made = Classification(sets.config("classification", **chosen), sets.graphs())
    made._stores["train"] = replace(made.store, padded=padded)
    return made


def same_pattern(found: Pattern, expected: Pattern) -> None:
    for name in ("senders", "receivers", "offsets", "by_sender", "sender_offsets"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), msg=name)


@pytest.mark.parametrize("pseudo", ["position", "degree"])
def test_a_batch_equals_graphs_packed_anew(pseudo: str) -> None:
    made = task(padded=False, pseudo=pseudo)
    found = made.store.batch(ITEMS)
    some = made.data.select(made.data.split.train[ITEMS])
    expected = some.pooled()
    torch.testing.assert_close(found.x, some.x)
    for depth, (graph, wanted) in enumerate(zip(found.graphs.levels, expected.levels, strict=True)):
        same_pattern(graph.pattern, wanted.pattern)
        scale = made.largest[depth]
        made_anew = (
            cartesian(wanted, some.levels[depth].pos, scale) if pseudo == "position" else target_degree(wanted, scale)
        )
        assert graph.pseudo is not None
        torch.testing.assert_close(graph.pseudo, made_anew)
        assert wanted.graph_offsets is not None
        torch.testing.assert_close(graph.graph_offsets, wanted.graph_offsets)
    for pattern, clusters in zip(found.graphs.clusters, expected.clusters, strict=True):
        torch.testing.assert_close(pattern.senders, clusters.senders)
        torch.testing.assert_close(pattern.receivers, clusters.receivers)
        torch.testing.assert_close(pattern.offsets, clusters.offsets)


def test_stored_self_loops_equal_those_made_anew() -> None:
    made = task(padded=False, operator="gcn")
    found = made.store.batch(ITEMS).graphs.levels[0]
    expected = made.data.select(made.data.split.train[ITEMS]).levels[0].graph()
    for dtype in (torch.float32, torch.float64):
        ready, anew = with_self_loops(found, dtype), with_self_loops(expected, dtype)
        same_pattern(ready.pattern, anew.pattern)
        torch.testing.assert_close(ready.weights, anew.weights)


def test_padding_is_of_fixed_size_whatever_the_items() -> None:
    store = task(padded=True, operator="gcn").store
    shapes = {
        tuple(
            (level.num_vertices, level.num_edges, with_self_loops(level, torch.float32).weights.shape[0])
            for level in store.batch(torch.randperm(10)[:4]).graphs.levels
        )
        for _ in range(20)
    }
    assert len(shapes) == 1


def test_a_padded_pattern_is_a_pattern_of_its_own() -> None:
    """Padding edges are loops at padding vertices, a few at each, in both orders, and every edge is counted once."""
    batch = task(padded=True).store.batch(ITEMS)
    for graph, verts in zip(batch.graphs.levels, batch.verts, strict=True):
        pattern, real = graph.pattern, int(verts.count)
        anew = Graph.from_edge_index(graph.edge_index, graph.num_vertices)
        same_pattern(pattern, anew.pattern)
        padding = pattern.receivers >= real
        assert bool((pattern.senders[padding] == pattern.receivers[padding]).all())
        assert int(graph.degrees[real:].max()) <= LOOPS
        assert bool((pattern.senders[~padding] < real).all())


def test_every_cluster_of_padding_has_a_member() -> None:
    batch = task(padded=True).store.batch(ITEMS)
    assert any(int(verts.count) < verts.capacity for verts in batch.verts[1:])
    for pattern in batch.graphs.clusters:
        assert int(pattern.counts.min()) >= 1


def step(made: Classification, model: nn.Module, items: Tensor) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
    model.zero_grad()
    loss = made.loss(model, made.batch(items))
    loss.backward()
    grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return loss.detach(), grads, {name: buffer.clone() for name, buffer in model.named_buffers()}


@pytest.mark.parametrize("chosen", OPERATORS, ids=lambda chosen: "-".join(map(str, chosen.values())))
def test_padding_changes_neither_loss_nor_gradients(chosen: dict[str, Any]) -> None:
    # Behind GIN's ReLU vertices have equal features, and rounding decides which of them is the largest.
    pooling = "mean" if chosen["operator"] in ("gin", "gcn") else "max"
    chosen = {**chosen, "model": {"pooling": pooling, "dropout": 0.0}}
    exact, padded = task(padded=False, **chosen), task(padded=True, **chosen)
    for items in (ITEMS, torch.tensor([0, 5]), torch.arange(10)):
        results = [step(made, made.make_model().double(), items) for made in (in_double(exact), in_double(padded))]
        torch.testing.assert_close(results[1][0], results[0][0])
        assert results[0][1].keys() == results[1][1].keys()
        assert any(bool(grad.any()) for grad in results[0][1].values())
        for found, expected in zip(results[1][1:], results[0][1:], strict=True):
            for name, tensor in expected.items():
                torch.testing.assert_close(found[name], tensor, msg=name)


def in_double(made: Classification) -> Classification:
    store = made.store
    made._stores["train"] = replace(
        store,
        x=store.x.double(),
        pos=tuple(p.double() for p in store.pos),
        scales=tuple(None if s is None else s.double() for s in store.scales),
    )
    return made


def test_normalisation_that_saw_padding_would_differ() -> None:
    """So that the equality above has something to find."""
    chosen: dict[str, Any] = {"operator": "gin", "model": {"dropout": 0.0}}
    exact, padded = task(padded=False, **chosen), task(padded=True, **chosen)
    model = exact.make_model()
    batch = padded.store.batch(ITEMS)
    unmasked = replace(batch, graphs=replace(batch.graphs, real=None))
    expected = scores(model, exact.store.batch(ITEMS))
    assert not torch.allclose(scores(model, unmasked), expected)
    torch.testing.assert_close(scores(model, batch), expected)


@pytest.mark.parametrize("operator", ["monet", "gcn", "spiral"])
def test_meshes_that_differ_are_padded_too(operator: str) -> None:
    chosen = sets.config("correspondence", operator=operator, model={"dropout": 0.0})
    made = Correspondence(chosen, sets.correspondences(mixed=True))
    losses, grads = [], []
    for padded in (False, True):
        made.store = replace(made.store, padded=padded, _shapes={})
        model = made.make_model()
        loss = made.loss(model, made.batch(torch.tensor([1, 0])))
        loss.backward()
        losses.append(loss.detach())
        grads.append([p.grad for p in model.parameters()])
    torch.testing.assert_close(losses[0], losses[1])
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-4, atol=1e-6)


def test_the_loss_of_meshes_is_the_mean_of_their_losses() -> None:
    made = Correspondence(sets.config("correspondence", model={"dropout": 0.0}), sets.correspondences(mixed=True))
    model = made.make_model()
    together = made.loss(model, made.batch(torch.tensor([0, 1, 2])))
    alone = [made.loss(model, made.batch(torch.tensor([item]))) for item in range(3)]
    torch.testing.assert_close(together, torch.stack(alone).mean())


def test_a_stored_mesh_is_the_graph_of_the_mesh() -> None:
    made = Correspondence(sets.config("correspondence"), sets.correspondences(mixed=True))
    stored = made.store.batch(torch.tensor([1])).graphs.levels[0]
    alone = mesh_graph(made.data.meshes[1], made.config)
    same_pattern(stored.pattern, alone.pattern)
    verts = torch.tensor(made.data.meshes[1].verts).float()
    expected = attach(alone, cartesian(alone, verts)).pseudo
    torch.testing.assert_close(alone.pseudo, expected)
    torch.testing.assert_close(stored.pseudo, expected)


def test_a_store_moves_as_a_whole() -> None:
    made = task(padded=False, operator="gcn")
    moved: GraphStore = made.store.to("cpu", padded=True)
    assert moved.padded
    assert len(moved) == len(made.store)
    assert isinstance(moved.batch(ITEMS).graphs, PooledGraphs)
