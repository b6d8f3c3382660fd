"""The centre vertex: ChebNet and SpiralNet++ with a weight of its own for it, and without (†), at every kernel size.

The paper's text has kernel size 9; its Table 1, whose first rows these are, has all three.
"""

from geoskip.paper.recipe import Experiment
from geoskip.paper.table1 import TABLE1

CENTRE_ABLATION = Experiment(
    "centre_ablation",
    "A weight for the centre vertex (ablation, first rows of Table 1)",
    TABLE1.select(["ChebNet†", "ChebNet", "SpiralNet++†", "SpiralNet++"]),
)
