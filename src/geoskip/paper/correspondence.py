"""The correspondence curves: MoNet, FeaStNet and GCN with their blocks."""

from geoskip.paper.recipe import Experiment, Recipe
from geoskip.paper.rows import rows

CORRESPONDENCE = Experiment(
    "correspondence",
    "Shape correspondence (curves and text)",
    tuple(Recipe("correspondence", row) for row in rows("correspondence")),
)
