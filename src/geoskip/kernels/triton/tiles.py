"""Tile sizes of the kernels, and their precision. Measured on an H200; see docs/kernels.md."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Tiles(NamedTuple):
    """What a program holds: slots at once, and blocks of vertices, channels in, channels out (powers of two)."""

    slots: int
    v: int
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


def forward_tiles(slots: int, channels: int, out: int, grouped: bool) -> Tiles:
    c = power_of_two(channels, 16, 64)
    return Tiles(slots=_at_once(slots, max(1, 96 // c), grouped), v=32, c=c, o=power_of_two(out, 16, 128))


def gradient_tiles(slots: int, channels: int, out: int, grouped: bool) -> Tiles:
    c = power_of_two(channels, 16)
    return Tiles(slots=_at_once(slots, max(1, 64 // c), grouped), v=32, c=c, o=power_of_two(out, 16, 64))


def _at_once(slots: int, most: int, grouped: bool) -> int:
    """Slots in even shares of at most so many: a neighbour's features are loaded once for all of a share."""
    return 1 if grouped else ceil_div(slots, ceil_div(slots, most))


def precision() -> str:
    """Full float32 unless the user has allowed TF32: three TF32 products stand for one of float32."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "tf32x3"
