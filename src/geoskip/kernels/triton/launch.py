"""How kernels are launched: their tile sizes, chosen by trial on an H200, their precision, and a launcher that
remembers which compiled version fits."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import torch
import triton
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


class ConvolutionSizes(NamedTuple):
    """The sizes of a convolution, and where its tensors lie in memory.

    Attributes:
        grouped: whether each slot has edges of its own.
        per_item: whether each item has weights of its own.
        weight_strides: along items, slots and edges; 0 along axes that the weights share.
        group_stride: of the offsets of the receivers, from slot to slot.
        sender_group_stride: of those of the senders.
        theta_strides: along slots, channels of x and channels of y.
        skip_strides: along channels of x and channels of y; None without a skip.
        num_weights: how many weights there are.
    """

    batch: int
    num_senders: int
    num_receivers: int
    channels: int
    out: int
    slots: int
    grouped: bool
    per_item: bool
    weight_strides: tuple[int, int, int]
    group_stride: int
    sender_group_stride: int
    theta_strides: tuple[int, int, int]
    skip_strides: tuple[int, int] | None
    num_weights: int

    @property
    def num_x(self) -> int:
        return self.num_senders * self.channels

    @property
    def num_y(self) -> int:
        return self.num_receivers * self.out

    @property
    def wide(self) -> bool:
        """Whether offsets inside an item of x or y, or among all weights, need 64 bits; 32 are faster."""
        return max(self.num_x, self.num_y, self.num_weights) >= 2**31

    @property
    def slot_edges(self) -> tuple[int, int]:
        """Edges from one slot of the weights to the next, and the stride along edges."""
        _, along_slots, along_edges = self.weight_strides
        return along_slots // max(1, along_edges), along_edges

    @property
    def is_empty(self) -> bool:
        return self.batch == 0 or self.num_senders == 0 or self.num_receivers == 0

    @property
    def of_tiles(self) -> tuple[int, int, int, int, bool, bool]:
        """What tiles are chosen by."""
        return self.batch, self.slots, self.channels, self.out, self.grouped, self.per_item


Shape = tuple[int, ...]


def convolution_sizes(
    x: Shape, weights: Shape, theta: Shape, theta_strides: Shape, skip_strides: Shape | None, offsets: Shape,
    group_stride: int, sender_group_stride: int = 0, reverse: bool = False,
) -> ConvolutionSizes:  # fmt: skip
    """Of the shapes of x [*batch, senders, in], weights [slots or 1, edges, batch or 1] (or fewer axes: without items,
    without slots), Θ [slots, in, out] or [in, out], and offsets [groups, receivers + 1]; ``reverse``: with Θ and the
    skip transposed."""
    *items, num_senders, channels = x
    out, stride_tc, stride_to = theta[-1], theta_strides[-2], theta_strides[-1]
    if reverse:
        out, stride_tc, stride_to = theta[-2], stride_to, stride_tc
        skip_strides = skip_strides and skip_strides[::-1]
    slots, stride_tm = (theta[0], theta_strides[0]) if len(theta) == 3 else (1, 0)
    num_edges, per_edge = weights[min(1, len(weights) - 1)], weights[2] if len(weights) == 3 else 1
    own_weights = len(weights) > 1 and weights[0] > 1
    return ConvolutionSizes(
        batch=prod(items),
        num_senders=num_senders,
        num_receivers=offsets[1] - 1,
        channels=channels,
        out=out,
        slots=slots,
        grouped=offsets[0] > 1,
        per_item=per_edge > 1,
        weight_strides=(int(per_edge > 1), num_edges * per_edge if own_weights else 0, per_edge),
        group_stride=group_stride,
        sender_group_stride=sender_group_stride,
        theta_strides=(stride_tm, stride_tc, stride_to),
        skip_strides=skip_strides,  # type: ignore[arg-type]
        num_weights=prod(weights),
    )


def precision() -> str:
    """Full float32 unless the user has allowed TF32: three TF32 products replace one of float32."""
    # torch.backends.cuda.matmul.fp32_precision, whose lookup takes longer than an allocation.
    return "tf32" if torch._C._get_fp32_precision_getter("cuda", "matmul") == "tf32" else "tf32x3"


def is_tf32() -> bool:
    return precision() == "tf32"


# Of loops over memory, which are pipelined.
STAGES = 2
# CUDA's limit for the second and third dimension of a grid.
MAX_PROGRAMS = 2**16 - 1
_MAX_PLANS = 4096


class LaunchPlan:
    """A kernel with everything that a launch needs except tensors: the grid, numbers and constants in the order of its
    parameters, warps and registers. Call it with the tensors, which come before the numbers.

    For every call, Triton works out from the arguments which of its compiled versions fits, which takes longer than
    small kernels run. A plan remembers the version under what else it can depend on: the device, the dtype and the
    alignment of each tensor.
    """

    __slots__ = ("_arguments", "_grid", "_kernel", "_last", "_registers", "_sizes", "_versions", "_warps")

    def __init__(
        self, kernel: Any, grid: tuple[int, ...], numbers: tuple[Any, ...], warps: int = 4, registers: int | None = None
    ) -> None:
        self._kernel, self._grid, self._arguments = kernel, grid, numbers
        self._warps, self._registers = warps, registers
        self._sizes = (*grid, 1, 1)[:3]
        if max(self._sizes[1:]) > MAX_PROGRAMS:
            raise ValueError(
                f"the batch is too large for one launch on CUDA: a grid of {self._sizes} programs has more than "
                f"{MAX_PROGRAMS:,} in its second or third dimension; split the batch"
            )
        self._versions: dict[tuple[Any, ...], Any] = {}
        # The last version and what it depends on: nearly every launch takes the same one as before.
        self._last: tuple[Any, Any, Any] = (None, None, None)

    def __call__(self, *tensors: Tensor | None) -> None:
        if (recording := paths.current_recording()) is not None:
            # Not the tensors themselves, whose memory would not be freed.
            given = [None if t is None else Pointer(t.dtype, t.data_ptr() & 15) for t in tensors]
            recording.launches.append((self._kernel, (*given, *self._arguments), self._warps, self._registers))
            return
        device = tensors[0].get_device()  # type: ignore[union-attr]
        # Triton compiles and launches on the current device; in its interpreter there is none.
        if device >= 0 and device != torch._C._cuda_getDevice():
            with torch.cuda.device(device):
                self(*tensors)
            return
        # With addresses instead of tensors, the launcher need not ask the driver about each. One loop: every line of it
        # runs for each tensor of every launch.
        addresses: list[int] = []
        key: list[Any] = [device]
        bits = 0
        for tensor in tensors:
            if tensor is None:
                addresses.append(0)
                key.append(None)
            else:
                address = tensor.data_ptr()
                addresses.append(address)
                key.append(tensor.dtype)
                bits |= address
        if bits & 15:
            key.append(tuple([address & 15 for address in addresses]))
        # One attribute, which other threads replace as a whole.
        last, run, fixed = self._last
        if key != last:
            version = self._versions.get(tuple(key))
            if version is None:
                self._compile(tuple(key), tensors)
                return
            run, fixed = version
            self._last = key, run, fixed
        stream = torch._C._cuda_getCurrentRawStream(device)
        run(*self._sizes, stream, *fixed, *addresses, *self._arguments)

    def _compile(self, key: tuple[Any, ...], tensors: tuple[Tensor | None, ...]) -> None:
        """Launch through Triton, and remember the compiled version."""
        start = self._kernel[self._grid]
        options = {"num_warps": self._warps, "num_stages": STAGES, "maxnreg": self._registers}
        compiled = start(*tensors, *self._arguments, **options)
        # In Triton's interpreter nothing is compiled.
        if compiled is not None:
            self._versions[key] = _launcher(compiled)


def _launcher(compiled: Any) -> tuple[Any, tuple[Any, ...]]:
    """What launches a compiled kernel, and its arguments between the stream and those of the kernel.

    ``run`` of Triton 3.6 is a function in Python: it allocates scratch memory, if the kernel needs any, and passes
    everything on to a function in C.
    """
    run, hooks = compiled.run, (None, None, None)
    is_known = triton.__version__.startswith("3.6.") and type(run).__name__ == "CudaLauncher"
    if not is_known or run.global_scratch_size or run.profile_scratch_size:
        return run, (compiled.function, compiled.packed_metadata, *hooks)
    scratch = None, None
    flags = run.launch_cooperative_grid, run.launch_pdl
    return run.launch, (compiled.function, *flags, *scratch, compiled.packed_metadata, *hooks)


_plans: dict[Any, LaunchPlan] = {}
# How many arguments of a kernel are tensors: they come first.
_num_tensors: dict[int, int] = {}


def launch(
    kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], warps: int = 4, registers: int | None = None,
) -> None:  # fmt: skip
    """Run ``kernel`` on a grid, with ``arguments`` in the order of its parameters: tensors, numbers, constants.

    The :class:`LaunchPlan` is cached under all of them but the tensors. Where the host is the limit, cache the plan
    itself under the sizes that everything else follows from.
    """
    # Not the kernel itself, whose hash is computed in Python each time.
    kernel_id = id(kernel)
    count = _num_tensors.get(kernel_id)
    if count is None:
        # Tensors that a call leaves out are None; numbers never are.
        count = sum(argument is None or isinstance(argument, Tensor) for argument in arguments)
        _num_tensors[kernel_id] = count
    numbers = arguments[count:]
    key = kernel_id, grid, numbers, warps, registers
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= _MAX_PLANS:
            _plans.clear()
        plan = _plans[key] = LaunchPlan(kernel, grid, numbers, warps, registers)
    plan(*arguments[:count])
