"""Skips around any graph convolution, and skips for a finished model; pooling."""

from geoskip.blocks.base import SKIPS, Skip
from geoskip.blocks.insertion import SkipSummary, add_skips
from geoskip.blocks.pooling import max_pool, mean_over_graphs, mean_pool
from geoskip.blocks.skips import (
    NO_SKIP,
    AffineSkip,
    PolynomialSkip,
    ResidualSkip,
    find_skip,
    make_block,
    only,
    skip_names,
    skip_prefix,
)

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
