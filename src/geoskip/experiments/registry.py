"""Every experiment by its name."""

from geoskip.experiments.centre_ablation import CENTRE_ABLATION
from geoskip.experiments.correspondence import CORRESPONDENCE
from geoskip.experiments.figures import FIGURES
from geoskip.experiments.recipe import Experiment, Recipe
from geoskip.experiments.spline_supplement import SPLINE_SUPPLEMENT
from geoskip.experiments.superpixel_ablation import SUPERPIXEL_ABLATION
from geoskip.experiments.table1 import TABLE1
from geoskip.experiments.table2 import TABLE2
from geoskip.experiments.table3 import TABLE3

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        *(TABLE1, TABLE2, TABLE3, CORRESPONDENCE),
        *(CENTRE_ABLATION, SPLINE_SUPPLEMENT, SUPERPIXEL_ABLATION),
        *FIGURES,
    )
}


def find_experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment: unknown name {name!r}; choose from {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def find_recipe(home: str, label: str) -> Recipe:
    """A recipe by the experiment whose own it is and its label there."""
    for recipe in find_experiment(home).recipes:
        if (recipe.home, recipe.label) == (home, label):
            return recipe
    raise ValueError(f"row: {home} has no {label!r} of its own")
