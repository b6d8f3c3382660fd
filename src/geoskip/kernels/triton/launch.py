"""How kernels are launched: their tile sizes, chosen by trial on an H200, their precision, and a launcher that
remembers which compiled version fits."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from geoskip.kernels import paths

# From this many items on, the rows of a block are items: its 16 rows or more are then mostly filled.
ENOUGH_ITEMS = 12
# This many blocks of 32 vertices keep all multiprocessors busy; with fewer, smaller blocks are faster.
ENOUGH_BLOCKS = 200
# How many choices of tiles are cached: each takes the host microseconds, and a block needs several.
CACHE_SIZE = 1024
# Columns of a part: the fewest that a block of a product can have.
PART = 16
# Numbers that differ from graph to graph and from batch to batch: kernels are not compiled again when 16 divides them.
SIZES = (
    "num_senders", "num_receivers", "num_vertices", "num_edges", "num_items", "num_rows", "num_labels", "num_padded",
    "num_tiles", "num_parts", "num_programs", "room", "stride_gb", "stride_og",
)  # fmt: skip


class Tiles(NamedTuple):
    """What one program works on.

    Attributes:
        slots: slots at a time.
        rows: rows of a block: items of one vertex, or vertices of one item.
        c: channels of x in a block.
        o: channels of y in a block.
        warps: warps of a program.
        programs: how many programs share a sum over all vertices.
        parts: in how many parts the gathered channels are read.
        registers: the most registers per thread, so that more programs run at a time.
        of_items: whether the rows are items.
    """

    slots: int
    rows: int
    c: int
    o: int
    warps: int = 4
    programs: int = 1
    parts: int = 1
    registers: int | None = None
    of_items: bool = False


class Pointer(NamedTuple):
    """What the compiled version of a kernel depends on, of a tensor: its dtype, and its address modulo 16."""

    dtype: torch.dtype
    alignment: int


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def shares(pieces: int, programs: int, each: int) -> int:
    """How many shares to divide pieces of work into if a share takes ``each`` programs. There are at most ``programs``:
    the few that do not fit on the card with the others would run alone at the end."""
    return max(1, min(pieces, programs // each))


def power_of_two(n: int, low: int = 1, high: int = 1 << 30) -> int:
    """The smallest power of two that is at least n, within bounds."""
    return max(low, min(high, 1 << max(n - 1, 0).bit_length()))


@lru_cache(CACHE_SIZE)
def forward_tiles(
    batch: int, slots: int, channels: int, out: int, grouped: bool, per_item: bool, vertices: int, fast: bool
) -> Tiles:
    """Tiles for y. ``vertices`` are the receivers; ``fast`` is whether products are in TF32."""
    c, o = power_of_two(channels, 16, 64), power_of_two(out, 16, 128)
    if batch >= ENOUGH_ITEMS:
        at_once, b = _at_once(slots, 3, grouped), power_of_two(batch, 16, 32)
        if per_item and max(c, o) <= 32:
            # With few slots at a time parts do not pay.
            parts = c // PART if at_once > 2 else 1
            return Tiles(at_once, b, c, o, warps=b // 16, parts=parts, registers=128, of_items=True)
        return Tiles(at_once, b, c, o, warps=1 if max(c, o) <= 32 else 4, of_items=True)
    if o > 64:
        if not fast and _is_large(vertices):
            return Tiles(_at_once(slots, 5, grouped), 64, min(c, 32), 64)
        return Tiles(_at_once(slots, 5 if fast else 2, grouped), 32, c, o)
    at_once = _at_once(slots, 5, grouped)
    if _is_large(vertices) and (c <= 32 or c <= o):
        return Tiles(at_once, 32, c, o)
    return Tiles(at_once, 16, c, o, registers=128 if c > 32 else None)


@lru_cache(CACHE_SIZE)
def sender_tiles(batch: int, slots: int, channels: int, out: int, grouped: bool, per_item: bool) -> Tiles | None:
    """Tiles for the gradients of x and of the weights in one pass; None where two passes are faster."""
    c, o = power_of_two(channels, 16), power_of_two(out, 16)
    if batch < ENOUGH_ITEMS or max(c, o) > 64:
        return None
    small, b = max(c, o) <= 32, power_of_two(batch, 16, 32)
    at_once = _at_once(slots, 3 if small else 1, grouped)
    if per_item and small:
        return Tiles(at_once, b, c, o, warps=b // 16, parts=o // PART, registers=128, of_items=True)
    return Tiles(at_once, b, c, o, warps=1 if small else 4, of_items=True)


@lru_cache(CACHE_SIZE)
def theta_tiles(batch: int, slots: int, channels: int, out: int, grouped: bool, per_item: bool) -> Tiles:
    """Tiles for the gradient of Θ."""
    c, o = power_of_two(channels, 16), power_of_two(out, 16)
    if batch >= ENOUGH_ITEMS and max(c, o) <= 64:
        at_once, warps = (_at_once(slots, 3, grouped), 2) if max(c, o) <= 32 else (1, 4)
        programs, b = 528, power_of_two(batch, 16, 32)
        if slots == 1 and warps == 2:
            warps, programs = 1, 1056
        registers = 168 if per_item and at_once == 2 else None
        return Tiles(at_once, b, c, o, warps=warps, programs=programs, registers=registers, of_items=True)
    at_once = 5 if c <= 32 else 2 if c <= 64 else 1
    warps, programs = 8 if c > 64 else 4, 528 if c <= 16 else 264 if c <= 32 else 396
    return Tiles(_at_once(slots, at_once, grouped), 32, c, min(o, 64), warps=warps, programs=programs)


@lru_cache(CACHE_SIZE)
def weight_tiles(slots: int, channels: int, grouped: bool, vertices: int) -> Tiles:
    """Tiles for the gradient of the weights alone."""
    c = power_of_two(channels, 16)
    at_once = _at_once(slots, 5 if c <= 64 else 2, grouped)
    if c > 32:
        return Tiles(at_once, 64 if c <= 64 and _is_large(vertices) else 32, c, 32, warps=4 if c <= 64 else 8)
    if c <= 16 or _is_large(vertices):
        return Tiles(at_once, 32, c, 32, warps=2)
    return Tiles(at_once, 16, c, 32)


def _is_large(vertices: int) -> bool:
    return ceil_div(vertices, 32) >= ENOUGH_BLOCKS


def _at_once(slots: int, most: int, grouped: bool) -> int:
    """The largest even share of the slots: a neighbor's features are loaded once for all slots of a share."""
    return 1 if grouped else max(share for share in range(1, most + 1) if slots % share == 0)


def needs_wide(num_x: int, num_y: int, weights: Tensor) -> bool:
    """Whether offsets inside an item of x or y, or among all weights, need 64 bits; 32 are faster."""
    return max(num_x, num_y, weights.numel()) >= 2**31


def is_tf32() -> bool:
    # torch.backends.cuda.matmul.fp32_precision, whose lookup takes longer than an allocation.
    return torch._C._get_fp32_precision_getter("cuda", "matmul") == "tf32"


def precision() -> str:
    """Full float32 unless the user has allowed TF32: three TF32 products replace one of float32."""
    return "tf32" if is_tf32() else "tf32x3"


# Of loops over memory, which are pipelined.
STAGES = 2
_MAX_COMPILED = 4096
_compiled: dict[Any, Any] = {}
# How many arguments of a kernel are tensors: they come first.
_num_tensors: dict[int, int] = {}


def launch(
    kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], warps: int = 4, registers: int | None = None,
) -> None:  # fmt: skip
    """Run ``kernel`` on a grid, with ``arguments`` in the order of its parameters: tensors, numbers, constants.

    For every call, Triton works out from the arguments which of its compiled versions fits, which takes longer than
    small kernels run. Here the version is cached under everything it can depend on: the kernel, the device, the dtype
    and alignment of each tensor, and the value of each number.
    """
    if paths.recorded is not None:
        # Not the tensors themselves, whose memory would not be freed.
        given = [Pointer(a.dtype, a.data_ptr() & 15) if isinstance(a, Tensor) else a for a in arguments]
        paths.recorded.append((kernel, tuple(given), warps, registers))
        return
    # Not the kernel itself, whose hash is computed in Python each time.
    kernel_id = id(kernel)
    count = _num_tensors.get(kernel_id)
    if count is None:
        # Tensors that a call leaves out are None; numbers never are.
        count = sum(argument is None or isinstance(argument, Tensor) for argument in arguments)
        _num_tensors[kernel_id] = count
    tensors, numbers = arguments[:count], arguments[count:]
    device = tensors[0].get_device()
    # With addresses instead of tensors, the launcher need not ask the driver about each.
    addresses = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    dtypes = [None if tensor is None else tensor.dtype for tensor in tensors]
    alignments = [address and address & 15 for address in addresses]
    key = kernel_id, device, warps, registers, numbers, *dtypes, *alignments
    compiled = _compiled.get(key)
    if compiled is None:
        if len(_compiled) >= _MAX_COMPILED:
            _compiled.clear()
        version = kernel[grid](*arguments, num_warps=warps, num_stages=STAGES, maxnreg=registers)
        # In Triton's interpreter nothing is compiled.
        if version is not None:
            _compiled[key] = version.run, version.function, version.packed_metadata
        return
    run, function, metadata = compiled
    sizes = (*grid, 1, 1)[:3]
    stream = torch._C._cuda_getCurrentRawStream(device)
    run(*sizes, stream, function, metadata, None, None, None, *addresses, *numbers)
