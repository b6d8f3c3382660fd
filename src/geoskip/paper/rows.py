"""The rows of the paper's tables: which method, and what the paper says of it.

A row is a variation of a plain operator, so that only the difference shows: ``affine(MONET)``, ``larger(FEAST)``. The
figures are in ``paper.json``, with the exact number of trainable parameters that each architecture gives.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

from geoskip.operators import operator_info


@dataclass(frozen=True)
class Row:
    """One row of a table.

    Attributes:
        method: as the paper prints it.
        operator: as :func:`geoskip.operators.make_operator` names it.
        skip: as :func:`geoskip.blocks.make_block` names it.
        experiment: ``"reconstruction"``, ``"superpixels"`` or ``"correspondence"``.
        column: the M that the row stands under, None where the operator has no kernel size.
        more: weight matrices beyond M; 1 for the paper's MoNet+ and FeaStNet+.
        pseudo: what pseudo-coordinates are made of, where a table compares several: ``"position"`` or ``"degree"``.
        options: further options of the operator.
        figures: what the paper reports, and ``params``.
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


CHEB = Row("ChebNet", "cheb")
SPIRAL = Row("SpiralNet++", "spiral")
FEAST = Row("FeaStNet", "feast")
MONET = Row("MoNet", "monet")
GCN = Row("GCN", "gcn")
GIN = Row("GIN-0", "gin")


def residual(row: Row) -> Row:
    return replace(row, method=f"Res-{row.method}", skip="residual")


def affine(row: Row) -> Row:
    return replace(row, method=f"Aff-{row.method}", skip="affine")


def larger(row: Row) -> Row:
    """One more weight matrix, as many as with an affine skip."""
    return replace(row, method=f"{row.method}+", more=1)


def daggered(row: Row) -> Row:
    """Without a weight of the centre vertex's own (ChebNet, SpiralNet++), or without self-loops (FeaStNet)."""
    return replace(row, method=f"{row.method}†", options=dict(operator_info(row.operator).without_center))


def by_position(row: Row) -> Row:
    return replace(row, pseudo="position")


def by_degree(row: Row) -> Row:
    return replace(row, pseudo="degree")


METHODS: dict[str, tuple[Row, ...]] = {
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


def rows(experiment: str) -> tuple[Row, ...]:
    """Every row of an experiment, column by column."""
    if experiment not in METHODS:
        raise ValueError(f"experiment: unknown name {experiment!r}; choose from {', '.join(METHODS)}")
    return tuple(place(method, experiment, column) for column in COLUMNS[experiment] for method in METHODS[experiment])


def all_rows() -> tuple[Row, ...]:
    return tuple(row for experiment in METHODS for row in rows(experiment))


def place(method: Row, experiment: str, column: int) -> Row:
    """A method as the row of an experiment, with the paper's figures."""
    sized = operator_info(method.operator).has_kernel_size
    row = replace(method, experiment=experiment, column=column if sized else None)
    return replace(row, figures=_figures(row, column))


def _figures(row: Row, column: int) -> Mapping[str, Any]:
    if row.experiment == "reconstruction":
        return paper()["table1_reconstruction"][str(column)][row.method]
    table = paper()["table2_superpixels" if row.experiment == "superpixels" else "correspondence_faust"]
    return next(entry for entry in table if (entry["method"], entry.get("pseudo")) == (row.method, row.pseudo))


@cache
def paper() -> Mapping[str, Any]:
    """Every figure of the paper's tables."""
    return json.loads(files(__package__).joinpath("paper.json").read_text(encoding="utf-8"))
