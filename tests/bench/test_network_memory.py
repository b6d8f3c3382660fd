"""The estimate of a training step beside what the CUDA path allocates, for the networks that classify."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from geoskip.bench.model_memory import estimate_autoencoder_memory
from geoskip.bench.network_memory import Room, estimate_training_memory, room_of
from geoskip.bench.surfaces import sphere_graph
from geoskip.bench.training.sets import correspondence_set, graph_set, mesh_set
from geoskip.bench.training.workloads import TRAININGS, Run
from geoskip.bench.workloads import ONE_MATRIX
from geoskip.graphs import attach, cartesian
from geoskip.kernels import linear_cross_entropy
from geoskip.models import CorrespondenceNet, GraphClassifier
from geoskip.training.config import resolve
from geoskip.training.steps import Learner, PlainStep
from geoskip.training.tasks import make_task
from tests.bench.test_memory import _no_launches, allocated
from tests.bench.tiny import ALL_OPERATORS

__all__ = ["_no_launches"]
GRAPH_OPERATORS = [name for name in ALL_OPERATORS if name != "spiral"]


def sizes(operator: str, dim: int) -> tuple[Any, int]:
    """Kernel size and the number of weight matrices."""
    if operator in ONE_MATRIX:
        return None, 1
    return (3, 9 if dim == 2 else 27) if operator == "spline" else (9, 9)


@pytest.mark.usefixtures("_no_launches")
@pytest.mark.parametrize("classes", [40, 700])
@pytest.mark.parametrize("operator", ALL_OPERATORS)
def test_correspondence(operator: str, classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # On the CPU dropout keeps a number where CUDA keeps a byte.
    monkeypatch.setattr("geoskip.bench.network_memory.MASK", 4)
    graph, (kernel_size, slots) = sphere_graph(700, 9), sizes(operator, 3)
    model = CorrespondenceNet(classes, operator=operator, skip="affine", kernel_size=kernel_size)
    x, labels, shares = torch.randn(700, 3), torch.arange(700) % classes, torch.full((700,), 1 / 700)

    def step() -> tuple[torch.Tensor, ...]:
        features = model.features(x, graph)
        linear_cross_entropy(features, model.output.weight, model.output.bias, labels, shares).backward()
        model.zero_grad()
        return ()

    config = resolve("correspondence", operator=operator, skip="affine", kernel_size=kernel_size)
    room = Room(1, (700,), (graph.num_edges,))
    assert estimate_training_memory(config, room, classes, slots) == pytest.approx(allocated(step), rel=0.1)


@pytest.mark.usefixtures("_no_launches")
@pytest.mark.parametrize("features", [1, 40])
@pytest.mark.parametrize("operator", GRAPH_OPERATORS)
def test_classifier(operator: str, features: int) -> None:
    data, (kernel_size, slots) = graph_set(16, 75, 696), sizes(operator, 2)
    x = torch.randn(len(data.x), features)
    graphs = data.pooled()
    pairs = zip(graphs.levels, data.levels, strict=True)
    levels = tuple(attach(level, cartesian(level, where.pos, largest=1.0)) for level, where in pairs)
    graphs = replace(graphs, levels=levels)
    model = GraphClassifier(operator=operator, kernel_size=kernel_size, in_channels=features)

    def step() -> tuple[torch.Tensor, ...]:
        cross_entropy(model(x, graphs), data.labels).backward()
        model.zero_grad()
        return ()

    config = resolve("classification", operator=operator, kernel_size=kernel_size)
    room = Room(16, tuple(g.num_vertices for g in levels), tuple(g.num_edges for g in levels), features)
    assert estimate_training_memory(config, room, 10, slots) == pytest.approx(allocated(step), rel=0.1)


def test_autoencoder_is_that_of_its_own() -> None:
    config = resolve("reconstruction", operator="gcn", model={"channels": [8, 8], "latent": 4})
    levels = (100, 25, 7), (588, 138, 30)
    expected = estimate_autoencoder_memory("gcn", 5, *levels, channels=(8, 8), latent=4)
    assert estimate_training_memory(config, Room(5, *levels)) == expected


def test_lower_precision_takes_less() -> None:
    room = Room(1, (7000,), (42000,))
    full, half = (
        estimate_training_memory(resolve("correspondence", operator="gcn", precision=name), room, 10)
        for name in ("float32", "bf16")
    )
    assert half < 0.8 * full


def test_classes_are_asked_for() -> None:
    with pytest.raises(ValueError, match="classes: correspondence needs their number, got 0"):
        estimate_training_memory(resolve("correspondence"), Room(1, (10,), (20,)))


def test_room_is_that_of_the_batch() -> None:
    meshes = make_task(resolve("reconstruction", model={"channels": [4, 4]}, optim={"batch": 3}), mesh_set(80, 4))
    assert room_of(meshes) == Room(3, (80, 20, 5), (468, 108, 18))
    bodies = make_task(resolve("correspondence"), correspondence_set(40, 2))
    assert (room_of(bodies).items, room_of(bodies).edges) == (1, (228,))
    graphs = make_task(resolve("classification", optim={"batch": 64}), graph_set(5, 30, 60))
    room = room_of(graphs)
    assert (room.items, room.edges[0], len(room.vertices)) == (5, 600, 3)


@pytest.mark.gpu
@pytest.mark.parametrize("operator", ["monet", "feast", "cheb", "gcn"])
@pytest.mark.parametrize("name", sorted(TRAININGS))
def test_on_the_card(name: str, operator: str) -> None:
    """A plain step of the program, beside what torch has allocated at most; the batch is counted as it is."""
    config = Run(TRAININGS[name], operator, skip=True).config(compared=False)
    task = make_task(config, TRAININGS[name].make_data()).to("cuda")
    learner = Learner(task, task.make_model(), config)
    step, items = PlainStep(learner), torch.arange(config.optim.batch, device="cuda")
    for _ in range(2):
        step.run(items)
    learner.optimiser.zero_grad()
    before = torch.cuda.memory_allocated()
    batch = task.batch(items)
    taken = torch.cuda.memory_allocated() - before
    del batch
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step.run(items)
    torch.cuda.synchronize()
    found = torch.cuda.max_memory_allocated() - before
    classes = {"correspondence": 6890, "superpixels": 10}.get(name, 0)
    assert taken + estimate_training_memory(config, room_of(task), classes) == pytest.approx(found, rel=0.15)
