"""Independent sums of one step in parallel, where a CUDA graph is captured.

Kernels of small graphs leave most of a GPU idle, and the last programs of large ones leave it idle at their end. A
captured graph may branch, so gradients that do not need each other are recorded on separate streams. Outside of a
capture the host could not start them fast enough, and they run one after the other.

Kernels that others wait for stay on the captured stream, which should have priority: see :func:`stream_to_capture`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor

# Runs a function with arguments on a branch of its own: its result may be read after the context of `branches` has
# ended.
Fork = Callable[..., Any]
_HAS_CUDA = torch.backends.cuda.is_built()
# How many branches of each stream are open: those of a nested context take other streams.
_open: dict[tuple[int, int], int] = defaultdict(int)
_kept: list[Any] | None = None
T = TypeVar("T")


def run_inline(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function now, without a branch."""
    return function(*arguments)


# One object for all calls: creating a context takes the host longer than allocating a tensor.
_NO_BRANCHES = nullcontext(run_inline)


def branches(x: Tensor) -> AbstractContextManager[Fork]:
    """A context that yields ``fork``: ``fork(function, *arguments)`` starts a branch, and the end of the context joins
    all of them."""
    if x.is_cuda and _HAS_CUDA and torch.cuda.is_current_stream_capturing():
        return _branches(x)
    return _NO_BRANCHES


@contextmanager
def _branches(x: Tensor) -> Iterator[Fork]:
    main = torch.cuda.current_stream(x.device)
    stream_key = main.device_index, main.cuda_stream
    used: list[torch.cuda.Stream] = []

    def fork(function: Callable[..., Any], *arguments: Any) -> Any:
        side = _side_stream(*stream_key, _open[stream_key])
        side.wait_stream(main)
        used.append(side)
        _open[stream_key] += 1
        with torch.cuda.stream(side):
            return function(*arguments)

    try:
        yield fork
    finally:
        _open[stream_key] -= len(used)
        for side in used:
            main.wait_stream(side)


@contextmanager
def values_kept() -> Iterator[list[Any]]:
    """A list of all remembered values that code inside of the context reads: a captured graph reads their memory, also
    when they have been forgotten."""
    global _kept
    before, _kept = _kept, []
    try:
        yield _kept
    finally:
        _kept = before


def keep(value: T) -> T:
    """The value, which a context of :func:`values_kept` then contains."""
    if _kept is not None:
        _kept.append(value)
    return value


def stream_to_capture() -> torch.cuda.Stream:
    """The stream of the current device to capture a graph on: ``torch.cuda.graph(graph, stream=stream_to_capture())``.

    It has high priority, and so do the kernels that are recorded on it: they run before those of the branches. It is
    always the same stream, because libraries keep memory for each stream that they have worked on.
    """
    return _priority_stream(torch.cuda.current_device())


@cache
def _priority_stream(device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=-1)


@cache
def _side_stream(device: int, main: int, number: int) -> torch.cuda.Stream:
    """Each stream has its own side streams, so that memory of a branch is freed and reused in that stream's order
    alone."""
    return torch.cuda.Stream(device)
