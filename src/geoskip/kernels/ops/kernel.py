"""A kernel under one name, called in two ways.

While torch traces, it is an operator of ``torch.library``: opaque, with known shapes and gradients. Otherwise it is
called directly, because the dispatcher of custom operators takes longer than some of the kernels.

The kernels of the gradients have no gradients themselves. Where a backward pass is to be differentiated again, it uses
the reference formula instead (:mod:`.formula`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.library import custom_op

from geoskip.kernels.tracing import is_traced


class Kernel:
    """A function of tensors, registered as ``geoskip::name``."""

    def __init__(self, raw: Callable[..., Any], fake: Callable[..., Any]) -> None:
        self.op = custom_op(f"geoskip::{raw.__name__}", mutates_args=())(raw)
        self.op.register_fake(fake)
        self.direct = raw

    def differentiate(self, setup_context: Callable[..., None], backward: Callable[..., Any]) -> None:
        """Give it gradients; ``backward`` must be differentiable where :func:`~.formula.must_be_differentiable`."""
        self.op.register_autograd(backward, setup_context=setup_context)
        raw = self.direct

        class Direct(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *inputs: Any) -> Any:
                output = raw(*inputs)
                setup_context(ctx, inputs, output)
                return output

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                return backward(ctx, *grads)

        self.direct = Direct.apply

    def __call__(self, *args: Any) -> Any:
        return self.op(*args) if is_traced(args[0]) else self.direct(*args)


def kernel(fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Kernel]:
    """Decorator: the function becomes a :class:`Kernel`; ``fake`` gives the shapes of what it returns."""
    return lambda raw: Kernel(raw, fake)
