"""The effect of skips on learned kernels: train methods with and without skips over several seeds, and measure them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from geoskip.data import MeshSet
from geoskip.paper.analyses import run_parts, run_shares, run_smoothness, start_alike, write_study
from geoskip.records.samples import MeshSamples
from geoskip.training.config import Config, resolve
from geoskip.training.loop import train
from geoskip.training.tasks import make_task

SKIPS = ("none", "residual", "affine")
# Operators whose filters are functions, so that their smoothness can be measured.
MEASURABLE = ("monet", "spline", "cheb")


@dataclass(frozen=True)
class Study:
    """Every operator is trained with every skip and seed, on the same items.

    Attributes:
        operators: names and kernel sizes.
        seeds: the number of seeds.
        epochs: passes over the training items.
        train_items: the number of training items, spread over the set; None for all.
        test_items: the number of test items; None for all.
        batch: items per step.
        device: where to train.
        checkpoints: how many checkpoints are kept, at equal distances, for the shares over training.
        model: further arguments of the autoencoder.
        coarse: the factors by which the meshes were coarsened before; see :func:`~geoskip.paper.small_sets.coarsened`.
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
    coarse: tuple[int, ...] = ()

    def with_operators(self, given: Sequence[str]) -> Study:
        """With operators written as ``monet=9``."""
        pairs = [text.partition("=") for text in given]
        if wrong := [name for name, _, size in pairs if not size.isdigit()]:
            raise ValueError(f"operator: {wrong[0]} needs a kernel size, such as {wrong[0]}=9")
        names = [name for name, _, _ in pairs]
        if other := [name for name in names if name not in MEASURABLE]:
            raise ValueError(f"operator: {other[0]} has no filter to measure; choose from {', '.join(MEASURABLE)}")
        if len(set(names)) < len(names):
            raise ValueError("operator: give each operator once; for another M, run a study in another folder")
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
                            optim={"epochs": self.epochs, "batch_size": self.batch},
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
    """What a run of a study gave: where it was trained, in words, and rows of :mod:`geoskip.paper.analyses`; no shares
    and parts without skips."""

    name: str
    device: str
    smoothness: dict[str, Any]
    shares: list[dict[str, Any]]
    parts: list[dict[str, Any]]
    shapes: MeshSamples | None


def run_study(study: Study, data: MeshSet, folder: Path, samples: int = 8) -> Iterator[Measured]:
    """Train what is not trained yet, one run after the other, and measure each. ``folder`` keeps the runs.

    Runs of one operator and seed begin with the same convolutions, whatever their skips: see
    :func:`~geoskip.paper.analyses.start_alike`. ``data`` are coarsened by ``study.coarse`` already.
    """
    for name, config in study.configs(len(data.split.train)):
        task = start_alike(make_task(config, data=data), data)
        write_study(folder / name, study.coarse)
        run = train(config, folder / name, task=task)
        device = run.record.device
        smoothness = run_smoothness(run, task) | {"metrics": dict(run.record.metrics)}
        if config.skip == "none":
            yield Measured(name, device, smoothness, [], [], None)
            continue
        parts, shapes = run_parts(run, min(samples, task.num_test), task)
        yield Measured(name, device, smoothness, run_shares(run, task=task), parts, shapes)
