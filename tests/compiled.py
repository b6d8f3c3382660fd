"""What the tests of ``torch.compile`` on CUDA share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

MODES = ["default", "reduce-overhead"]
# Of a CUDA graph: to warm up, to record, to replay.
CALLS = 3


def assert_trains_compiled(module: nn.Module, inputs: Sequence[Tensor], *args: Any, **kwargs: Any) -> None:
    """Compiled as one graph, ``module(x, *args[:-1], **kwargs)`` has the values and gradients of eager for every x; the
    last of ``args`` is the mode of torch.compile."""
    args, mode = args[:-1], args[-1]
    compiled = torch.compile(module, fullgraph=True, mode=mode)
    extra = [value for value in kwargs.values() if isinstance(value, Tensor) and value.requires_grad]

    def trained(call: Callable[..., Any], x: Tensor) -> list[Tensor]:
        torch.compiler.cudagraph_mark_step_begin()
        y = call(x, *args, **kwargs)
        leaves = [*([x] if x.requires_grad else []), *extra, *module.parameters()]
        grads = torch.autograd.grad(y.square().mean(), leaves, materialize_grads=True)
        # Of a replayed graph the memory is used again.
        return [tensor.detach().clone() for tensor in (y, *grads)]

    for x in inputs:
        expected = trained(module, x)
        for _ in range(CALLS):
            with warnings.catch_warnings():
                # torch's own: of an empty graph that it records to begin with, of changing shapes.
                warnings.simplefilter("ignore")
                values = trained(compiled, x)
            for found, wanted in zip(values, expected, strict=True):
                assert float((found - wanted).norm()) <= 1e-4 * max(float(wanted.norm()), 1e-2)
