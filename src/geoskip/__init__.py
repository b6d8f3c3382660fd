"""geoskip: affine skip connections for any graph convolution.

The block of "Geometrically Principled Connections in Graph Neural Networks" (Gong, Bahri, Bronstein, Zafeiriou,
CVPR 2020), the paper's seven operators, its models and experiments.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geoskip.blocks import AffineSkip, PolynomialSkip, ResidualSkip, add_skips
    from geoskip.graphs import Graph
    from geoskip.models import CorrespondenceNet, GraphClassifier, MeshAutoencoder
    from geoskip.operators import (
        ChebConv,
        FeaStConv,
        GCNConv,
        GINConv,
        MoNetConv,
        RBFConv,
        SpiralConv,
        SplineConv,
    )
    from geoskip.pyg import accelerate
    from geoskip.training import capture, compile_ahead

__version__ = "0.1.0"

__all__ = [
    "AffineSkip",
    "ChebConv",
    "CorrespondenceNet",
    "FeaStConv",
    "GCNConv",
    "GINConv",
    "Graph",
    "GraphClassifier",
    "MeshAutoencoder",
    "MoNetConv",
    "PolynomialSkip",
    "RBFConv",
    "ResidualSkip",
    "SpiralConv",
    "SplineConv",
    "__version__",
    "accelerate",
    "add_skips",
    "capture",
    "compile_ahead",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``geoskip --help`` does not have to load torch."""
    if name in __all__:
        for package in ("graphs", "operators", "blocks", "pyg", "models", "training"):
            module = import_module(f"geoskip.{package}")
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module 'geoskip' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
