"""The correspondence curves: MoNet, FeaStNet and GCN with their blocks."""

from geoskip.experiments.recipe import Experiment, Recipe
from geoskip.experiments.rows import rows

CORRESPONDENCE = Experiment(
    "correspondence",
    "Shape correspondence (curves and text)",
    tuple(Recipe("correspondence", row) for row in rows("correspondence")),
)
