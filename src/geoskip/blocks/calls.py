"""How often a forward pass calls each module: a convolution that takes any width may be used at several."""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from contextlib import suppress
from typing import Any

import torch
from torch import fx, nn

from geoskip.blocks.base import Skip
from geoskip.blocks.channels import is_convolution, takes_any_width


def is_called_at_several_widths(model: nn.Module, name: str, calls: Counter[str]) -> bool:
    """Whether the module ``name`` takes any width and may meet different ones in one forward pass.

    That is so if its parent calls it several times. Called once, it meets as many widths as the parent does, and one
    only if the parent has a weight matrix.
    """
    while name and takes_any_width(model.get_submodule(name)):
        parent = name.rpartition(".")[0]
        while parent and not calls[parent]:  # lists and dictionaries of modules are not called themselves
            parent = parent.rpartition(".")[0]
        if calls[name] > calls[parent]:
            return True
        name = parent
    return False


def count_calls(model: nn.Module) -> Counter[str]:
    """Calls of each module in one forward pass, by name; the model's own name is "".

    The forward pass is traced with stand-ins for tensors, in training and in evaluation mode, with and without the
    optional arguments; the largest count is returned. Where tracing fails, calls up to there are counted.
    """
    calls: Counter[str] = Counter()
    for training in (True, False):
        for defaults in (True, False):
            calls |= _traced_calls(model, training, defaults)
    return calls | Counter({"": 1})


class _CountingTracer(fx.Tracer):
    def __init__(self, names: dict[nn.Module, str]) -> None:
        super().__init__()
        self.names = names
        self.calls: Counter[str] = Counter()

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, Skip) or is_convolution(m) or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, *rest: Any) -> Any:
        self.calls[self.names.get(m, "")] += 1
        return super().call_module(m, *rest)


def _traced_calls(model: nn.Module, training: bool, defaults: bool) -> Counter[str]:
    calls: Counter[str] = Counter()
    # Any model may be given, and tracing runs its code: whatever goes wrong there is not the caller's concern.
    with suppress(Exception), torch.random.fork_rng(devices=[]):
        # A copy that shares the parameters, since a forward pass may keep what it computes in attributes.
        traced = copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})
        traced.train(training)
        tracer = _CountingTracer({module: name for name, module in traced.named_modules()})
        calls = tracer.calls
        tracer.trace(traced, _defaults(traced) if defaults else None)
    return calls


def _defaults(model: nn.Module) -> dict[str, Any]:
    parameters = inspect.signature(model.forward).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
