"""Classification of graphs that differ: superpixels, the paper's Table 2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from geoskip.data import GraphSet
from geoskip.models import GraphClassifier
from geoskip.operators import operator_info
from geoskip.shapes import Float, Int
from geoskip.training.config import Config, Optim
from geoskip.training.graph_store import GraphStore, store_set
from geoskip.training.metrics import classification_metrics, confusion
from geoskip.training.packed_graphs import PackedBatch
from geoskip.training.random_coarsening import Coarsening, RandomCoarsener, draw_levels
from geoskip.training.tasks.base import Context, Evaluation, Task, in_parts, spread_evenly

EVALUATION_BATCH = 250  # test graphs at once: a divisor of MNIST's 10,000, so that all batches have one shape


@dataclass(frozen=True, eq=False, kw_only=True)
class GraphContext(Context):
    """What a classifier needs to know about its graphs.

    class_names: names of the classes.
    largest: per level, the offset (or degree) that becomes 1 in the pseudo-coordinates.
    radius: length of the longest edge.
    num_vertices: of the largest graph.
    extent: the largest coordinates.
    """

    class_names: tuple[str, ...]
    largest: tuple[float, ...]
    radius: float
    num_vertices: int
    extent: tuple[float, ...]

    def __post_init__(self) -> None:
        self._check_range("largest", positive=True)
        self._check_range("num_vertices", positive=True)
        self._check_range("radius", positive=False)
        self._check_range("extent", positive=False)

    def check_model(self, model: nn.Module) -> None:
        assert isinstance(model, GraphClassifier)
        if "in_channels" not in self.arguments:
            raise ValueError("context: arguments has no in_channels")
        if len(self.class_names) != (size := model.output.out_features):
            raise ValueError(f"context: {len(self.class_names)} classes, but the model has {size}")
        if len(self.largest) != len(model.convs):
            raise ValueError(f"context: largest must have {len(model.convs)} numbers, one for each level")


class Classification(Task):
    """Cross-entropy of the class of each graph.

    The coarser levels are those of the data set, or drawn as ``config.coarsening`` says: then a graph's coarsening
    follows from the seed, the epoch and its number in the set, in training as in evaluation.
    """

    name = "classification"
    model_class = GraphClassifier
    context_class = GraphContext
    from_data = ("num_classes", "in_channels", "dim")
    settings = ("pseudo_scale", "finest_pseudo", "coarsening", "recalibrate")
    actions: ClassVar[Mapping[str, Any]] = {"classify": "geoskip.inference.apply:classify"}
    folders_are_subjects = False  # they are classes
    num_samples = 24
    output_layer = "output"
    data: GraphSet

    def __init__(self, config: Config, data: GraphSet | None = None) -> None:
        super().__init__(config, data)
        levels = self.data.levels[: self.num_levels]
        if config.coarsening:
            levels = (replace(levels[0], clusters=None),)
        elif len(levels) < self.num_levels:
            raise ValueError(
                f"model.channels: {self.num_levels} convolutions need as many levels, but the data have {len(levels)}"
            )
        self.data = replace(self.data, levels=levels)
        self.labels = self.data.labels[self.train]
        self._stores: dict[str, GraphStore] = {}

    @classmethod
    def defaults(cls, operator: str) -> dict[str, Any]:
        optim = Optim(lr_decay=0.5, decay_every=30, weight_decay=1e-4, epochs=500, batch_size=64)
        return {"data": "superpixels", "kernel_size": 25, "optim": optim}

    @classmethod
    def check_config(cls, config: Config) -> None:
        if operator_info(config.operator).needs_spirals:
            raise ValueError(
                f"operator: {config.operator} needs meshes, but graphs to be classified have no faces; choose another"
            )
        super().check_config(config)
        Coarsening.from_settings(config.coarsening)

    @property
    def num_levels(self) -> int:
        return _num_levels(self.config)

    @cached_property
    def radius(self) -> float:
        """The length of the longest edge of the first graphs, computed on the CPU so that all devices agree."""
        return self.data.levels[0].to("cpu").longest_edge(4000)

    @cached_property
    def largest(self) -> tuple[float, ...]:
        """Per level, the offset (or degree) of the whole set that becomes 1; 1 where all are 0, or where batches are
        scaled. If levels are drawn, it is that of the training items in the draw of epoch 0."""
        coordinates = _coordinates(self.config)
        if coordinates is None or self.config.pseudo_scale == "batch":
            return (1.0,) * self.num_levels
        by_position = coordinates == "position"
        if self.config.coarsening:
            items = self.data.split.train
            finest = store_set(self.data, items, None, None, looped=False, padded=False)
            return tuple(_coarsener(self.config, self.radius, items, finest).largest(by_position))
        sizes = [level.largest_offset if by_position else level.largest_degree for level in self.data.levels]
        return tuple(float(value) or 1.0 for value in sizes)

    @property
    def store(self) -> GraphStore:
        """The training graphs."""
        return self._store("train", self.data.split.train)

    def split_store(self, split: str) -> GraphStore:
        """The graphs of the test or for validation, as they are evaluated in the current epoch."""
        store = self._store(split, self.split_items(split))
        store.redraw(self.epoch)
        return store

    def _store(self, name: str, items: Tensor) -> GraphStore:
        if name not in self._stores:
            self._stores[name] = graph_store(self.config, self.data, items, self.radius, self.largest)
        return self._stores[name]

    def begin_epoch(self, epoch: int) -> None:
        super().begin_epoch(epoch)
        self.store.redraw(epoch)

    def layout(self, num_items: int) -> int:
        return self.store.layout(num_items)

    def prepare(self, num_items: int) -> None:
        self.store.prepare(num_items)

    def model_arguments(self) -> dict[str, Any]:
        dim = self.data.levels[0].pos.shape[1] if self.config.pseudo == "position" else 1
        sizes = {"num_classes": len(self.data.class_names), "in_channels": self.data.x.shape[1]}
        return {**sizes, "dim": max(dim, 1)}

    def to(self, device: torch.device | str) -> Classification:
        moved = cast(Classification, super().to(device))
        moved._stores = {}  # they are built again on the device
        return moved

    def batch(self, items: Int[Tensor, " items"]) -> tuple[PackedBatch, Tensor]:
        return self.store.batch(items), self.labels[items]

    def loss(self, model: nn.Module, batch: Any) -> Float[Tensor, ""]:
        packed, labels = batch
        return cross_entropy(model(packed.x, packed.graphs).float(), labels)

    def after_training(self, model: nn.Module) -> None:
        if not self.config.recalibrate:
            return
        norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d)]
        momenta = [norm.momentum for norm in norms]
        model.train()
        self.store.redraw(self.epoch)
        size = min(self.config.optim.batch_size, self.num_items)
        with torch.no_grad():
            for number in range(self.num_items // size):
                for norm in norms:
                    norm.momentum = 1 / (number + 1)  # the mean over the batches so far
                packed, _ = self.batch(torch.arange(number * size, (number + 1) * size, device=self.device))
                model(packed.x, packed.graphs)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum

    def predict(self, model: nn.Module, split: str = "test") -> Int[Tensor, " items"]:
        """The classes of the graphs of a split."""
        model.eval()
        if not len(self.split_items(split)):
            return torch.zeros(0, dtype=torch.long)
        store = self.split_store(split)

        def classes(items: Tensor) -> Tensor:
            packed = store.batch(items.to(self.device))
            return model(packed.x, packed.graphs).argmax(-1).cpu()

        # Where a batch has one scale, batches of the test are as large as those of the training.
        size = self.config.optim.batch_size if self.config.pseudo_scale == "batch" else EVALUATION_BATCH
        return torch.cat(in_parts(len(store), size, classes))

    def evaluate(self, model: nn.Module, split: str = "test") -> Evaluation:
        predicted = self.predict(model, split)
        labels = self.data.labels[self.split_items(split).to(self.device)].cpu()
        counts = confusion(predicted, labels, len(self.data.class_names))
        correct = (predicted == labels).numpy().astype("uint8")
        arrays = {"confusion": counts.numpy(), "predicted": predicted.numpy(), "per_item_correct": correct}
        return Evaluation(classification_metrics(counts), arrays=arrays)

    def samples(self, model: nn.Module, count: int, split: str = "test") -> Any:
        from geoskip.records.samples import GraphSamples

        chosen = spread_evenly(len(self.split_items(split)), count)
        items = self.split_items(split)[chosen]
        shown = self.data.select(items)
        finest = shown.levels[0].to("cpu")
        model.eval()
        # Made outside of inference mode, so that it can be filled again later.
        store = self.split_store(split)
        with torch.inference_mode():
            packed = store.batch(chosen.to(self.device))
            predicted = model(packed.x, packed.graphs).argmax(-1)
        # The first two coordinates; 0 if there are fewer.
        plane = torch.cat([finest.pos, finest.pos.new_zeros(len(finest.pos), 2)], dim=1)[:, :2]
        return GraphSamples(
            pos=plane.numpy(),
            x=shown.x.cpu().numpy(),
            edges=finest.edge_index.numpy(),
            offsets=finest.offsets.numpy(),
            true=shown.labels.cpu().numpy(),
            predicted=predicted.cpu().numpy(),
            class_names=self.data.class_names,
            names=tuple(self.data.names[item] for item in items.tolist()) if self.data.names else (),
        )

    def context_fields(self) -> dict[str, Any]:
        finest = self.data.levels[0]
        return {
            "class_names": tuple(self.data.class_names),
            "largest": self.largest,
            "radius": self.radius,
            "num_vertices": int(finest.offsets.diff().max()),
            "extent": tuple(finest.pos.amax(0).tolist()),
        }


def graph_store(config: Config, data: GraphSet, items: Tensor, radius: float, largest: tuple[float, ...]) -> GraphStore:
    """Where batches of ``items`` come from, the same in training, evaluation and applied models; see
    :class:`GraphContext` for ``radius`` and ``largest``."""
    coordinates = _coordinates(config)
    polar = config.finest_pseudo == "polar" and coordinates == "position"
    if polar and data.levels[0].pos.shape[1] != 2:
        raise ValueError(
            f"finest_pseudo: polar coordinates need positions of 2 dimensions, but the data have "
            f"{data.levels[0].pos.shape[1]}; use cartesian"
        )
    scales = None if config.pseudo_scale == "batch" else largest
    looped = operator_info(config.operator).adds_self_loops
    # On a GPU steps are captured and kernels compiled for a shape, so all batches of one size have the same shape.
    padded = data.x.device.type == "cuda"
    store = store_set(data, items, coordinates, scales, looped=looped, padded=padded, polar=polar)
    return draw_levels(store, _coarsener(config, radius, items, store), scales) if config.coarsening else store


def _coarsener(config: Config, radius: float, items: Tensor, store: GraphStore) -> RandomCoarsener:
    coarsening = Coarsening.from_settings(config.coarsening)
    assert coarsening is not None
    pos, sigma = store.pos[0], radius / 2 or 1.0
    chosen, num_levels = items.to(pos.device), _num_levels(config)
    return RandomCoarsener(store.levels[0], pos, chosen, coarsening, num_levels, sigma=sigma, seed=config.seed)


def _num_levels(config: Config) -> int:
    return len(config.model.get("channels", (32, 64, 64)))


def _coordinates(config: Config) -> str | None:
    return config.pseudo if operator_info(config.operator).uses_pseudo else None
