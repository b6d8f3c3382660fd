"""The rows of the paper's tables: the methods, the published figures, and the models at the paper's sizes.

A row is written as a variation of a plain operator, such as ``affine(MONET)`` or ``larger(FEAST)``. The published
figures are in ``paper.json``, with the exact number of trainable parameters of each architecture.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from geoskip.graphs import Graph, SparseMatrix
from geoskip.graphs.hierarchy import Hierarchy
from geoskip.models import CorrespondenceNet, GraphClassifier, MeshAutoencoder
from geoskip.operators import operator_info

# Vertices of CoMA's template after quadric decimation by 4, four times; vertices of FAUST's template; digits.
COMA_SIZES = (5023, 1256, 314, 79, 20)
FAUST_CLASSES = 6890
DIGITS = 10


@dataclass(frozen=True)
class PaperRow:
    """One row of a table in the paper.

    Attributes:
        method: the method's name as printed in the paper.
        operator: the name for :func:`geoskip.operators.make_operator`.
        skip: the name for :func:`geoskip.blocks.make_block`.
        experiment: ``"reconstruction"``, ``"superpixels"`` or ``"correspondence"``.
        column: the kernel size M of the row's column; None if the operator has no kernel size.
        more: weight matrices beyond M; 1 for the paper's MoNet+ and FeaStNet+.
        pseudo: ``"position"`` or ``"degree"`` where a table compares pseudo-coordinates.
        options: further options of the operator.
        figures: the published figures, and ``params``.
    """

    method: str
    operator: str
    skip: str = "none"
    experiment: str = ""
    column: int | None = None
    more: int = 0
    pseudo: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kernel_size(self) -> int | None:
        return None if self.column is None else self.column + self.more

    @property
    def matrices(self) -> int | None:
        """Weight matrices of a convolution: M, or m³ for SplineCNN, which is only trained on meshes."""
        size = self.kernel_size
        return size**3 if size is not None and self.operator == "spline" else size


CHEB = PaperRow("ChebNet", "cheb")
SPIRAL = PaperRow("SpiralNet++", "spiral")
FEAST = PaperRow("FeaStNet", "feast")
MONET = PaperRow("MoNet", "monet")
GCN = PaperRow("GCN", "gcn")
GIN = PaperRow("GIN-0", "gin")


def residual(row: PaperRow) -> PaperRow:
    return replace(row, method=f"Res-{row.method}", skip="residual")


def affine(row: PaperRow) -> PaperRow:
    return replace(row, method=f"Aff-{row.method}", skip="affine")


def larger(row: PaperRow) -> PaperRow:
    """With one more weight matrix, so that it has as many as with an affine skip."""
    return replace(row, method=f"{row.method}+", more=1)


def daggered(row: PaperRow) -> PaperRow:
    """The paper's †: no separate weight for the center vertex (ChebNet, SpiralNet++), or no self-loops (FeaStNet)."""
    return replace(row, method=f"{row.method}†", options=dict(operator_info(row.operator).without_center))


def by_position(row: PaperRow) -> PaperRow:
    return replace(row, pseudo="position")


def by_degree(row: PaperRow) -> PaperRow:
    return replace(row, pseudo="degree")


METHODS: dict[str, tuple[PaperRow, ...]] = {
    "reconstruction": (
        *(daggered(CHEB), CHEB, residual(CHEB)),
        *(daggered(SPIRAL), SPIRAL, residual(SPIRAL)),
        *(FEAST, larger(FEAST), residual(FEAST), affine(FEAST)),
        *(MONET, larger(MONET), residual(MONET), affine(MONET)),
    ),
    "superpixels": (
        GIN,
        *(GCN, residual(GCN), affine(GCN)),
        *(FEAST, residual(FEAST), affine(FEAST)),
        *map(by_degree, (MONET, residual(MONET), affine(MONET))),
        *map(by_position, (MONET, residual(MONET), affine(MONET))),
    ),
    "correspondence": (
        *(FEAST, affine(FEAST), daggered(FEAST), daggered(affine(FEAST))),
        *(MONET, affine(MONET)),
        *(GCN, residual(GCN), affine(GCN)),
    ),
}
COLUMNS = {"reconstruction": (4, 9, 14), "superpixels": (25,), "correspondence": (10,)}


def rows(experiment: str) -> tuple[PaperRow, ...]:
    """All rows of an experiment, column by column."""
    if experiment not in METHODS:
        raise ValueError(f"experiment: unknown name {experiment!r}; choose from {', '.join(METHODS)}")
    return tuple(
        in_table(method, experiment, column) for column in COLUMNS[experiment] for method in METHODS[experiment]
    )


def all_rows() -> tuple[PaperRow, ...]:
    return tuple(row for experiment in METHODS for row in rows(experiment))


def in_table(method: PaperRow, experiment: str, column: int) -> PaperRow:
    """A method as a row of an experiment, with the published figures."""
    sized = operator_info(method.operator).has_kernel_size
    row = replace(method, experiment=experiment, column=column if sized else None)
    return replace(row, figures=_figures(row, column))


def _figures(row: PaperRow, column: int) -> Mapping[str, Any]:
    if row.experiment == "reconstruction":
        return paper()["table1_reconstruction"][str(column)][row.method]
    table = paper()["table2_superpixels" if row.experiment == "superpixels" else "correspondence_faust"]
    return next(entry for entry in table if (entry["method"], entry.get("pseudo")) == (row.method, row.pseudo))


@cache
def paper() -> Mapping[str, Any]:
    """All figures of the paper's tables."""
    return json.loads(files(__package__).joinpath("paper.json").read_text(encoding="utf-8"))


def paper_model(row: PaperRow) -> nn.Module:
    """The model of a row at the paper's size. Autoencoders get a hierarchy without edges: no data is needed."""
    chosen = {"operator": row.operator, "skip": row.skip, "kernel_size": row.kernel_size, **row.options}
    with torch.random.fork_rng(devices=[]):
        if row.experiment == "reconstruction":
            return MeshAutoencoder(edgeless_hierarchy(COMA_SIZES), **chosen)
        if row.experiment == "correspondence":
            return CorrespondenceNet(FAUST_CLASSES, **chosen)
        return GraphClassifier(dim=1 if row.pseudo == "degree" else 2, num_classes=DIGITS, **chosen)


def num_parameters(model: nn.Module) -> int:
    """The number of trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


@cache
def edgeless_hierarchy(sizes: tuple[int, ...], dim: int = 3) -> Hierarchy:
    """Levels of the given sizes without edges, and pooling matrices without entries."""
    none = torch.empty(0, dtype=torch.long)
    levels = [Graph.from_edge_index(torch.stack([none, none]), size, torch.empty(0, dim)) for size in sizes]
    up = [SparseMatrix.from_entries(none, none, torch.empty(0), step) for step in pairwise(sizes)]
    down = [SparseMatrix.from_entries(none, none, torch.empty(0), step[::-1]) for step in pairwise(sizes)]
    return Hierarchy.from_matrices(levels, down, up)
