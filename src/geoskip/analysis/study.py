"""What skips do to learned kernels, as one study: methods with and without skips, trained over seeds, then measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from geoskip.analysis.runs import run_parts, run_shares, run_smoothness
from geoskip.data.mesh_set import MeshSet, StoredShapes
from geoskip.meshes import mesh_hierarchy
from geoskip.records.samples import MeshSamples
from geoskip.shapes import Int
from geoskip.training.config import Config, resolve
from geoskip.training.loop import train
from geoskip.training.tasks import Task, make_task

SKIPS = ("none", "residual", "affine")


@dataclass(frozen=True)
class Study:
    """What is trained: every operator with every skip and seed, on the same items.

    Attributes:
        operators: names and kernel sizes.
        seeds: how many of each.
        epochs: passes over the training items.
        train_items: how many of them, spread over the set; None for all.
        test_items: likewise for the test.
        batch: items of a step.
        device: where.
        checkpoints: how many are kept on the way, evenly, for the shares over training.
        model: further arguments of the autoencoder.
    """

    operators: tuple[tuple[str, int], ...] = (("monet", 9), ("spline", 3), ("cheb", 6))
    seeds: int = 3
    epochs: int = 300
    train_items: int | None = None
    test_items: int | None = None
    batch: int = 32
    device: str = "auto"
    checkpoints: int = 10
    model: Mapping[str, Any] = field(default_factory=dict)

    def with_operators(self, given: Sequence[str]) -> Study:
        """With operators written as ``monet=9``."""
        pairs = [text.partition("=") for text in given]
        if wrong := [name for name, _, size in pairs if not size.isdigit()]:
            raise ValueError(f"operator: {wrong[0]} needs its M, such as {wrong[0]}=9")
        return replace(self, operators=tuple((name, int(size)) for name, _, size in pairs))

    def settings(self) -> dict[str, Any]:
        """As plain JSON."""
        return {**asdict(self), "operators": [f"{name}={size}" for name, size in self.operators]}

    def configs(self, num_items: int) -> Iterator[tuple[str, Config]]:
        """A configuration for each run, with the name of its folder."""
        used = min(self.train_items or num_items, num_items)
        steps = self.epochs * -(-used // self.batch)
        for operator, size in self.operators:
            for skip in SKIPS:
                for seed in range(self.seeds):
                    yield (
                        f"{operator}-{skip}-{seed}",
                        resolve(
                            "reconstruction",
                            operator=operator,
                            kernel_size=size,
                            skip=skip,
                            seed=seed,
                            optim={"epochs": self.epochs, "batch": self.batch},
                            train_items=self.train_items,
                            test_items=self.test_items,
                            device=self.device,
                            model=self.model,
                            checkpoint_every=max(1, steps // self.checkpoints),
                            keep=self.checkpoints + 1,
                        ),
                    )


@dataclass(frozen=True)
class Measured:
    """What a run of a study gave: rows of :mod:`geoskip.analysis.runs`; no shares and parts without skips."""

    name: str
    smoothness: dict[str, Any]
    shares: list[dict[str, Any]]
    parts: list[dict[str, Any]]
    shapes: MeshSamples | None


def run_study(study: Study, data: MeshSet, folder: Path, samples: int = 8) -> Iterator[Measured]:
    """Train what is not trained yet, one run after the other, and measure each. ``folder`` keeps the runs.

    Runs of one operator and seed begin with the same convolutions, whatever their skips: see :func:`start_alike`.
    """
    for name, config in study.configs(len(data.split.train)):
        task = start_alike(make_task(config, data=data), data)
        run = train(config, folder / name, task=task)
        smoothness = run_smoothness(run, task) | {"metrics": dict(run.record.metrics)}
        if config.skip == "none":
            yield Measured(name, smoothness, [], [], None)
            continue
        parts, shapes = run_parts(run, samples, task)
        yield Measured(name, smoothness, run_shares(run, task=task), parts, shapes)


def start_alike(task: Task, data: MeshSet) -> Task:
    """The task, whose models now begin with the values that the seed gives to bare operators; skips keep their own.

    Otherwise the draws of the skips would shift all later ones, and methods would differ in their luck as well.
    """
    bare, own = make_task(replace(task.config, skip="none"), data=data), task.make_model

    def make_model() -> nn.Module:
        model = own()
        model.load_state_dict(bare.make_model().state_dict())
        return model

    # On the instance, so that copies on other devices keep it.
    vars(task)["make_model"] = make_model
    return task


def coarser(data: MeshSet, factors: Sequence[int]) -> MeshSet:
    """The same shapes with fewer vertices: those that quadric decimation of the template keeps."""
    meshes = mesh_hierarchy(data.template, factors=tuple(factors))
    kept = torch.arange(data.template.num_verts)
    for down in meshes.down:
        kept = kept[torch.from_numpy(down.indices).long()]
    return replace(data, template=meshes.levels[-1], shapes=KeptVertices(data.shapes, kept))


@dataclass(frozen=True, eq=False)
class KeptVertices:
    """Some vertices of other shapes; the ``Shapes`` of a coarser set."""

    shapes: Any
    kept: Int[Tensor, " kept"]

    def __len__(self) -> int:
        return len(self.shapes)

    def decode(self, items: Int[Tensor, " items"]) -> Tensor:
        return self.shapes.decode(items)[:, self.kept]

    def to(self, device: torch.device | str) -> KeptVertices:
        return KeptVertices(self.shapes.to(device), self.kept.to(device))


def stored(data: MeshSet) -> MeshSet:
    """The same set with its positions decoded once, where they fit into memory."""
    parts = torch.arange(len(data)).split(1024)
    return replace(data, shapes=StoredShapes(torch.cat([data.verts(part) for part in parts])))
