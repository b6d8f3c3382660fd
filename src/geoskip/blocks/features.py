"""The vertex features in what a convolution is given and in what it returns."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor


def receiving_features(x: Any, block: str) -> Tensor:
    """Features of the vertices that receive: ``x`` itself, or ``x_dst`` of PyTorch Geometric's ``(x_src, x_dst)``."""
    received = x[-1] if isinstance(x, (tuple, list)) and len(x) == 2 else x
    if received is None:
        given = "None" if x is None else "(x_src, None)"
        raise ValueError(
            f"x: {block} was given {given}, no features of the receiving vertices, which the skip acts on; pass "
            "them, or leave this convolution without a skip (where=… of add_skips)"
        )
    check_features(received, block)
    return received


def check_features(x: Any, block: str) -> None:
    if not isinstance(x, Tensor):
        advice = "; wrap the convolution of each type of vertex instead" if isinstance(x, dict) else ""
        if isinstance(x, np.ndarray) and x.dtype.kind in "iuf":
            advice = "; convert it with torch.as_tensor(x, dtype=torch.float32)"
        raise TypeError(
            f"x: {block} acts on a tensor [*batch, vertices, channels] or a pair (x_src, x_dst), got a "
            f"{type(x).__name__}{advice}"
        )
    if not x.is_floating_point():
        # Whole numbers may be an edge_index in the wrong place, or the numbers of vertices or classes, which some
        # convolutions look up in a table: to convert them would hide that.
        edges = x.dim() == 2 and x.shape[0] == 2 and not x.is_complex()
        advice = (
            "the features come first, then the edge_index"
            if edges
            else ("pass features, or leave a convolution that looks up whole numbers in a table without a skip")
        )
        raise TypeError(f"x: {block} acts on floating-point features, got {x.dtype} of shape {list(x.shape)}; {advice}")
    if x.dim() == 0:
        raise ValueError(f"x: {block} acts on a tensor [*batch, vertices, channels], got shape {list(x.shape)}")


def features_of(out: Any, block: str) -> Tensor:
    """Features in a convolution's output: the output, or the first of a tuple (attention weights follow)."""
    y = out[0] if isinstance(out, tuple) and out else out
    if not isinstance(y, Tensor):
        raise TypeError(
            f"conv: {block} needs a convolution that returns a tensor [*batch, vertices, channels], or a tuple that "
            f"starts with one; this one returned a {type(y).__name__}"
        )
    return y


def with_features(out: Any, y: Tensor) -> Any:
    """A convolution's output with other features; what else it holds stays."""
    return (y, *out[1:]) if isinstance(out, tuple) else y


def check_same_vertices(x: Tensor, y: Tensor, block: str) -> None:
    if x.shape[:-1] != y.shape[:-1]:
        raise ValueError(
            f"conv: {block} adds the features of each vertex to the output at that vertex, but the convolution "
            f"turned {list(x.shape)} into {list(y.shape)}; a layer that pools or flattens cannot have a skip"
        )
