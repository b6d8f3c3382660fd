"""Independent sums of one step beside each other, where a CUDA graph is captured.

Kernels of small graphs leave most of a card idle, and the last programs of large ones leave it idle at their end. A
captured graph may branch, so gradients that do not need each other are recorded on streams of their own. Outside of
a capture the host could not start them fast enough, and they follow each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

Result = TypeVar("Result")
_HAS_CUDA = torch.backends.cuda.is_built()
# Branches that have begun and not ended, of each stream: those of a block within another run on other sides.
_open: dict[tuple[int, int], int] = defaultdict(int)


@runtime_checkable
class Beside(Protocol):
    """Runs a call as a branch: what it returns may be read when the block of :func:`branches` has ended."""

    def here(self) -> Any:
        """This place of the block, for branches that start here although they are recorded later: of kernels that
        could run at the same time, a card takes those that were recorded first."""

    def __call__(self, call: Callable[[], Result], since: Any = None) -> Result:
        """``since`` is where the branch starts: where it is made, if nothing else is said."""
        ...


class InTurn:
    """No branches: calls run where they are made."""

    def here(self) -> None:
        return None

    def __call__(self, call: Callable[[], Result], since: Any = None) -> Result:
        return call()


in_turn = InTurn()


class Sides:
    """Branches on streams of their own beside ``main``, which is being captured."""

    def __init__(self, main: torch.cuda.Stream) -> None:
        self.main, self.place = main, (main.device_index, main.cuda_stream)
        self.used: list[torch.cuda.Stream] = []

    def here(self) -> torch.cuda.Event:
        return self.main.record_event()

    def __call__(self, call: Callable[[], Result], since: torch.cuda.Event | None = None) -> Result:
        side = _side(*self.place, _open[self.place])
        side.wait_event(self.here() if since is None else since)
        self.used.append(side)
        _open[self.place] += 1
        with torch.cuda.stream(side):
            return call()

    def join(self) -> None:
        _open[self.place] -= len(self.used)
        for side in self.used:
            self.main.wait_stream(side)


@contextmanager
def branches(x: Tensor) -> Iterator[Beside]:
    """A block whose branches have ended when it ends."""
    if not (x.is_cuda and _HAS_CUDA and torch.cuda.is_current_stream_capturing()):
        yield in_turn
        return
    sides = Sides(torch.cuda.current_stream(x.device))
    try:
        yield sides
    finally:
        sides.join()


@cache
def _side(device: int, main: int, number: int) -> torch.cuda.Stream:
    """Each stream has sides of its own: what a branch returns is freed, and its memory taken again, in that stream's
    order alone."""
    return torch.cuda.Stream(device)
