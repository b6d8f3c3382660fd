"""Every experiment by its name."""

from geoskip.paper.centre_ablation import CENTRE_ABLATION
from geoskip.paper.correspondence import CORRESPONDENCE
from geoskip.paper.figures import FIGURES
from geoskip.paper.recipe import Experiment, Recipe
from geoskip.paper.spline_supplement import SPLINE_SUPPLEMENT
from geoskip.paper.superpixel_ablation import SUPERPIXEL_ABLATION
from geoskip.paper.table1 import TABLE1
from geoskip.paper.table2 import TABLE2
from geoskip.paper.table3 import TABLE3

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
