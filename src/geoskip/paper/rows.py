"""The rows of the paper's tables: methods, published figures, configurations to train them, models at the paper's size.

The published figures are in ``paper.json``, with the exact number of trainable parameters of each architecture.

A schedule says how long a row is trained. ``full`` is the paper's; ``first200`` is its first 200 epochs; ``in60``
passes through all of its learning rates in 60 epochs; any other number will do. ``smoke`` is a step or two. ``short``
passes through the paper's learning rates faster, or stops before the lowest ones; see :data:`SHORT`. The last epoch
counts in all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from geoskip.blocks import skip_prefix
from geoskip.graphs import Graph, SparseMatrix
from geoskip.graphs.graph_hierarchy import Hierarchy
from geoskip.models import CorrespondenceNet, GraphClassifier, MeshAutoencoder
from geoskip.operators import operator_info
from geoskip.report.runs import TASK_DESCRIPTIONS, VALIDATION, Metric

if TYPE_CHECKING:
    from geoskip.training.config import Config, Optim

# The skips that the paper compares.
SKIPS = ("none", "residual", "affine")
# Vertices of CoMA's template after quadric decimation by 4, four times; vertices of FAUST's template; digits.
COMA_SIZES = (5023, 1256, 314, 79, 20)
FAUST_CLASSES = 6890
DIGITS = 10
# Steps between checkpoints: the fastest rows take a thousand steps in less than half a second.
CHECKPOINT_EVERY = 5000
# A few generated items for every task; see geoskip.paper.small_sets.
TINY = "tiny"


@dataclass(frozen=True)
class PaperRow:
    """One row of a table in the paper. With data, schedule and seed it becomes a configuration.

    Attributes:
        method: the method's name as printed in the paper.
        operator: the name for :func:`geoskip.operators.make_operator`.
        skip: the name for :func:`geoskip.blocks.make_block`.
        task: ``"reconstruction"``, ``"classification"`` or ``"correspondence"``.
        column: the kernel size M of the row's column; None if the operator has no kernel size.
        more: weight matrices beyond M; 1 for the paper's MoNet+ and FeaStNet+.
        pseudo: ``"position"`` or ``"degree"`` where a table compares pseudo-coordinates.
        options: further options of the operator.
        figures: the published figures, and ``params``.
        home: the experiment that its records belong to. Table 3 repeats rows of Tables 1 and 2, which are trained once.
        settings: where the configuration differs from the task's defaults, such as ``coarsening.matchings=1``.
        variant: for an ablation, the difference from the other rows in a few words.
    """

    method: str
    operator: str
    skip: str = "none"
    task: str = ""
    column: int | None = None
    more: int = 0
    pseudo: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    home: str = ""
    variant: str = ""
    settings: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash((self.home, self.label))

    @property
    def kernel_size(self) -> int | None:
        return None if self.column is None else self.column + self.more

    @property
    def matrices(self) -> int | None:
        """Weight matrices of a convolution: M, or m³ for SplineCNN, which is only trained on meshes."""
        size = self.kernel_size
        return size**3 if size is not None and self.operator == "spline" else size

    @property
    def title(self) -> str:
        """The method with its pseudo-coordinates, if several are compared: ``Aff-MoNet (degree)``."""
        return self.method if self.pseudo is None else f"{self.method} ({self.pseudo})"

    @property
    def line(self) -> str:
        """The name of its line in a table: the method, or the variant of an ablation."""
        return self.variant or self.title

    @property
    def label(self) -> str:
        """Unique in its experiment: ``Aff-MoNet M=9``; for SplineCNN m instead of M = m³."""
        letter = "m" if self.operator == "spline" else "M"
        sized = self.title if self.column is None else f"{self.title} {letter}={self.column}"
        return f"{sized}, {self.variant}" if self.variant else sized

    @property
    def slug(self) -> str:
        """The label as a file name."""
        plain = self.label.replace("++", "pp").replace("+", "-plus").replace("†", "-dagger").lower()
        return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the task, the main one first; of the validation items if the test set is not used."""
        prefix = VALIDATION if "test=false" in self.settings else ""
        return tuple(prefix + metric.key for metric in TASK_DESCRIPTIONS[self.task].metrics)

    def metric(self, name: str) -> Metric:
        """What is known about one of its figures, by the name in records."""
        key = name.removeprefix(VALIDATION)
        return next(metric for metric in TASK_DESCRIPTIONS[self.task].metrics if metric.key == key)

    @property
    def paper(self) -> Mapping[str, float]:
        """The published figures, with the metric names of records."""
        return {name: float(value) for name, value in self.figures.items() if name in self.metrics}

    def config(self, data: str, schedule: str, seed: int, device: str = "auto") -> Config:
        from geoskip.training.config import override, resolve

        full = resolve(
            self.task,
            data=data,
            operator=self.operator,
            skip=self.skip,
            kernel_size=self.kernel_size,
            pseudo=self.pseudo,
            options=dict(self.options),
            # Coarsening the 42 vertices of the tiny template by 4, four times, would leave none.
            model={"factors": [2, 2, 2, 2]} if data == TINY and self.task == "reconstruction" else {},
            seed=seed,
            device=device,
            checkpoint_every=CHECKPOINT_EVERY,
        )
        # The short schedule is older than the recipe of superpixels, and trains without it.
        settings = self.settings if self.variant or schedule != "short" else ()
        return shortened(override(full, settings), schedule)


@dataclass(frozen=True)
class Short:
    """``epochs`` that pass through ``speed`` times as many epochs of the paper's learning rates."""

    epochs: int
    speed: int
    tf32: bool = False


# Classification leaves out the paper's last 380 epochs, with rates of 1/16 and below; correspondence the last 700, with
# rates of 1/20 and below (FeaStNet: 1/8), and it multiplies matrices in TensorFloat-32 on a GPU.
SHORT = {
    "reconstruction": Short(epochs=6, speed=50),
    "correspondence": Short(epochs=300, speed=1, tf32=True),
    "classification": Short(epochs=20, speed=6),
}


def shortened(config: Config, schedule: str) -> Config:
    """The configuration with another schedule than the paper's."""
    optim = config.optim
    if numbered := re.fullmatch(r"(first|in)([1-9]\d*)", schedule):
        epochs = int(numbered[2])
        if epochs > optim.epochs:
            raise ValueError(f"schedule: {schedule} is longer than the paper's {optim.epochs} epochs; use full")
        speed = 1.0 if numbered[1] == "first" else optim.epochs / epochs
        return replace(config, optim=faster(optim, epochs, speed))
    if schedule == "full":
        return config
    if schedule == "smoke":
        return replace(config, optim=replace(optim, epochs=1), train_items=4, test_items=2)
    if schedule != "short":
        choices = "full, short, smoke, or a number of epochs, such as first200 or in60"
        raise ValueError(f"schedule: unknown name {schedule!r}; choose from {choices}")
    short = SHORT[config.task]
    return replace(config, optim=faster(optim, short.epochs, short.speed), tf32=config.tf32 or short.tf32)


def faster(optim: Optim, epochs: int, speed: float) -> Optim:
    """``epochs`` that pass through ``speed`` times as many epochs of learning rates."""
    if optim.decay_every % speed == 0:
        decay, every = optim.lr_decay, int(optim.decay_every / speed)
    else:
        decay, every = optim.lr_decay ** (speed / optim.decay_every), 1
    return replace(optim, epochs=epochs, lr_decay=decay, decay_every=every)


@cache
def paper() -> Mapping[str, Any]:
    """All figures of the paper's tables."""
    return json.loads(files(__package__).joinpath("paper.json").read_text(encoding="utf-8"))


def table_rows(home: str, task: str) -> tuple[PaperRow, ...]:
    """The rows of a printed table, in its order: ``{M: {method: figures}}``."""
    return tuple(
        printed_row(home, task, int(column), method, figures)
        for column, methods in paper()[home].items()
        for method, figures in methods.items()
    )


def printed_row(home: str, task: str, column: int, method: str, figures: Mapping[str, Any]) -> PaperRow:
    """A row from its printed name, such as ``Aff-FeaStNet†`` or ``MoNet (degree)``."""
    name, _, pseudo = method.removesuffix(")").partition(" (")
    skip = next((skip for skip in SKIPS[1:] if name.startswith(skip_prefix(skip))), "none")
    plain = name.removeprefix(skip_prefix(skip)).removesuffix("†")
    # MoNet+ has one more weight matrix, so that it has as many as with an affine skip.
    larger = plain not in _operators()
    operator = _operators()[plain.removesuffix("+") if larger else plain]
    return PaperRow(
        name,
        operator,
        skip,
        task,
        column if operator_info(operator).has_kernel_size else None,
        more=int(larger),
        pseudo=pseudo or None,
        # The paper's †: no separate weight for the center vertex (ChebNet, SpiralNet++), or no self-loops (FeaStNet).
        options=dict(operator_info(operator).without_center) if name.endswith("†") else {},
        figures=figures,
        home=home,
    )


@cache
def _operators() -> Mapping[str, str]:
    """The paper's operators by their printed names."""
    return {operator_info(name).title: name for name in ("cheb", "spiral", "feast", "spline", "monet", "gcn", "gin")}


def paper_model(row: PaperRow) -> nn.Module:
    """The model of a row at the paper's size. Autoencoders get a hierarchy without edges: no data is needed."""
    chosen = {"operator": row.operator, "skip": row.skip, "kernel_size": row.kernel_size, **row.options}
    with torch.random.fork_rng(devices=[]):
        if row.task == "reconstruction":
            return MeshAutoencoder(edgeless_hierarchy(COMA_SIZES), **chosen)
        if row.task == "correspondence":
            return CorrespondenceNet(FAUST_CLASSES, **chosen)
        return GraphClassifier(dim=1 if row.pseudo == "degree" else 2, num_classes=DIGITS, **chosen)


def num_parameters(model: nn.Module) -> int:
    """The number of trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


@cache
def edgeless_hierarchy(sizes: tuple[int, ...]) -> Hierarchy:
    """Levels of the given sizes without edges, and pooling matrices without entries."""
    none = torch.empty(0, dtype=torch.long)
    levels = [Graph.from_edge_index(torch.stack([none, none]), size, torch.empty(0, 3)) for size in sizes]
    up = [SparseMatrix.from_entries(none, none, torch.empty(0), step) for step in pairwise(sizes)]
    down = [SparseMatrix.from_entries(none, none, torch.empty(0), step[::-1]) for step in pairwise(sizes)]
    return Hierarchy.from_matrices(levels, down, up)
