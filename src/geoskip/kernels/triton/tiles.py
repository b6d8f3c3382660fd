"""Tile sizes of the kernels, and their precision. Measured on an H200; see docs/kernels.md."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Tiles(NamedTuple):
    """Extents of a program's blocks: vertices, slots, channels in, channels out; all powers of two."""

    v: int
    m: int
    c: int
    o: int
    warps: int = 4
    stages: int = 2
    programs: int = 1056


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def power_of_two(n: int, low: int = 1, high: int = 1 << 30) -> int:
    """The smallest power of two that holds n, within bounds."""
    return max(low, min(high, 1 << max(n - 1, 0).bit_length()))


def forward_tiles(receivers: int, batch: int, slots: int, channels: int, out: int, grouped: bool) -> Tiles:
    c = power_of_two(channels, 4, 64)
    m = _slots(slots, c, grouped)
    return Tiles(v=32, m=m, c=max(c, 16 // m), o=power_of_two(out, 16, 128))


def gradient_tiles(receivers: int, batch: int, slots: int, channels: int, out: int, grouped: bool) -> Tiles:
    c = power_of_two(channels, 4)
    m = _slots(slots, c, grouped)
    return Tiles(v=32, m=m, c=max(c, 16 // m), o=power_of_two(out, 16, 64))


def _slots(slots: int, c: int, grouped: bool) -> int:
    """Slots taken at once: a neighbour's features are loaded once for all of them."""
    return 1 if grouped else power_of_two(min(slots, max(1, 128 // c)))


def precision() -> str:
    """Full float32 unless the user has allowed TF32: three TF32 products stand for one of float32."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "tf32x3"
