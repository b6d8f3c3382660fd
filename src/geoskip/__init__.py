"""geoskip: affine skip connections for any graph convolution.

The block of "Geometrically Principled Connections in Graph Neural Networks" (Gong, Bahri, Bronstein, Zafeiriou,
CVPR 2020), the paper's seven operators, its models and experiments.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geoskip.blocks import AffineSkip, PolynomialSkip, ResidualSkip, add_skips
    from geoskip.graphs import Graph

__version__ = "0.1.0"

_HOME = {
    "AffineSkip": "blocks",
    "Graph": "graphs",
    "PolynomialSkip": "blocks",
    "ResidualSkip": "blocks",
    "add_skips": "blocks",
}

__all__ = ["AffineSkip", "Graph", "PolynomialSkip", "ResidualSkip", "__version__", "add_skips"]


def __getattr__(name: str) -> Any:
    """Names are loaded when they are used, so that ``geoskip --help`` need not wait for torch."""
    if name in _HOME:
        return getattr(import_module(f"geoskip.{_HOME[name]}"), name)
    raise AttributeError(f"module 'geoskip' has no attribute {name!r}")
