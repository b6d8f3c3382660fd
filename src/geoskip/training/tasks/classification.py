"""Classification of graphs that differ: superpixels, the paper's Table 2."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from geoskip.data import GraphSet
from geoskip.models import GraphClassifier
from geoskip.operators import operator_info
from geoskip.shapes import Float, Int
from geoskip.training.config import Config
from geoskip.training.metrics import classification_metrics, confusion
from geoskip.training.packed import (
    Coarsening,
    Drawing,
    DrawnStore,
    GraphStore,
    PackedBatch,
    drawn_store,
    store_set,
)
from geoskip.training.packed.level import PackedLevel
from geoskip.training.tasks.base import Evaluation, Task, chosen_split, in_parts, load_data, spread_evenly

EVALUATED = 250  # test graphs at once: a divisor of MNIST's 10,000, so that all batches have one shape


class Classification(Task):
    """Cross-entropy of the class of each graph.

    The coarser levels are those of the data set, or drawn as ``config.coarsening`` says: then a graph's coarsening
    follows from the seed, the epoch and its number in the set, in training as in evaluation.
    """

    Model = GraphClassifier
    from_data = ("num_classes", "dim", "in_channels")
    radius: float
    num_samples = 24

    def __init__(self, config: Config, data: GraphSet | None = None) -> None:
        self.config = config
        self.check()
        data = load_data(config) if data is None else data
        levels = data.levels[: self.num_levels]
        if self.coarsening is not None:
            levels = (replace(levels[0], clusters=None),)
            self.radius = levels[0].longest_edge
        elif len(levels) < self.num_levels:
            raise ValueError(
                f"model.channels: {self.num_levels} convolutions need as many levels, the data have {len(levels)}"
            )
        self.data = replace(data, levels=levels, split=chosen_split(data.split, config))
        self.names = [f"graph {item}" for item in self.data.split.train.tolist()]
        self.device = torch.device("cpu")

    @classmethod
    def check_network(cls, config: Config) -> None:
        if operator_info(config.operator).needs_spirals:
            raise ValueError(
                f"operator: {config.operator} needs meshes, and graphs to be classified have no faces; choose another"
            )
        super().check_network(config)
        Coarsening.from_settings(config.coarsening)

    @property
    def num_items(self) -> int:
        return len(self.data.split.train)

    @property
    def num_levels(self) -> int:
        return len(self.config.model.get("channels", (32, 64, 64)))

    @property
    def coarsening(self) -> Coarsening | None:
        return Coarsening.from_settings(self.config.coarsening)

    @property
    def coordinates(self) -> str | None:
        return self.config.pseudo if self.operator.uses_pseudo else None

    @cached_property
    def largest(self) -> tuple[float, ...]:
        """Per level, the offset (or degree) of the whole set that becomes 1; 1 where all are 0, or where batches are
        scaled. Of levels that are drawn, it is that of the training items in the draw of epoch 0."""
        if self.coordinates is None or self.config.pseudo_scale == "batch":
            return (1.0,) * self.num_levels
        by_position = self.coordinates == "position"
        if self.coarsening is not None:
            items = self.data.split.train
            finest = store_set(self.data, items, None, None, looped=False, padded=False)
            return tuple(self._drawing(items, finest.levels[0], finest.pos[0]).largest(by_position))
        sizes = [level.largest_offset if by_position else level.largest_degree for level in self.data.levels]
        return tuple(float(value) or 1.0 for value in sizes)

    @cached_property
    def store(self) -> GraphStore:
        return self._store(self.data.split.train)

    @cached_property
    def _evaluated(self) -> dict[str, GraphStore]:
        return {}

    def part_store(self, part: str) -> GraphStore:
        """The graphs of the test or for validation, as they are evaluated now."""
        if part not in self._evaluated:
            self._evaluated[part] = self._store(self.part(part))
        store = self._evaluated[part]
        if isinstance(store, DrawnStore):
            store.redraw(self.epoch)
        return store

    @property
    def test_store(self) -> GraphStore:
        return self.part_store("test")

    def _store(self, items: Tensor) -> GraphStore:
        polar = self.config.finest_pseudo == "polar" and self.coordinates == "position"
        if polar and self.data.levels[0].pos.shape[1] != 2:
            raise ValueError(
                f"finest_pseudo: polar coordinates need positions of 2 dimensions, and the data have "
                f"{self.data.levels[0].pos.shape[1]}; use cartesian"
            )
        kind: Any = {"looped": self.operator.adds_self_loops, "polar": polar}
        # On a GPU steps are captured and kernels compiled for a shape: all batches of a size have one.
        padded = self.device.type == "cuda"
        largest = None if self.config.pseudo_scale == "batch" else self.largest
        if self.coarsening is None:
            return store_set(self.data, items, self.coordinates, largest, padded=padded, **kind)
        make = partial(self._drawing, items)
        return drawn_store(self.data, items, make, self.coordinates, largest, padded=padded, **kind)

    def _drawing(self, items: Tensor, finest: PackedLevel, pos: Tensor) -> Drawing:
        assert self.coarsening is not None
        sigma = self.radius / 2 or 1.0
        return Drawing(
            finest, pos, items.to(pos.device), self.coarsening, self.num_levels, sigma=sigma, seed=self.config.seed
        )

    def begin_epoch(self, epoch: int) -> None:
        super().begin_epoch(epoch)
        if isinstance(self.store, DrawnStore):
            self.store.redraw(epoch)

    def layout(self, num_items: int) -> int:
        return self.store.layout(num_items)

    @cached_property
    def labels(self) -> Int[Tensor, " items"]:
        return self.data.labels[self.data.split.train.to(self.device)]

    def build(self) -> nn.Module:
        dim = self.data.levels[0].pos.shape[1] if self.config.pseudo == "position" else 1
        sizes: dict[str, Any] = {"num_classes": len(self.data.class_names), "in_channels": self.data.x.shape[1]}
        return GraphClassifier(dim=max(dim, 1), **sizes, **self.chosen())

    def to(self, device: torch.device | str) -> Classification:
        moved = copy(self)
        moved.device, moved.data = torch.device(device), self.data.to(device)
        # Stores and labels are made anew, on the device.
        for name in ("store", "_evaluated", "labels"):
            moved.__dict__.pop(name, None)
        return moved

    def batch(self, items: Int[Tensor, " items"]) -> tuple[PackedBatch, Tensor]:
        return self.store.batch(items), self.labels[items]

    def loss(self, model: nn.Module, batch: Any) -> Float[Tensor, ""]:
        packed, labels = batch
        return cross_entropy(self.scores(model, packed).float(), labels)

    def scores(self, model: nn.Module, packed: PackedBatch) -> Float[Tensor, "graphs classes"]:
        """What the model says of each graph of a batch."""
        assert isinstance(model, GraphClassifier)
        return model(packed.x, packed.graphs)

    def predict(self, model: nn.Module, part: str = "test") -> Int[Tensor, " items"]:
        """The classes of the graphs of a part."""
        model.eval()
        if not len(self.part(part)):
            return torch.zeros(0, dtype=torch.long)
        store = self.part_store(part)

        def classes(items: Tensor) -> Tensor:
            return self.scores(model, store.batch(items.to(self.device))).argmax(-1).cpu()

        # Where a batch has one scale, batches of the test are as large as those of the training.
        size = self.config.optim.batch if self.config.pseudo_scale == "batch" else EVALUATED
        return torch.cat(in_parts(len(store), size, classes))

    def evaluate(self, model: nn.Module, part: str = "test") -> Evaluation:
        predicted = self.predict(model, part)
        labels = self.data.labels[self.part(part).to(self.device)].cpu()
        counts = confusion(predicted, labels, len(self.data.class_names))
        arrays = {"confusion": counts.numpy(), "predicted": predicted.numpy()}
        return Evaluation(classification_metrics(counts), arrays=arrays)

    def samples(self, model: nn.Module, count: int, part: str = "test") -> Any:
        from geoskip.records.samples import GraphSamples

        chosen = spread_evenly(len(self.part(part)), count)
        shown = self.data.select(self.part(part)[chosen])
        finest = shown.levels[0].to("cpu")
        model.eval()
        # Made outside of inference mode, so that it can be filled again later.
        store = self.part_store(part)
        with torch.inference_mode():
            predicted = self.scores(model, store.batch(chosen.to(self.device))).argmax(-1)
        return GraphSamples(
            pos=_plane(finest.pos).numpy(),
            x=shown.x.cpu().numpy(),
            edges=finest.edge_index.numpy(),
            offsets=finest.offsets.numpy(),
            true=shown.labels.cpu().numpy(),
            predicted=predicted.cpu().numpy(),
            class_names=self.data.class_names,
        )

    def facts(self) -> dict[str, Any]:
        return {"class_names": list(self.data.class_names), "largest": list(self.largest)}


def _plane(pos: Tensor) -> Tensor:
    """The first two coordinates, 0 where there are fewer."""
    return torch.cat([pos, pos.new_zeros(len(pos), 2)], dim=1)[:, :2]
