"""Networks built from PyTorch Geometric's layers train as ours do: same weights, same batches, same losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from benchmarks.training.loaders import batches, correspondence_data, graph_data, mesh_data
from benchmarks.training.networks import PRODUCTS, PeerAutoencoder, PeerClassifier, PeerCorrespondence
from benchmarks.training.peer_layers import EDGES, PeerLayer
from benchmarks.training.sets import correspondence_set, graph_set, mesh_set
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, l1_loss

from geoskip.blocks import make_block
from geoskip.graphs import Graph, Hierarchy, PooledGraphs, attach, cartesian
from geoskip.meshes import mesh_hierarchy
from geoskip.models import CorrespondenceNet, GraphClassifier, MeshAutoencoder
from geoskip.operators import make_operator

CPU = torch.device("cpu")
STEPS = 20
SIZES = {"monet": 3, "feast": 3, "cheb": 3, "gcn": None, "gin": None}
# Each operator with each skip, and with each way to write the edges.
WAYS = [(operator, *way) for operator in SIZES for way in (("none", EDGES[1]), ("affine", EDGES[0]))]
FOURS = [[0, 1, 2, 3], [4, 5, 6, 7], [1, 3, 5, 7]]
ONES = [[0], [1], [2]]


def losses(model: nn.Module, loss: Callable[[Any], Tensor], given: Callable[[int], Any]) -> list[float]:
    """Of 20 steps; ``given`` is the batch of a step."""
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    found = []
    for step in range(STEPS):
        optimiser.zero_grad()
        value = loss(given(step))
        value.backward()
        optimiser.step()
        found.append(value.item())
    return found


def compare(
    ours: nn.Module, peer: Any, loss: Callable[[list[int]], Tensor], dataset: Sequence[Any], order: list[list[int]]
) -> None:
    assert sum(p.numel() for p in peer.parameters()) == sum(p.numel() for p in ours.parameters())
    loaded = batches(dataset, order, CPU)
    theirs = losses(peer, peer.loss, lambda step: next(loaded))
    found = losses(ours, loss, lambda step: order[step % len(order)])
    assert found == pytest.approx(theirs, rel=5e-4)
    assert found[-1] != pytest.approx(found[0], rel=5e-3)


@cache
def shapes() -> tuple[Hierarchy, Tensor]:
    data = mesh_set(80, 8)
    return Hierarchy.from_meshes(mesh_hierarchy(data.template, factors=(4, 4))), data.verts(torch.arange(8))


def autoencoder(operator: str, skip: str) -> MeshAutoencoder:
    torch.manual_seed(0)
    return MeshAutoencoder(
        shapes()[0], operator=operator, skip=skip, kernel_size=SIZES[operator], channels=(4, 6), latent=3
    )


def compare_autoencoders(operator: str, skip: str, *how: str) -> None:
    x, ours = shapes()[1], autoencoder(operator, skip)
    compare(ours, PeerAutoencoder(ours, 4, *how), lambda i: l1_loss(ours(x[i]), x[i]), list(map(mesh_data, x)), FOURS)


@pytest.mark.parametrize(("operator", "skip", "edges"), WAYS)
def test_autoencoder(operator: str, skip: str, edges: str) -> None:
    compare_autoencoders(operator, skip, PRODUCTS[0], edges)


@pytest.mark.parametrize("product", PRODUCTS[1:])
def test_every_product_with_the_matrices(product: str) -> None:
    compare_autoencoders("monet", "none", product)


@pytest.mark.parametrize(("operator", "skip", "edges"), WAYS)
def test_correspondence(operator: str, skip: str, edges: str) -> None:
    data = correspondence_set(40, 3)
    x = [torch.tensor(mesh.verts).float() for mesh in data.meshes]
    graph = Graph.from_faces(torch.tensor(data.target.faces), 40)
    graphs = [attach(graph, cartesian(graph, verts)) for verts in x]
    torch.manual_seed(0)
    small: dict[str, Any] = {"lift": 4, "channels": (4, 6), "head": 8, "dropout": 0.0}
    ours = CorrespondenceNet(40, operator=operator, skip=skip, kernel_size=SIZES[operator], **small)
    dataset = [correspondence_data(x[i], graphs[i], data.labels[i], operator, edges) for i in range(3)]

    def loss(items: list[int]) -> Tensor:
        return cross_entropy(ours(x[items[0]], graphs[items[0]]), data.labels[items[0]])

    compare(ours, PeerCorrespondence(ours), loss, dataset, ONES)


@cache
def pooled(*items: int) -> tuple[Tensor, PooledGraphs, Tensor]:
    chosen = graphs_of_points().select(torch.tensor(items))
    graphs = chosen.pooled()
    pairs = zip(graphs.levels, chosen.levels, strict=True)
    levels = tuple(attach(level, cartesian(level, where.pos, largest=1.0)) for level, where in pairs)
    return chosen.x, replace(graphs, levels=levels), chosen.labels


@cache
def graphs_of_points() -> Any:
    return graph_set(8, 40, 90, classes=4)


@pytest.mark.parametrize(("operator", "skip", "edges"), WAYS)
def test_classifier(operator: str, skip: str, edges: str) -> None:
    torch.manual_seed(0)
    # GCN and GIN give the same to vertices with the same neighbours: rounding would choose the largest of them.
    pooling = "mean" if operator in ("gcn", "gin") else "max"
    small: dict[str, Any] = {"channels": (4, 6, 6), "head": 8, "num_classes": 4, "dropout": 0.0, "pooling": pooling}
    ours = GraphClassifier(operator=operator, skip=skip, kernel_size=SIZES[operator], **small)
    dataset = [graph_data(*pooled(i), operator, edges) for i in range(8)]

    def loss(items: list[int]) -> Tensor:
        x, graphs, labels = pooled(*items)
        return cross_entropy(ours(x, graphs), labels)

    compare(ours, PeerClassifier(ours), loss, dataset, FOURS)


def test_batches_of_levels_are_those_of_ours() -> None:
    loaded = next(batches([graph_data(*pooled(i), "monet") for i in range(8)], FOURS, CPU))
    x, graphs, labels = pooled(*FOURS[0])
    assert torch.equal(loaded.x, x)
    assert torch.equal(loaded.y, labels)
    for k, level in enumerate(graphs.levels):
        assert level.pseudo is not None
        assert torch.equal(loaded[f"edge_index{k}"], level.edge_index)
        assert torch.equal(loaded[f"values{k}"], level.pseudo)
    members = graphs.clusters[0]
    assert torch.equal(loaded.cluster1[members.senders], members.receivers)
    assert graphs.levels[2].graph_offsets is not None
    assert loaded.rows2_batch.bincount().tolist() == graphs.levels[2].graph_offsets.diff().tolist()


def test_operators_without_a_peer_are_refused() -> None:
    with pytest.raises(ValueError, match="operator: PyTorch Geometric alone has no spiral; choose from monet"):
        PeerLayer(make_operator("spiral", 3, 4, kernel_size=5))


def test_other_skips_are_refused() -> None:
    conv = make_operator("gcn", 3, 4)
    with pytest.raises(ValueError, match="skip: the peer has none or the affine one, got a ResidualSkip"):
        PeerLayer(make_block(conv, skip="residual"))


def test_levelled_data_is_found_by_name() -> None:
    """So that the loader's processes can send it."""
    from benchmarks.training import loaders

    made = type(graph_data(*pooled(0), "gcn"))
    assert (made.__module__, made.__qualname__) == (loaders.__name__, "LevelledData")
    assert loaders.LevelledData is made
    assert not hasattr(loaders, "OtherData")
