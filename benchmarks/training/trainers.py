"""Who trains: ours through the steps of geoskip's own loop, and the peer as one writes it with PyTorch Geometric."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from benchmarks.training.loaders import ON_DEVICE, Loading, batches, correspondence_data, graph_data, mesh_data
from benchmarks.training.networks import PRODUCTS, PeerAutoencoder, PeerClassifier, PeerCorrespondence
from benchmarks.training.peer_layers import EDGES
from geoskip.models import CorrespondenceNet, GraphClassifier, MeshAutoencoder
from geoskip.training.compiling import start_device
from geoskip.training.cuda_graphs import CapturedStep
from geoskip.training.learner import Learner
from geoskip.training.session import make_step
from geoskip.training.tasks import Task

WORKERS = 4


@dataclass(frozen=True)
class Trainer:
    """``step`` gets the next batch, goes forward and back, and moves the weights; its result is the loss.

    ``path`` and ``call`` are as of :class:`~benchmarks.cases.Contender`.
    """

    path: str
    call: str
    step: Callable[[], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Way:
    """How a user of PyTorch Geometric writes it: edges, products with the hierarchy's matrices, loader."""

    edges: str = EDGES[0]
    product: str = PRODUCTS[0]
    loading: Loading = ON_DEVICE

    def text(self, task: str) -> str:
        pooling = f", pooling by {self.product}" if task == "reconstruction" else ""
        return f"conv(x, {self.edges}, …){pooling}, {self.loading.text}"


def ways(task: str, device: torch.device) -> Iterator[tuple[str, list[Any]]]:
    """What can be chosen, one after the other: the field of :class:`Way`, and its values."""
    yield "edges", list(EDGES)
    if task == "reconstruction":
        yield "product", list(PRODUCTS)
    if device.type == "cuda":
        # On the CPU processes that load would only take cores from the step.
        yield "loading", [ON_DEVICE, Loading(WORKERS)]


def order(num_items: int, batch: int, seed: int = 0) -> list[list[int]]:
    """Whole batches of shuffled items: an epoch without what is left over."""
    shuffled = torch.randperm(num_items, generator=torch.Generator().manual_seed(seed))
    return [part.tolist() for part in shuffled.split(batch) if len(part) == batch]


def ours(task: Task, device: torch.device) -> Trainer:
    """As geoskip trains: captured on CUDA, plain elsewhere; ``task`` is on the CPU."""
    start_device(device)
    task = task.to(device)
    learner = Learner(task, task.make_model(), task.config)
    step = make_step(learner)
    turn = cycle([torch.tensor(items, device=device) for items in order(task.num_items, task.config.optim.batch_size)])

    def stepped() -> tuple[Tensor, ...]:
        step(next(turn))
        return (learner.last_loss,)

    if isinstance(step, CapturedStep):
        return Trainer("captured", "geoskip.training's step, captured and replayed", stepped)
    return Trainer("geoskip", "geoskip.training's plain step", stepped)


def peer(task: Task, device: torch.device, way: Way) -> Trainer:
    """The same network and weights by PyTorch Geometric; ``task`` is on the CPU."""
    dataset = peer_dataset(task, way.edges)
    model = peer_network(task, device, way).to(device).train()
    optim = task.config.optim
    # Adam in one kernel, torch's fastest.
    adam = torch.optim.Adam(model.parameters(), optim.lr, weight_decay=optim.weight_decay, fused=True)
    loaded = batches(dataset, order(task.num_items, task.config.optim.batch_size), device, way.loading)

    def step() -> tuple[Tensor, ...]:
        adam.zero_grad()
        loss = model.loss(next(loaded))
        loss.backward()
        adam.step()
        return (loss.detach(),)

    return Trainer("PyG", way.text(task.config.task), step)


def losses(trainer: Trainer, count: int) -> list[float]:
    """Of the first steps."""
    return torch.stack([trainer.step()[0].clone() for _ in range(count)]).tolist()


def peer_network(task: Task, device: torch.device, way: Way) -> Any:
    """PyTorch Geometric's network with the initial weights of ours."""
    ours = task.make_model().to(device)
    if isinstance(ours, MeshAutoencoder):
        return PeerAutoencoder(ours, task.config.optim.batch_size, way.product, way.edges)
    if isinstance(ours, CorrespondenceNet):
        return PeerCorrespondence(ours)
    assert isinstance(ours, GraphClassifier)
    return PeerClassifier(ours)


def peer_dataset(task: Task, edges: str) -> Sequence[Any]:
    """The items of a task as PyTorch Geometric's data, on the CPU."""
    make = {"reconstruction": _mesh, "correspondence": _labelled_mesh, "classification": _graph}[task.config.task]
    return [make(task.batch(torch.tensor([item])), task.config.operator, edges) for item in range(task.num_items)]


def _mesh(batch: Any, operator: str, edges: str) -> Any:
    return mesh_data(batch[0])


def _labelled_mesh(batch: Any, operator: str, edges: str) -> Any:
    packed, labels, _ = batch
    return correspondence_data(packed.x, packed.graphs.levels[0], labels, operator, edges)


def _graph(batch: Any, operator: str, edges: str) -> Any:
    packed, labels = batch
    return graph_data(packed.x, packed.graphs, labels, operator, edges)
