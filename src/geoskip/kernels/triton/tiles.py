"""Tile sizes of the kernels, chosen by trial on an H200, and their precision."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

# From so many items on a graph the rows of a block are items: its 16 rows or more are then mostly filled.
ENOUGH_ITEMS = 12
# So many blocks of 32 vertices keep all multiprocessors busy: with fewer, smaller blocks are faster.
ENOUGH_BLOCKS = 200
# Choices that are kept, not made again for every step: each takes the host microseconds, and a block asks for several.
KEPT = 1024
# Columns of a part: the fewest that a block of a product has.
PART = 16
# Numbers that differ from batch to batch: kernels are not compiled anew for those that 16 divides.
SIZES = ("num_senders", "num_receivers", "num_tiles", "num_parts", "stride_wb", "stride_wm")


class VertexTiles(NamedTuple):
    """What a program of many vertices holds: slots at once, and blocks of vertices, channels in and out; how many
    programs share a sum over all vertices, and the most registers of a thread, so that more programs run at a time."""

    slots: int
    v: int
    c: int
    o: int
    warps: int = 4
    programs: int = 1
    registers: int | None = None


class ItemTiles(NamedTuple):
    """What a program of one vertex holds: slots at once, and blocks of items, channels in and out; how many programs
    share a sum over all vertices, how many parts the gathered channels are read in, and the most registers of a
    thread."""

    slots: int
    b: int
    c: int
    o: int
    warps: int = 1
    programs: int = 1
    parts: int = 1
    registers: int | None = None


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def shares(pieces: int, programs: int, each: int) -> int:
    """Into how many shares to divide pieces of work when each share takes so many programs: never more programs than
    were asked for, since the few that do not fit on the card beside the others would run alone at the end."""
    return max(1, min(pieces, programs // each))


def power_of_two(n: int, low: int = 1, high: int = 1 << 30) -> int:
    """The smallest power of two that holds n, within bounds."""
    return max(low, min(high, 1 << max(n - 1, 0).bit_length()))


@lru_cache(KEPT)
def forward_tiles(
    batch: int, slots: int, channels: int, out: int, grouped: bool, per_item: bool, vertices: int, fast: bool
) -> ItemTiles | VertexTiles:
    """Of ``vertices`` that receive; ``fast`` is whether products are in TF32."""
    c, o = power_of_two(channels, 16, 64), power_of_two(out, 16, 128)
    if batch >= ENOUGH_ITEMS:
        at_once, b = _at_once(slots, 3, grouped), power_of_two(batch, 16, 32)
        if per_item and max(c, o) <= 32:
            # With few slots at once parts do not pay.
            parts = c // PART if at_once > 2 else 1
            return ItemTiles(at_once, b, c, o, warps=b // 16, parts=parts, registers=128)
        return ItemTiles(at_once, b, c, o, warps=1 if max(c, o) <= 32 else 4)
    if o > 64:
        if not fast and _enough(vertices):
            return VertexTiles(_at_once(slots, 5, grouped), v=64, c=min(c, 32), o=64)
        return VertexTiles(_at_once(slots, 5 if fast else 2, grouped), v=32, c=c, o=o)
    at_once = _at_once(slots, 5, grouped)
    if _enough(vertices) and (c <= 32 or c <= o):
        return VertexTiles(at_once, v=32, c=c, o=o)
    return VertexTiles(at_once, v=16, c=c, o=o, registers=128 if c > 32 else None)


@lru_cache(KEPT)
def sender_tiles(batch: int, slots: int, channels: int, out: int, grouped: bool, per_item: bool) -> ItemTiles | None:
    """For the gradients of x and of the weights in one pass; None where two passes are faster."""
    c, o = power_of_two(channels, 16), power_of_two(out, 16)
    if batch < ENOUGH_ITEMS or max(c, o) > 64:
        return None
    small, b = max(c, o) <= 32, power_of_two(batch, 16, 32)
    at_once = _at_once(slots, 3 if small else 1, grouped)
    if per_item and small:
        return ItemTiles(at_once, b, c, o, warps=b // 16, parts=o // PART, registers=128)
    return ItemTiles(at_once, b, c, o, warps=1 if small else 4)


@lru_cache(KEPT)
def theta_tiles(
    batch: int, slots: int, channels: int, out: int, grouped: bool, per_item: bool
) -> ItemTiles | VertexTiles:
    c, o = power_of_two(channels, 16), power_of_two(out, 16)
    if batch >= ENOUGH_ITEMS and max(c, o) <= 64:
        at_once, warps = (_at_once(slots, 3, grouped), 2) if max(c, o) <= 32 else (1, 4)
        programs, b = 528, power_of_two(batch, 16, 32)
        if slots == 1 and warps == 2:
            warps, programs = 1, 1056
        registers = 168 if per_item and at_once == 2 else None
        return ItemTiles(at_once, b, c, o, warps=warps, programs=programs, registers=registers)
    at_once = 5 if c <= 32 else 2 if c <= 64 else 1
    warps, programs = 8 if c > 64 else 4, 528 if c <= 16 else 264 if c <= 32 else 396
    return VertexTiles(_at_once(slots, at_once, grouped), v=32, c=c, o=min(o, 64), warps=warps, programs=programs)


@lru_cache(KEPT)
def weight_tiles(slots: int, channels: int, out: int, grouped: bool, vertices: int) -> VertexTiles:
    c = power_of_two(channels, 16)
    at_once = _at_once(slots, 5 if c <= 64 else 2, grouped)
    if c > 32:
        v = 64 if c <= 64 and _enough(vertices) else 32
        return VertexTiles(at_once, v=v, c=c, o=32, warps=4 if c <= 64 else 8)
    if c <= 16 or _enough(vertices):
        return VertexTiles(at_once, v=32, c=c, o=32, warps=2)
    return VertexTiles(at_once, v=16, c=c, o=32)


def _enough(vertices: int) -> bool:
    return ceil_div(vertices, 32) >= ENOUGH_BLOCKS


def _at_once(slots: int, most: int, grouped: bool) -> int:
    """The largest even share of the slots: a neighbor's features are loaded once for all of a share."""
    return 1 if grouped else max(share for share in range(1, most + 1) if slots % share == 0)


def needs_wide(x: Tensor, y: Tensor, weights: Tensor) -> bool:
    """Whether offsets inside an item, or among all weights, need 64 bits; 32 are faster."""
    return max(x.stride(0), y.stride(0), weights.numel()) >= 2**31


def is_tf32() -> bool:
    return torch.backends.cuda.matmul.fp32_precision == "tf32"


def precision() -> str:
    """Full float32 unless the user has allowed TF32: three TF32 products stand for one of float32."""
    return "tf32" if is_tf32() else "tf32x3"
