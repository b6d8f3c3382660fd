"""One part of every block alone: what do the skips carry, what the convolutions?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from geoskip.arguments import check_type
from geoskip.blocks.base import Skip


@contextmanager
def only(model: nn.Module, part: str) -> Iterator[None]:
    """Within the context every block of ``model`` computes one part alone.

    ``with only(autoencoder.decoder, "affine"): …`` decodes through the affine skips, as the paper's figure of what
    they learn does; ``"convolution"`` leaves the skips out. The block's bias belongs to the affine part. A block
    that returns a tuple, with attention weights say, returns the features alone in its affine part.
    """
    check_type("model", model, nn.Module)
    if part not in ("affine", "convolution"):
        raise ValueError(f"part: a block has the parts 'affine' and 'convolution', got {part!r}")
    blocks = [module for module in model.modules() if isinstance(module, Skip)]
    if not blocks:
        raise ValueError(f"model: {type(model).__name__} has no blocks with skips; add some with add_skips(model)")
    before = [block.part for block in blocks]
    try:
        for block in blocks:
            block.part = part
        yield
    finally:
        for block, old in zip(blocks, before, strict=True):
            block.part = old
