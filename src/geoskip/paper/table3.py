"""Table 3: FeaStNet with and without self-loops (†), with and without affine skips, on three tasks.

Most of its rows are rows of other tables; those without self-loops on reconstruction and classification are its own.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from geoskip.paper.correspondence import CORRESPONDENCE
from geoskip.paper.recipe import Experiment, Recipe
from geoskip.paper.rows import FEAST, Row, affine, daggered, paper
from geoskip.paper.table1 import TABLE1
from geoskip.paper.table2 import TABLE2


def _figures(section: str, method: str, params: int) -> Mapping[str, Any]:
    found = paper()["table3_self_loops"][section][method]
    named = dict(zip(("mean_mm", "std_mm", "median_mm"), found, strict=True)) if isinstance(found, list) else {}
    return {**(named or {"accuracy_pct": found}), "params": params}


def _without_loops(recipe: Recipe, section: str) -> Recipe:
    """The † of a row of another table; self-loops have no parameters."""
    row: Row = daggered(affine(FEAST) if recipe.row.skip == "affine" else FEAST)
    figures = _figures(section, row.method, recipe.row.figures["params"])
    return Recipe("table3", replace(row, experiment=recipe.row.experiment, column=recipe.row.column, figures=figures))


def _both(pair: tuple[Recipe, ...], section: str) -> tuple[Recipe, ...]:
    return (*pair, *(_without_loops(recipe, section) for recipe in pair))


PAIR = ("FeaStNet", "Aff-FeaStNet")
TABLE3 = Experiment(
    "table3",
    "Self-loops or affine skips (Table 3)",
    (
        *_both(TABLE1.select([f"{name} M=9" for name in PAIR]), "reconstruction_M9"),
        *CORRESPONDENCE.select([*PAIR, *(f"{name}†" for name in PAIR)]),
        *_both(TABLE2.select(PAIR), "classification_M25"),
    ),
)
