"""The figures that show meshes: which runs they need, and what is drawn of each run's samples.

They need no training of their own: what they show comes from runs of Table 1 and of the correspondence.
"""

from geoskip.paper.correspondence import CORRESPONDENCE
from geoskip.paper.recipe import Experiment, Recipe
from geoskip.paper.table1 import TABLE1

ADDITION = ("FeaStNet", "Aff-FeaStNet", "MoNet", "Aff-MoNet")
ABLATION = ("ChebNet†", "ChebNet", "SpiralNet++†", "SpiralNet++")
MATCHING = (*ADDITION, "GCN", "Res-GCN", "Aff-GCN")


def _faces(names: tuple[str, ...], size: int) -> tuple[Recipe, ...]:
    return TABLE1.select([f"{name} M={size}" for name in names])


# Reconstructions saturate at 5 mm, correspondences at 10 % of the geodesic diameter.
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
