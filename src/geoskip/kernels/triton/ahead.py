"""Compiles kernels before they are launched, in parallel.

A fresh machine compiles about 40 kernels for the first training step, one after the other as they are launched. Most
of that time is spent in LLVM and in ptxas, which run in as many threads as there are cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import torch
import triton
from triton.runtime.jit import MockTensor

from geoskip.kernels.triton.launch import STAGES, Pointer

MAX_THREADS = 32


def compile_launches(launches: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Compile the kernels of :func:`~geoskip.kernels.paths.recorded_launches` for the current GPU; a launch then finds
    them in memory. Returns the compiled kernels; those that cannot be compiled are left out."""
    make_launcher = _launcher_maker()
    num_threads = min(len(os.sched_getaffinity(0)), MAX_THREADS)
    with ThreadPoolExecutor(num_threads) as pool, triton.AsyncCompileMode(pool, ignore_errors=True):
        # The kernels of the gradients, which take longest, first.
        started = {id(one): one for launch in reversed(launches) if (one := _start(*launch)) is not None}
        for one in started.values():
            if isinstance(one, triton.FutureKernel):
                one.future.add_done_callback(make_launcher)
    kernels = map(_finished, started.values())
    return list({id(kernel): kernel for kernel in kernels if kernel is not None}.values())


def _start(kernel: Any, arguments: tuple[Any, ...], warps: int, registers: int | None) -> Any:
    given = [_MockPointer(argument) if isinstance(argument, Pointer) else argument for argument in arguments]
    return kernel.warmup(*given, grid=(1,), num_warps=warps, num_stages=STAGES, maxnreg=registers)


def _finished(started: Any) -> Any:
    return started.result(ignore_errors=True) if isinstance(started, triton.FutureKernel) else started


def _launcher_maker() -> Callable[[Future[Any]], None]:
    """A function that makes the launcher of a compiled kernel: Triton 3.6 compiles a function in C for each signature.
    Later versions have one for all."""
    if not torch.cuda.is_available():
        return lambda future: None
    device, signatures = torch.cuda.current_device(), set[tuple[Any, ...]]()

    def make(future: Future[Any]) -> None:
        # A kernel that cannot be compiled or loaded fails again, with a message, when it is launched.
        with suppress(Exception):
            kernel = future.result()
            signature = tuple(kernel.src.signature.values())
            if signature not in signatures:
                signatures.add(signature)
                torch.cuda.set_device(device)
                _ = kernel.run

    return make


class _MockPointer(MockTensor):
    """A tensor as Triton sees it, at an address with the alignment of the pointer."""

    def __init__(self, pointer: Pointer) -> None:
        super().__init__(pointer.dtype)
        self._alignment = pointer.alignment

    def data_ptr(self) -> int:
        return self._alignment
