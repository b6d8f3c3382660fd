"""The one place that chooses a path: the reference formulas, the CPU kernels, or the Triton kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from threading import get_ident
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

PATHS = ("fast", "interpreter", "reference")
_HAS_TRITON = find_spec("triton") is not None
# Features with fewer numbers than this take longer to start the CPU kernels of several slots than to run the formula.
SMALL = 1 << 14
_path = PATHS[0]
# The paths of all contexts that are open.
_contexts: list[list[str]] = []
_EMPTY = torch.empty, torch.empty_like, torch.empty_strided, Tensor.new_empty, Tensor.new_empty_strided


@contextmanager
def use_path(name: str) -> Iterator[None]:
    """Choose the path of every kernel call inside the context, in all threads.

    ``"fast"``, the default, runs the Triton kernels on CUDA and the CPU kernels on the CPU; everything else, such as
    float64 on CUDA and small inputs on the CPU, runs the reference formulas. ``"reference"`` always runs the reference
    formulas.
    ``"interpreter"`` runs the Triton kernels on CPU tensors, in Triton's interpreter; set ``TRITON_INTERPRET=1``
    before triton is imported.
    """
    global _path
    if name not in PATHS:
        raise ValueError(f"use_path: unknown path {name!r}; choose from {list(PATHS)}")
    context, _path = [name], name
    _contexts.append(context)
    try:
        yield
    finally:
        # Contexts of several threads need not end in the order in which they began.
        _contexts[:] = [other for other in _contexts if other is not context]
        _path = _contexts[-1][0] if _contexts else PATHS[0]


class LaunchRecord(NamedTuple):
    """What a thread collects inside of :func:`recorded_launches`.

    Attributes:
        launches: the launches so far.
        copies: by the id of each dictionary that :func:`memory` was asked for, the dictionary and the copy of it.
    """

    launches: list[tuple[Any, ...]]
    copies: dict[int, tuple[dict[Any, Any], dict[Any, Any]]]


# Of the threads that record.
_recordings: dict[int, LaunchRecord] = {}


@contextmanager
def recorded_launches() -> Iterator[list[tuple[Any, ...]]]:
    """Launches of Triton kernels by this thread inside the context are appended to the list instead of being run:
    (kernel, arguments, warps, registers), with a :class:`~geoskip.kernels.triton.launch.Pointer` for each tensor. What
    the kernels would have written is 0, so that indices among it are valid."""
    recording = _recordings[get_ident()] = LaunchRecord([], {})
    try:
        # For CUDA, backward passes run in a thread of their own otherwise.
        with _ZeroedMemory(), torch.autograd.set_multithreading_enabled(False):
            yield recording.launches
    finally:
        del _recordings[get_ident()]


def current_recording() -> LaunchRecord | None:
    """That of this thread, if its launches are recorded instead of being run: results then mean nothing, and must not
    be remembered."""
    return _recordings.get(get_ident()) if _recordings else None


def memory(own: dict[Any, Any]) -> dict[Any, Any]:
    """Where an object remembers results: in a dictionary of its ``own`` or, while launches are recorded, in a copy that
    is dropped afterwards."""
    recording = current_recording()
    return own if recording is None else recording.copies.setdefault(id(own), (own, dict(own)))[1]


class _ZeroedMemory(TorchFunctionMode):
    """New memory that nothing has written yet is 0."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result.zero_() if func in _EMPTY else result


def is_fast(x: Tensor, slots: int = 2) -> bool:
    """Whether fast kernels run for ``x``, and not the reference formulas. The CPU kernels start one by one for each of
    several ``slots``."""
    if _path == "reference" or is_transformed():
        return False
    if x.is_cuda:
        # The Triton kernels accumulate in float32.
        return _HAS_TRITON and x.dtype != torch.float64
    if x.device.type != "cpu":
        return False
    # A trace must not depend on the size, so it is asked for last. Neither must the output types of autocast, which are
    # others in plain PyTorch.
    return slots == 1 or _path == "interpreter" or is_traced(x) or is_autocast(x) or x.numel() >= SMALL


def on_triton(x: Tensor) -> bool:
    """Whether the fast kernels for ``x`` are those in Triton."""
    return x.is_cuda or _path == "interpreter"


def is_autocast(x: Tensor) -> bool:
    """Whether autocast is enabled on the device of ``x``, and applies to it: float64 stays as it is."""
    # First on any device: that is known sooner than the name of the device.
    if not torch._C._is_any_autocast_enabled():
        return False
    return x.dtype is not torch.float64 and torch.is_autocast_enabled(x.device.type)


def kernels_for(x: Tensor) -> ModuleType:
    """The fast kernels for ``x``: :mod:`geoskip.kernels.triton` or :mod:`geoskip.kernels.cpu`."""
    return _module("triton" if on_triton(x) else "cpu")


@cache
def _module(name: str) -> ModuleType:
    return import_module(f"geoskip.kernels.{name}")


def is_traced(x: Tensor | None = None) -> bool:
    """Whether torch is tracing, so that tensors (``x``, if given) may have shapes but no values, or values that a trace
    of ``torch.jit`` must not keep.

    ``torch.compiler.is_compiling()`` alone is not enough: it is False while AOTAutograd traces a backward pass, which
    runs under dispatch modes, on subclasses of tensors.
    """
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None or is_stand_in(x)


def is_stand_in(x: Tensor | None) -> bool:
    """Whether torch is tracing with stand-ins for tensors such as ``x``. Code that runs while ``torch.compile`` traces,
    but is not traced itself, sees real tensors."""
    if torch._C._len_torch_dispatch_stack() > 0:
        return True
    return x is not None and type(x) is not Tensor and not isinstance(x, torch.nn.Parameter)


def is_transformed() -> bool:
    """Whether ``torch.func`` (``grad``, ``vmap``, ``jvp``, …) or forward-mode AD is active. Only plain PyTorch can be
    transformed."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
