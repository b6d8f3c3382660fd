"""The paper's tables and figures as experiments: the recipes that each one needs.

A row that several tables show is trained once: each recipe belongs to one experiment, and the others refer to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from geoskip.paper.recipes import NO_TEST, Experiment, Recipe
from geoskip.paper.rows import (
    FEAST,
    GCN,
    MONET,
    PaperRow,
    affine,
    by_degree,
    by_position,
    daggered,
    in_table,
    paper,
    rows,
)

TABLE1 = Experiment(
    "table1", "Shape reconstruction (Table 1)", tuple(Recipe("table1", row) for row in rows("reconstruction"))
)
TABLE2 = Experiment("table2", "Superpixel MNIST (Table 2)", tuple(Recipe("table2", row) for row in rows("superpixels")))
CORRESPONDENCE = Experiment(
    "correspondence",
    "Shape correspondence (curves and text)",
    tuple(Recipe("correspondence", row) for row in rows("correspondence")),
)
# The paper's text compares kernel size 9; Table 1, whose first rows these are, has all three.
CENTER_ABLATION = Experiment(
    "center_ablation",
    "A weight for the center vertex (ablation, first rows of Table 1)",
    TABLE1.select(["ChebNet†", "ChebNet", "SpiralNet++†", "SpiralNet++"]),
)

# Table 3: FeaStNet with and without self-loops (†), with and without affine skips, on three tasks. Most of its rows are
# rows of other tables. Those without self-loops on reconstruction and classification are its own.
FEAST_PAIR = ("FeaStNet", "Aff-FeaStNet")


def _without_loops(recipe: Recipe, section: str) -> Recipe:
    """The † of a row of another table. Self-loops have no parameters, so the count is the same."""
    row = daggered(affine(FEAST) if recipe.row.skip == "affine" else FEAST)
    figures = {**_table3_figures(section, row.method), "params": recipe.row.figures["params"]}
    return Recipe("table3", replace(row, experiment=recipe.row.experiment, column=recipe.row.column, figures=figures))


def _table3_figures(section: str, method: str) -> Mapping[str, Any]:
    printed = paper()["table3_self_loops"][section][method]
    if isinstance(printed, list):
        return dict(zip(("mean_mm", "std_mm", "median_mm"), printed, strict=True))
    return {"accuracy_pct": printed}


def _with_and_without_loops(pair: tuple[Recipe, ...], section: str) -> tuple[Recipe, ...]:
    return (*pair, *(_without_loops(recipe, section) for recipe in pair))


TABLE3 = Experiment(
    "table3",
    "Self-loops or affine skips (Table 3)",
    (
        *_with_and_without_loops(TABLE1.select([f"{name} M=9" for name in FEAST_PAIR]), "reconstruction_M9"),
        *CORRESPONDENCE.select([*FEAST_PAIR, *(f"{name}†" for name in FEAST_PAIR)]),
        *_with_and_without_loops(TABLE2.select(FEAST_PAIR), "classification_M25"),
    ),
)

# The supplement's SplineCNN: m = 1 … 5 control values per dimension give M = m³ matrices, compared with MoNet at M = 8.
# The paper prints figures for M = 8 and for the best one, and shows the rest as a curve.
SPLINE = PaperRow("SplineCNN", "spline")
SPLINE_SIZES = (1, 2, 3, 4, 5)


def _spline_recipe(row: PaperRow, column: int) -> Recipe:
    section = "M8" if (row.operator, column) in (("monet", 8), ("spline", 2)) else f"m{column}"
    mean = paper()["splinecnn_supplement"].get(section, {}).get(row.method)
    figures = {} if mean is None else {"mean_mm": mean}
    return Recipe("spline_supplement", replace(row, experiment="reconstruction", column=column, figures=figures))


SPLINE_SUPPLEMENT = Experiment(
    "spline_supplement",
    "SplineCNN (supplement)",
    (
        *(_spline_recipe(row, size) for size in SPLINE_SIZES for row in (SPLINE, affine(SPLINE))),
        *(_spline_recipe(row, 8) for row in (MONET, affine(MONET))),
    ),
)

# Superpixels: the recipe of the authors' public code, and variants that differ from it in one setting each. A tenth of
# the training set is held out, and rows are compared on it: the test set is not used. "stored levels" is the earlier
# recipe, which differs in all settings. The public code has polar coordinates at the finest level; the paper says
# Cartesian, and the recipe follows the paper.
VALIDATED = ("validation=0.1", NO_TEST, "evaluate_every=5")
AUTHORS = (
    "coarsening.matchings=1",
    "coarsening.drawn=epoch",
    "coarsening.weight=far",
    "pseudo_scale=batch",
    "options.init=authors",
)
# The settings of a variant replace the authors'; None removes one.
VARIANTS: dict[str, dict[str, str | None]] = {
    "authors' recipe": {},
    "two matchings per pooling": {"coarsening.matchings": "2"},
    "one coarsening for all epochs": {"coarsening.drawn": "frozen"},
    "near neighbors first": {"coarsening.weight": "near"},
    "one scale for the whole set": {"pseudo_scale": None},
    "initial values of the paper": {"options.init": None},
    "polar coordinates at the finest level": {"finest_pseudo": "polar"},
    "mean pooling": {"model.pooling": "mean"},
    "compactness 0.1": {"data_options.compactness": "0.1"},
    "compactness 1": {"data_options.compactness": "1.0"},
    "8 neighbors on average": {"data_options.degree": "8.0"},
    "stored levels": dict.fromkeys(setting.partition("=")[0] for setting in AUTHORS),
}
# Settings without effect on other operators, and on other pseudo-coordinates.
MONET_SETTINGS = ("pseudo_scale", "options.init")
POSITION_SETTINGS = ("finest_pseudo",)


def _variant_settings(row: PaperRow, changes: dict[str, str | None]) -> tuple[str, ...]:
    chosen = dict(setting.split("=") for setting in AUTHORS) | changes
    without_effect = (
        *(() if row.operator == "monet" else MONET_SETTINGS),
        *(() if row.pseudo == "position" else POSITION_SETTINGS),
    )
    kept = {name: value for name, value in chosen.items() if name not in without_effect}
    return (*(f"{name}={value}" for name, value in kept.items() if value is not None), *VALIDATED)


def _superpixel_recipes() -> tuple[Recipe, ...]:
    methods = [in_table(row, "superpixels", 25) for row in (by_position(MONET), by_degree(MONET), GCN, affine(GCN))]
    recipes: dict[tuple[str, tuple[str, ...]], Recipe] = {}
    for variant, changes in VARIANTS.items():
        for row in methods:
            recipe = Recipe("superpixel_ablation", row, variant, _variant_settings(row, changes))
            # A variant that changes nothing for a method needs no training.
            recipes.setdefault((recipe.method, recipe.settings), recipe)
    return tuple(recipes.values())


SUPERPIXEL_ABLATION = Experiment(
    "superpixel_ablation",
    "Superpixels: differences from the authors' code (validation accuracy, %)",
    _superpixel_recipes(),
)

# The figures that show meshes. They need no training of their own: their runs are those of Table 1 and of the
# correspondence. Colors saturate at 5 mm for reconstructions, at 10 % of the geodesic diameter for correspondences.
ADDITION = ("FeaStNet", "Aff-FeaStNet", "MoNet", "Aff-MoNet")
ABLATION = ("ChebNet†", "ChebNet", "SpiralNet++†", "SpiralNet++")
MATCHING = (*ADDITION, "GCN", "Res-GCN", "Aff-GCN")


def _faces(names: tuple[str, ...], size: int) -> tuple[Recipe, ...]:
    return TABLE1.select([f"{name} M={size}" for name in names])


FIGURES = (
    Experiment(
        "error_maps", "Error at each vertex of reconstructions (supplement)", _faces(ADDITION + ABLATION, 14), "errors"
    ),
    Experiment(
        "matching_maps",
        "Geodesic error at each vertex (figure of GCN, supplement)",
        CORRESPONDENCE.select(MATCHING),
        "errors",
    ),
    Experiment(
        "reconstructions",
        "Sample reconstructions: addition and ablation",
        _faces(ADDITION + ABLATION, 9),
        "reconstructions",
    ),
    # The paper does not say which M its figure has.
    Experiment("affine_only", "Decoding through the affine skips only", _faces(("Aff-MoNet",), 9), "affine"),
)

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        *(TABLE1, TABLE2, TABLE3, CORRESPONDENCE),
        *(CENTER_ABLATION, SPLINE_SUPPLEMENT, SUPERPIXEL_ABLATION),
        *FIGURES,
    )
}


def find_experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment: unknown name {name!r}; choose from {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def find_recipe(home: str, label: str) -> Recipe:
    """A recipe by the experiment that it belongs to and its label."""
    for recipe in find_experiment(home).recipes:
        if (recipe.home, recipe.label) == (home, label):
            return recipe
    raise ValueError(f"row: {home} has no row {label!r} of its own")
