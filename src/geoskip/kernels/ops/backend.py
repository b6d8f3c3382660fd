"""Which raw kernels run: by the device of the input, or as the tests ask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from torch import Tensor

from geoskip.kernels import cpu

_interpreted = False


def on_triton(x: Tensor) -> bool:
    """Whether Triton's kernels run for x: on CUDA, or in Triton's interpreter."""
    return x.is_cuda or _interpreted


def backend(x: Tensor) -> ModuleType:
    """The raw kernels for x."""
    if on_triton(x):
        from geoskip.kernels import triton

        return triton
    return cpu


@contextmanager
def interpreted() -> Iterator[None]:
    """Run Triton's kernels on CPU tensors. ``TRITON_INTERPRET=1`` must have been set before triton was imported."""
    global _interpreted
    before, _interpreted = _interpreted, True
    try:
        yield
    finally:
        _interpreted = before
