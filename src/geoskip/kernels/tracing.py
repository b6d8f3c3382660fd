"""When a kernel must not be called directly: torch traces it, or transforms it with ``torch.func``."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad


def is_traced(x: Tensor | None = None) -> bool:
    """Whether torch traces what runs now, so that tensors (``x``, if given) may have shapes but no values.

    ``torch.compiler.is_compiling()`` alone is not enough: it is False while AOTAutograd traces a backward pass, which
    runs under dispatch modes, on subclasses of tensors.
    """
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return True
    return x is not None and type(x) is not Tensor and not isinstance(x, torch.nn.Parameter)


def is_transformed() -> bool:
    """Whether ``torch.func`` (``grad``, ``vmap``, ``jvp``, …) or forward-mode AD is at work: only formulas in plain
    PyTorch can be transformed."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
