"""Launching a kernel without asking Triton again what it has answered before.

For every call Triton works out from the arguments which of its compiled versions fits, which takes longer than small
kernels run. Here the answer is kept, under all that it can depend on: the kernel, the device, the type and alignment
of each tensor, and the value of each number.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_MOST = 4096
_compiled: dict[Any, Any] = {}
# How many of a kernel's arguments are tensors: they come first.
_pointers: dict[int, int] = {}


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    arguments: tuple[Any, ...],
    warps: int = 4,
    registers: int | None = None,
) -> None:
    """Run ``kernel`` on a grid; ``arguments`` in the order of its parameters: tensors, numbers, constants. With a bound
    on the registers of a thread more programs run at a time."""
    # Not the kernel itself: its hash is asked of Python every time.
    which = id(kernel)
    count = _pointers.get(which)
    if count is None:
        count = _pointers[which] = _leading_tensors(arguments)
    tensors, numbers = arguments[:count], arguments[count:]
    device = tensors[0].get_device()
    # Addresses instead of tensors spare the launcher asking the driver about each.
    addresses = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    kinds = [None if tensor is None else tensor.dtype for tensor in tensors]
    name = which, device, warps, registers, numbers, *kinds, *[address and address & 15 for address in addresses]
    found = _compiled.get(name)
    if found is None:
        if len(_compiled) >= _MOST:
            _compiled.clear()
        # In Triton's interpreter nothing is compiled and nothing is kept.
        _compiled[name] = kernel[grid](*arguments, num_warps=warps, num_stages=2, maxnreg=registers)
        return
    full = (*grid, 1, 1)[:3]
    stream = torch._C._cuda_getCurrentRawStream(device)
    found.run(*full, stream, found.function, found.packed_metadata, None, None, None, *addresses, *numbers)


def _leading_tensors(arguments: tuple[Any, ...]) -> int:
    """Tensors that a call leaves out are None; numbers never are."""
    return sum(argument is None or isinstance(argument, Tensor) for argument in arguments)
