"""Table 1: shape reconstruction, 14 methods at three kernel sizes."""

from geoskip.paper.recipe import Experiment, Recipe
from geoskip.paper.rows import rows

TABLE1 = Experiment(
    "table1", "Shape reconstruction (Table 1)", tuple(Recipe("table1", row) for row in rows("reconstruction"))
)
