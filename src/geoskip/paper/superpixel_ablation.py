"""Superpixels: the recipe of the authors' public code, and what each single difference from it changes.

Nothing here looks at the test set: a tenth of the training set is set aside, and rows are compared on it. Rows differ
from the recipe of the authors in one setting each; ``stored levels`` is the earlier recipe, which differs in all of
them. Pseudo-coordinates and the initial values of MoNet have no effect on GCN. The public code has polar coordinates at
the finest level; the paper says Cartesian, and the recipe follows the paper.
"""

from geoskip.paper.recipe import NO_TEST, Experiment, Recipe
from geoskip.paper.rows import GCN, MONET, Row, affine, by_degree, by_position, place

VALIDATED = ("validation=0.1", NO_TEST, "evaluate_every=5")
AUTHORS = (
    "coarsening.matchings=1",
    "coarsening.drawn=epoch",
    "coarsening.weight=far",
    "pseudo_scale=batch",
    "options.init=authors",
)
# The settings of a variant replace those of the authors; None leaves one out.
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
BY_MONET = ("pseudo_scale", "options.init")
BY_POSITION = ("finest_pseudo",)
METHODS = tuple(place(row, "superpixels", 25) for row in (by_position(MONET), by_degree(MONET), GCN, affine(GCN)))


def _settings(row: Row, changes: dict[str, str | None]) -> tuple[str, ...]:
    chosen = dict(setting.split("=") for setting in AUTHORS) | changes
    others = (*(() if row.operator == "monet" else BY_MONET), *(() if row.pseudo == "position" else BY_POSITION))
    own = {name: value for name, value in chosen.items() if name not in others}
    return (*(f"{name}={value}" for name, value in own.items() if value is not None), *VALIDATED)


def _recipes() -> tuple[Recipe, ...]:
    made: dict[tuple[str, tuple[str, ...]], Recipe] = {}
    for variant, changes in VARIANTS.items():
        for row in METHODS:
            recipe = Recipe("superpixel_ablation", row, variant, _settings(row, changes))
            # Where a variant changes nothing for a method, there is nothing to train.
            made.setdefault((recipe.method, recipe.settings), recipe)
    return tuple(made.values())


SUPERPIXEL_ABLATION = Experiment(
    "superpixel_ablation",
    "Superpixels: differences from the authors' code (validation accuracy, %)",
    _recipes(),
)
