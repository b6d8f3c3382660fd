"""Compiles kernels before they are launched, in parallel.

A fresh machine compiles about 40 kernels for the first training step, one after the other as they are launched. Most
of that time is spent in LLVM and in ptxas, which run in as many threads as there are cores. Triton's front end is
Python, so that only one thread at a time can run it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from math import prod
from threading import Lock
from typing import Any

import torch
import triton
from triton.compiler import ASTSource
from triton.runtime.driver import driver
from triton.runtime.jit import MockTensor

from geoskip.kernels.triton.launch import STAGES, Pointer

MAX_THREADS = 32


def compile_launches(launches: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Compile the kernels of :func:`~geoskip.kernels.paths.recorded_launches` for the current GPU; a launch then finds
    them in memory. Returns the compiled kernels; those that cannot be compiled are left out."""
    num_threads = min(len(os.sched_getaffinity(0)), MAX_THREADS)
    with ThreadPoolExecutor(num_threads) as pool:
        with (
            ThreadPoolExecutor(num_threads) as launcher_pool,
            _one_front_end_at_a_time(launcher_pool),
            triton.knobs.compilation.scope(),
            triton.AsyncCompileMode(pool, ignore_errors=True),
        ):
            # Printing the stages in between takes as long as a fifth of the front end.
            triton.knobs.compilation.store_binary_only = True
            # The largest tiles, which take longest, first.
            ordered = sorted(dict.fromkeys(launches), key=_tile_size, reverse=True)
            started = [_start(*launch) for launch in ordered]
        distinct = {id(kernel): kernel for kernel in map(_finished, started) if kernel is not None}
        kernels = list(distinct.values())
        if torch.cuda.is_available():
            list(pool.map(partial(_load, torch.cuda.current_device()), kernels))
    return kernels


def start_compiler(device: int) -> None:
    """Compile an empty kernel for the current GPU, the ``device``. The first compilation takes longer than others: it
    imports parts of Triton, compiles what talks to the driver, and hashes the compiler, whose hash is part of the keys
    of the cache."""
    _load(device, _start(_empty_kernel, (Pointer(torch.float32, 0),), 1, None))


@triton.jit
def _empty_kernel(pointer):
    pass


def _start(kernel: Any, arguments: tuple[Any, ...], warps: int, registers: int | None) -> Any:
    given = [_MockPointer(argument) if isinstance(argument, Pointer) else argument for argument in arguments]
    return kernel.warmup(*given, grid=(1,), num_warps=warps, num_stages=STAGES, maxnreg=registers)


def _tile_size(launch: tuple[Any, ...]) -> int:
    """Numbers in a tile: its sizes are the last integers among the arguments of most kernels."""
    return prod([argument for argument in launch[1] if type(argument) is int][-3:])


def _finished(started: Any) -> Any:
    return started.result(ignore_errors=True) if isinstance(started, triton.FutureKernel) else started


def _load(device: int, kernel: Any) -> None:
    # A kernel that cannot be loaded fails again, with a message, when it is launched.
    with suppress(Exception):
        torch.cuda.set_device(device)
        _ = kernel.run


@contextmanager
def _one_front_end_at_a_time(launcher_pool: Executor) -> Iterator[None]:
    """If all threads began with their front ends, in turns, all would end late, and LLVM would have nothing to do until
    then. The launchers, which are compiled by the C compiler, do not wait for their kernels."""
    lock, make_ir, signatures = Lock(), ASTSource.make_ir, set[tuple[Any, ...]]()

    def make_ir_alone(source: Any, *arguments: Any) -> Any:
        with lock:
            signature = tuple(source.signature.values())
            if signature not in signatures:
                signatures.add(signature)
                launcher_pool.submit(_make_launcher, source)
            return make_ir(source, *arguments)

    ASTSource.make_ir = make_ir_alone
    try:
        yield
    finally:
        ASTSource.make_ir = make_ir


def _make_launcher(source: Any) -> None:
    """Triton 3.6 compiles a function in C for each signature, and finds it in its cache afterwards. Later versions have
    one function for all."""
    with suppress(Exception):
        driver.active.launcher_cls(source, _NoMetadata())


class _NoMetadata:
    """Of a kernel that is not compiled yet: its launcher does not depend on them."""

    def __getattr__(self, name: str) -> None:
        return None


class _MockPointer(MockTensor):
    """A tensor as Triton sees it, at an address with the alignment of the pointer."""

    def __init__(self, pointer: Pointer) -> None:
        super().__init__(pointer.dtype)
        self._alignment = pointer.alignment

    def data_ptr(self) -> int:
        return self._alignment
