"""Independent sums of one step beside each other, where a CUDA graph is captured.

Kernels of small graphs leave most of a card idle, and the last programs of large ones leave it idle at their end. A
captured graph may branch, so gradients that do not need each other are recorded on streams of their own. Outside of
a capture the host could not start them fast enough, and they follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import cycle
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

Result = TypeVar("Result")
# Streams in turn, so that those of a block within another are others.
_turns = cycle(range(6))


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
    if not (x.is_cuda and torch.cuda.is_current_stream_capturing()):
        yield in_turn
        return
    main = torch.cuda.current_stream(x.device)
    used: list[torch.cuda.Stream] = []

    def beside(call: Callable[[], Result]) -> Result:
        side = _side(main.device_index, next(_turns))
        used.append(side)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            return call()

    try:
        yield beside
    finally:
        for side in used:
            main.wait_stream(side)


@cache
def _side(device: int, number: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
