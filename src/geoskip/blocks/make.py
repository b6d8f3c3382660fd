"""From the name of a skip to a block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from geoskip.blocks.affine import AffineSkip
from geoskip.blocks.base import Skip
from geoskip.blocks.polynomial import PolynomialSkip
from geoskip.blocks.residual import ResidualSkip

SKIPS: dict[str, Callable[..., Skip]] = {"affine": AffineSkip, "polynomial": PolynomialSkip, "residual": ResidualSkip}


def make_block(conv: nn.Module, skip: str = "none", **options: Any) -> nn.Module:
    """``conv`` with a skip around it: ``"none"`` (``conv`` itself), ``"residual"``, ``"affine"`` or ``"polynomial"``.

    ``options`` are those of the skip's class; ``"none"`` has none.
    """
    if skip == "none":
        if options:
            raise ValueError(f"make_block: skip='none' takes no options, got {sorted(options)}")
        return conv
    if not isinstance(skip, str) or skip not in SKIPS:
        raise ValueError(f"skip: choose from {sorted([*SKIPS, 'none'])}, got {skip!r}")
    return SKIPS[skip](conv, **options)
