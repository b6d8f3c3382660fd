"""Squared distances between points and centres, and points taken in blocks that fit the cache."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from geoskip.shapes import Float

# Distances at once: on a CPU a megabyte, so that they stay in the cache and no page is asked of the system twice;
# on a card so many that launching costs nothing.
_AT_ONCE = {"cpu": 1 << 17}
_AT_ONCE_ON_CARDS = 1 << 25


def squared_distances(
    points: Float[Tensor, "*#batch points dim"], centres: Float[Tensor, "*#batch centres dim"]
) -> Float[Tensor, "*#batch points centres"]:
    """|x - c|² by differences: the expansion |x|² - 2 x·c + |c|² would lose half of the digits near a centre."""
    columns = zip(points.unbind(-1), centres.unbind(-1), strict=True)
    offsets = (x.unsqueeze(-1) - c.contiguous().unsqueeze(-2) for x, c in columns)
    total = next(offsets).square()
    for offset in offsets:
        total = torch.addcmul(total, offset, offset) if total.requires_grad else total.addcmul_(offset, offset)
    return total


def in_blocks(
    compute: Callable[[Tensor], Tensor], points: Float[Tensor, "*batch points dim"], width: int
) -> Float[Tensor, "*any points out"]:
    """``compute`` of all points, in blocks of them whose ``width`` numbers each fit in fast memory.

    What it computes on the way, after the first block, is not kept for gradients but computed again, so that memory
    does not grow with the number of points times the number of centres.
    """
    at_once = _AT_ONCE.get(points.device.type, _AT_ONCE_ON_CARDS)
    blocks = points.split(max(1, at_once // max(width, 1)), dim=-2)
    first = compute(blocks[0])
    if len(blocks) == 1:
        return first
    rest = (_recomputed(compute, block) if first.requires_grad else compute(block) for block in blocks[1:])
    return torch.cat([first, *rest], dim=-2)


def _recomputed(compute: Callable[[Tensor], Tensor], block: Tensor) -> Tensor:
    made = checkpoint(compute, block, use_reentrant=False, preserve_rng_state=False)
    assert isinstance(made, Tensor)
    return made
