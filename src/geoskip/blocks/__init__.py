"""Skips around any graph convolution, and skips for a finished model; pooling."""

from geoskip.blocks.affine import AffineSkip
from geoskip.blocks.base import NO_SKIP, SKIPS, Skip
from geoskip.blocks.insertion import add_skips
from geoskip.blocks.make import find_skip, make_block, skip_names, skip_prefix
from geoskip.blocks.parts import only
from geoskip.blocks.polynomial import PolynomialSkip
from geoskip.blocks.pooling import max_pool, mean_over_graphs, mean_pool
from geoskip.blocks.residual import ResidualSkip
from geoskip.blocks.summary import SkipSummary

__all__ = [
    "NO_SKIP",
    "SKIPS",
    "AffineSkip",
    "PolynomialSkip",
    "ResidualSkip",
    "Skip",
    "SkipSummary",
    "add_skips",
    "find_skip",
    "make_block",
    "max_pool",
    "mean_over_graphs",
    "mean_pool",
    "only",
    "skip_names",
    "skip_prefix",
]
