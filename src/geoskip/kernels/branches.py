"""Independent sums of one step beside each other, where a CUDA graph is captured.

Kernels of small graphs leave most of a card idle, and the last programs of large ones leave it idle at their end. A
captured graph may branch, so gradients that do not need each other are recorded on streams of their own. Outside of
a capture the host could not start them fast enough, and they follow each other.

What stays on the stream that is captured is what other kernels wait for: it should have precedence, see
:func:`stream_to_capture`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

Result = TypeVar("Result")
_HAS_CUDA = torch.backends.cuda.is_built()
# Branches that have begun and not ended, of each stream: those of a block within another run on other sides.
_open: dict[tuple[int, int], int] = defaultdict(int)


@runtime_checkable
class Beside(Protocol):
    """Runs a call as a branch: what it returns may be read when the block of :func:`branches` has ended."""

    def __call__(self, call: Callable[[], Result]) -> Result: ...


def in_turn(call: Callable[[], Result]) -> Result:
    """No branch: the call runs now."""
    return call()


@contextmanager
def branches(x: Tensor) -> Iterator[Beside]:
    """A block whose branches start where they are made and have ended when it ends."""
    if not (x.is_cuda and _HAS_CUDA and torch.cuda.is_current_stream_capturing()):
        yield in_turn
        return
    main = torch.cuda.current_stream(x.device)
    here = main.device_index, main.cuda_stream
    used: list[torch.cuda.Stream] = []

    def beside(call: Callable[[], Result]) -> Result:
        side = _side(*here, _open[here])
        side.wait_stream(main)
        used.append(side)
        _open[here] += 1
        with torch.cuda.stream(side):
            return call()

    try:
        yield beside
    finally:
        _open[here] -= len(used)
        for side in used:
            main.wait_stream(side)


def stream_to_capture() -> torch.cuda.Stream:
    """Of the current device, one of high priority, and so are the kernels that are recorded on it: when programs of
    several wait for a place on the card, theirs come before those of the branches, which are of the usual, lowest
    priority. It is always the same, since libraries keep memory for each stream that they have worked on."""
    return _urgent(torch.cuda.current_device())


@cache
def _urgent(device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=-1)


@cache
def _side(device: int, main: int, number: int) -> torch.cuda.Stream:
    """Each stream has sides of its own: what a branch returns is freed, and its memory taken again, in that stream's
    order alone."""
    return torch.cuda.Stream(device)
