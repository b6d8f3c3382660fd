"""Skips around any graph convolution, and skips for a finished model; pooling."""

from geoskip.blocks.affine import AffineSkip
from geoskip.blocks.base import Skip
from geoskip.blocks.insertion import add_skips
from geoskip.blocks.make import make_block
from geoskip.blocks.parts import only
from geoskip.blocks.polynomial import PolynomialSkip
from geoskip.blocks.pooling import max_pool, mean_over_graphs, mean_pool
from geoskip.blocks.residual import ResidualSkip
from geoskip.blocks.summary import SkipSummary

__all__ = [
    "AffineSkip",
    "PolynomialSkip",
    "ResidualSkip",
    "Skip",
    "SkipSummary",
    "add_skips",
    "make_block",
    "max_pool",
    "mean_over_graphs",
    "mean_pool",
    "only",
]
