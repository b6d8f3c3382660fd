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


def launch(kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], warps: int = 4, stages: int = 2) -> None:
    """Run ``kernel`` on a grid; ``arguments`` in the order of its parameters, constants included."""
    device = arguments[0].device
    key = (kernel, device, warps, stages, *map(_kind, arguments))
    found = _compiled.get(key)
    if found is None:
        if len(_compiled) >= _MOST:
            _compiled.clear()
        # In Triton's interpreter nothing is compiled and nothing is kept.
        _compiled[key] = kernel[grid](*arguments, num_warps=warps, num_stages=stages)
        return
    full = (*grid, 1, 1)[:3]
    stream = torch._C._cuda_getCurrentRawStream(device.index)
    found.run(*full, stream, found.function, found.packed_metadata, None, None, None, *arguments)


def _kind(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return argument.dtype, argument.data_ptr() % 16 == 0
    return argument, type(argument)
