"""How much of what a block puts out comes from its skip, how much from its convolution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from geoskip.blocks import Skip
from geoskip.blocks.features import features_of, receiving_features
from geoskip.shapes import Float


@dataclass(frozen=True)
class BlockShare:
    r"""What the skip's part a contributes to a block's output y = a + c, each channel less its mean.

    Attributes:
        layer: name of the block in the model.
        share: :math:`\langle a, y \rangle / \|y\|^2`: the skip's and the convolution's add up to 1. Below 0 or above 1
            where one part undoes the other.
        size: :math:`\|a\|^2 / (\|a\|^2 + \|c\|^2)`, between 0 and 1: how large the skip's part is by itself.
        cosine: of the angle between a and c; near -1 where they cancel.
    """

    layer: str
    share: float
    size: float
    cosine: float


def block_shares(model: nn.Module, forward: Callable[[nn.Module], Any]) -> list[BlockShare]:
    """The blocks of a model, in the order in which ``forward(model)`` meets them; one that it meets more than once
    counts every time. The model's mode is its own affair: call ``model.eval()`` where dropout would disturb."""
    blocks = [(name, module) for name, module in model.named_modules() if isinstance(module, Skip)]
    if not blocks:
        raise ValueError(f"model: {type(model).__name__} has no blocks with skips, so nothing is shared")
    rows: list[BlockShare] = []
    handles = [block.register_forward_hook(_watcher(name, rows), with_kwargs=True) for name, block in blocks]
    try:
        with torch.no_grad():
            forward(model)
    finally:
        for handle in handles:
            handle.remove()
    return rows


def affine_share(
    affine: Float[Tensor, "*batch vertices channels"], whole: Float[Tensor, "*batch vertices channels"]
) -> tuple[float, float, float]:
    """Share, size and cosine of :class:`BlockShare`, from the skip's part and the whole; NaN never: 0 stands for the
    share of nothing."""
    a, y = (_centred(part) for part in (affine, whole))
    c = y - a
    squares = {name: float(part.square().sum()) for name, part in (("a", a), ("c", c), ("y", y))}
    share = float((a * y).sum()) / (squares["y"] or 1)
    size = squares["a"] / (squares["a"] + squares["c"] or 1)
    cosine = float((a * c).sum()) / ((squares["a"] * squares["c"]) ** 0.5 or 1)
    return share, size, cosine


def _watcher(name: str, rows: list[BlockShare]) -> Callable[..., None]:
    def watch(block: Skip, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        x = args[0] if args else kwargs["x"]
        affine = block.affine(receiving_features(x, name))
        rows.append(BlockShare(name, *affine_share(affine, features_of(out, name))))

    return watch


def _centred(part: Tensor) -> Tensor:
    """A bias is the same for all vertices and items, and tells none apart."""
    flat = part.double().flatten(0, -2)
    return flat - flat.mean(0)
