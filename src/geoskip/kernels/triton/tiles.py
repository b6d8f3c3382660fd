"""Tile sizes of the kernels, and their precision. Measured on an H200; see docs/kernels.md."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Tiles(NamedTuple):
    """What a program holds: neighbours at once, and blocks of vertices, channels in and out (powers of two)."""

    k: int
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
    return Tiles(k=1 if grouped else 8, v=32, c=c, o=power_of_two(out, 16, 128), warps=4 if c <= 32 else 8)


def gradient_tiles(slots: int, channels: int, out: int, grouped: bool) -> Tiles:
    c = power_of_two(channels, 16)
    return Tiles(k=1 if grouped else 8, v=32, c=c, o=power_of_two(out, 16, 64), warps=4 if c <= 32 else 8)


def needs_wide(*tensors: Tensor) -> bool:
    """Whether offsets inside an item need 64 bits; 32 are faster."""
    return any(tensor.shape[-1] * tensor.shape[-2] >= 2**31 for tensor in tensors)


def precision() -> str:
    """Full float32 unless the user has allowed TF32: three TF32 products stand for one of float32."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "tf32x3"
