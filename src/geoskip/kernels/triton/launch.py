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


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    arguments: tuple[Any, ...],
    warps: int = 4,
    registers: int | None = None,
) -> None:
    """Run ``kernel`` on a grid; ``arguments`` in the order of its parameters, constants included. With a bound on
    the registers of a thread more programs run at a time."""
    device = arguments[0].device.index
    key: list[Any] = [kernel, device, warps, registers]
    # Addresses instead of tensors spare the launcher asking the driver about each.
    values: list[Any] = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            address = argument.data_ptr()
            key += argument.dtype, address % 16 == 0
            values.append(address)
        else:
            key.append(argument)
            values.append(argument)
    name = tuple(key)
    found = _compiled.get(name)
    if found is None:
        if len(_compiled) >= _MOST:
            _compiled.clear()
        # In Triton's interpreter nothing is compiled and nothing is kept.
        _compiled[name] = kernel[grid](*arguments, num_warps=warps, num_stages=2, maxnreg=registers)
        return
    full = (*grid, 1, 1)[:3]
    stream = torch._C._cuda_getCurrentRawStream(device)
    found.run(*full, stream, found.function, found.packed_metadata, None, None, None, *values)
