"""Table 2: classification of superpixel graphs, 13 methods."""

from geoskip.paper.recipe import Experiment, Recipe
from geoskip.paper.rows import rows

TABLE2 = Experiment("table2", "Superpixel MNIST (Table 2)", tuple(Recipe("table2", row) for row in rows("superpixels")))
