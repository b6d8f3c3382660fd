"""The supplement's SplineCNN: m = 1 … 5 control values a dimension, M = m³ matrices, beside MoNet with M = 8.

The paper gives figures for M = 8 and for the best one; the rest it shows as a curve.
"""

from dataclasses import replace

from geoskip.paper.recipe import Experiment, Recipe
from geoskip.paper.rows import MONET, Row, affine, paper

SPLINE = Row("SplineCNN", "spline")
SIZES = (1, 2, 3, 4, 5)


def _placed(row: Row, column: int) -> Recipe:
    section = "M8" if (row.operator, column) in (("monet", 8), ("spline", 2)) else f"m{column}"
    mean = paper()["splinecnn_supplement"].get(section, {}).get(row.method)
    figures = {} if mean is None else {"mean_mm": mean}
    return Recipe("spline_supplement", replace(row, experiment="reconstruction", column=column, figures=figures))


SPLINE_SUPPLEMENT = Experiment(
    "spline_supplement",
    "SplineCNN (supplement)",
    (
        *(_placed(row, size) for size in SIZES for row in (SPLINE, affine(SPLINE))),
        *(_placed(row, 8) for row in (MONET, affine(MONET))),
    ),
)
