"""Compiles kernels before they are launched, in parallel.

A fresh machine compiles about 40 kernels for the first training step, one after the other as they are launched. Most
of that time is spent in LLVM and in ptxas, which run in as many threads as there are cores.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import triton
from torch import Tensor
from triton.runtime.jit import MockTensor

from geoskip.kernels.triton.launch import STAGES

MAX_THREADS = 32


def compile_launches(launches: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Compile the kernels of :func:`~geoskip.kernels.paths.recorded_launches` for the current GPU; a launch then finds
    them in memory. Returns the compiled kernels; those that cannot be compiled are left out."""
    with ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), MAX_THREADS)) as pool:
        with triton.AsyncCompileMode(pool, ignore_errors=True):
            started = [_start(*launch) for launch in launches]
        compiled = {id(kernel): kernel for one in started if (kernel := _finished(one)) is not None}
        if torch.cuda.is_available():
            _make_launchers(pool, list(compiled.values()))
    return list(compiled.values())


def _start(kernel: Any, arguments: tuple[Any, ...], warps: int, registers: int | None) -> Any:
    given = [_Pointer(argument) if isinstance(argument, Tensor) else argument for argument in arguments]
    return kernel.warmup(*given, grid=(1,), num_warps=warps, num_stages=STAGES, maxnreg=registers)


def _finished(started: Any) -> Any:
    return started.result(ignore_errors=True) if isinstance(started, triton.FutureKernel) else started


def _make_launchers(pool: ThreadPoolExecutor, kernels: list[Any]) -> None:
    """Triton 3.6 compiles a C function that launches kernels for each signature; later versions have only one."""
    device = torch.cuda.current_device()

    def load(kernel: Any) -> None:
        torch.cuda.set_device(device)
        _ = kernel.run

    by_signature = {tuple(kernel.src.signature.values()): kernel for kernel in kernels}
    list(pool.map(load, by_signature.values()))


class _Pointer(MockTensor):
    """What decides about the version of a kernel: dtype and alignment. Memory itself is aligned to 16 bytes."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(tensor.dtype)
        self._offset = int(tensor.storage_offset()) * tensor.element_size()

    def data_ptr(self) -> int:
        return self._offset
