"""Classification of graphs that differ: superpixels, the paper's Table 2."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from geoskip.data.graph_set import GraphSet
from geoskip.models import GraphClassifier
from geoskip.shapes import Float, Int
from geoskip.training.config import Config
from geoskip.training.metrics import classification_metrics, confusion
from geoskip.training.packed import GraphStore, PackedBatch, counting_real, store_set
from geoskip.training.tasks.base import COORDINATES, LOOPED, Evaluation, Task, chosen_split, in_parts, spread_evenly
from geoskip.training.tasks.loading import load_data

EVALUATED = 250  # test graphs at once: a divisor of MNIST's 10,000, so that all batches have one shape


class Classification(Task):
    """Cross-entropy of the class of each graph. Pseudo-coordinates have one scale over the whole set, per level."""

    Model = GraphClassifier
    from_data = ("classes", "dim", "in_channels")
    num_samples = 24

    def __init__(self, config: Config, data: GraphSet | None = None) -> None:
        self.config = config
        self.check()
        data = load_data(config) if data is None else data
        depth = len(config.model.get("channels", (32, 64, 64)))
        if len(data.levels) < depth:
            raise ValueError(
                f"model.channels: {depth} convolutions need as many levels, the data have {len(data.levels)}"
            )
        self.data = replace(data, levels=data.levels[:depth], split=chosen_split(data.split, config))
        self.names = [f"graph {item}" for item in self.data.split.train.tolist()]
        self.device = torch.device("cpu")

    def check(self) -> None:
        if self.config.operator == "spiral":
            raise ValueError("operator: spiral needs meshes, and graphs to be classified have no faces; choose another")
        super().check()

    @property
    def num_items(self) -> int:
        return len(self.data.split.train)

    @property
    def num_test(self) -> int:
        return len(self.data.split.test)

    @property
    def coordinates(self) -> str | None:
        return self.config.pseudo if self.config.operator in COORDINATES else None

    @cached_property
    def largest(self) -> tuple[float, ...]:
        """Per level, the offset (or degree) of the whole set that becomes 1; 1 where all are 0."""
        if self.coordinates is None:
            return (1.0,) * len(self.data.levels)
        by_position = self.coordinates == "position"
        found = [level.largest_offset if by_position else level.largest_degree for level in self.data.levels]
        return tuple(float(value) or 1.0 for value in found)

    @cached_property
    def store(self) -> GraphStore:
        return self._store(self.data.split.train)

    @cached_property
    def test_store(self) -> GraphStore:
        return self._store(self.data.split.test)

    def _store(self, items: Tensor) -> GraphStore:
        looped = self.config.operator in LOOPED
        # On a GPU steps are captured and kernels compiled for a shape: all batches of a size have one.
        padded = self.device.type == "cuda"
        return store_set(self.data, items, self.coordinates, self.largest, looped=looped, padded=padded)

    @cached_property
    def labels(self) -> Int[Tensor, " items"]:
        return self.data.labels[self.data.split.train.to(self.device)]

    def build(self) -> nn.Module:
        dim = self.data.levels[0].pos.shape[1] if self.config.pseudo == "position" else 1
        sizes: dict[str, Any] = {"classes": len(self.data.class_names), "in_channels": self.data.x.shape[1]}
        return GraphClassifier(dim=max(dim, 1), **sizes, **self.chosen())

    def to(self, device: torch.device | str) -> Classification:
        moved = copy(self)
        moved.device, moved.data = torch.device(device), self.data.to(device)
        # Stores and labels are made anew, on the device.
        for name in ("store", "test_store", "labels"):
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
        if not packed.padded:
            return model(packed.x, packed.graphs)
        with counting_real(list(model.norms), [verts.real for verts in packed.verts]):
            return model(packed.x, packed.graphs)

    def predict(self, model: nn.Module) -> Int[Tensor, " items"]:
        """The classes of the test graphs."""
        model.eval()

        def classes(part: Tensor) -> Tensor:
            return self.scores(model, self.test_store.batch(part.to(self.device))).argmax(-1).cpu()

        return (
            torch.cat(in_parts(self.num_test, EVALUATED, classes))
            if self.num_test
            else torch.zeros(0, dtype=torch.long)
        )

    def evaluate(self, model: nn.Module) -> Evaluation:
        predicted = self.predict(model)
        labels = self.data.labels[self.data.split.test.to(self.device)].cpu()
        counts = confusion(predicted, labels, len(self.data.class_names))
        arrays = {"confusion": counts.numpy(), "predicted": predicted.numpy()}
        return Evaluation(classification_metrics(counts), arrays=arrays)

    def samples(self, model: nn.Module, count: int) -> Any:
        from geoskip.records.samples import GraphSamples

        part = spread_evenly(self.num_test, count)
        items = self.data.split.test[part]
        some = self.data.select(items)
        finest = some.levels[0].to("cpu")
        model.eval()
        with torch.inference_mode():
            predicted = self.scores(model, self.test_store.batch(part.to(self.device))).argmax(-1)
        return GraphSamples(
            pos=_plane(finest.pos).numpy(),
            x=some.x.cpu().numpy(),
            edges=finest.edge_index.numpy(),
            offsets=finest.offsets.numpy(),
            true=some.labels.cpu().numpy(),
            predicted=predicted.cpu().numpy(),
            class_names=self.data.class_names,
        )

    def facts(self) -> dict[str, Any]:
        return {"class_names": list(self.data.class_names), "largest": list(self.largest)}


def _plane(pos: Tensor) -> Tensor:
    """The first two coordinates, 0 where there are fewer."""
    return torch.cat([pos, pos.new_zeros(len(pos), 2)], dim=1)[:, :2]
