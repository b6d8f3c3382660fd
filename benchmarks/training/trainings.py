"""What is trained: the paper's three networks, on data of the paper's sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.peers import HAS_PEER
from benchmarks.training.sets import correspondence_set, graph_set, mesh_set, remeshed_set
from benchmarks.workloads import SUPERPIXEL_PAIRS, chosen_names
from geoskip.operators import operator_info
from geoskip.training.config import Config, resolve


@dataclass(frozen=True)
class Training:
    """One task: its data, its batch, its M, and whether matrix products may be in TensorFloat-32 while it is timed.

    ``model`` has arguments of the model that are not the paper's.
    """

    name: str
    task: str
    about: str
    batch: int
    slots: int
    make_data: Callable[[], Any]
    tf32: bool = False
    model: Mapping[str, Any] = field(default_factory=dict)


AUTOENCODER = Training(
    "autoencoder", "reconstruction", "batch 32, 5,023 vertices in 5 levels, code of 16, L1 loss", 32, 9,
    lambda: mesh_set(5023, 128),
)  # fmt: skip
CORRESPONDENCE = Training(
    "correspondence", "correspondence", "batch 1, 6,890 vertices and classes, TF32 allowed on both sides", 1, 10,
    lambda: correspondence_set(6890, 8), tf32=True,
)  # fmt: skip
REMESHED = Training(
    "remeshed", "correspondence", "batch 1, 6,890 vertices and classes, a connectivity each, float32", 1, 10,
    lambda: remeshed_set(6890, 8),
)  # fmt: skip
SUPERPIXELS = Training(
    "superpixels", "classification", "batch 64, 75 vertices with 18.6 neighbours each, two coarsenings", 64, 25,
    lambda: graph_set(512, 75, SUPERPIXEL_PAIRS),
)  # fmt: skip
TRAININGS = {training.name: training for training in (AUTOENCODER, CORRESPONDENCE, REMESHED, SUPERPIXELS)}


@dataclass(frozen=True)
class Run:
    """A training with one operator, with the affine skip or without."""

    training: Training
    operator: str
    skip: bool

    @property
    def slots(self) -> int:
        return self.training.slots if operator_info(self.operator).has_kernel_size else 1

    def config(self, compared: bool) -> Config:
        """As it is trained; to be compared it has no dropout, which would draw other numbers on each side."""
        model = dict(self.training.model)
        if self.training.task != "reconstruction" and compared:
            model["dropout"] = 0.0
        if self.training.task == "classification" and not operator_info(self.operator).has_kernel_size:
            # GCN and GIN give the same to vertices with the same neighbours; rounding would choose the largest.
            model["pooling"] = "mean"
        return resolve(
            self.training.task,
            operator=self.operator,
            skip="affine" if self.skip else "none",
            kernel_size=self.training.slots if operator_info(self.operator).has_kernel_size else None,
            model=model,
            optim={"batch_size": self.training.batch},
            tf32=self.training.tf32 and not compared,
        )


def chosen_trainings(names: Sequence[str] | None, quick: bool = False) -> list[Training]:
    """By name, all if none is named; a quick run has batches of 4 at most."""
    trainings = [TRAININGS[name] for name in chosen_names("task", names, tuple(TRAININGS))]
    return [_smaller(training) for training in trainings] if quick else trainings


def chosen_operators(names: Sequence[str] | None) -> list[str]:
    """By name, MoNet if none is named."""
    return chosen_names("operator", names or ["monet"], HAS_PEER)


def chosen_skips(names: Sequence[str] | None) -> list[bool]:
    """Without the affine skip, with it, or both; without it if none is named."""
    return [name == "affine" for name in chosen_names("skip", names or ["none"], ("none", "affine"))]


def _smaller(training: Training) -> Training:
    batch = min(training.batch, 4)
    about = training.about.replace(f"batch {training.batch},", f"batch {batch},")
    return replace(training, batch=batch, about=about)
