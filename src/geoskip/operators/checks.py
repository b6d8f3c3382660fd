"""Checks of what an operator or a model is called with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from geoskip.arguments import brief
from geoskip.graphs import Graph


def check_order(x: Any, graph: Any, function: str) -> None:
    """``x`` comes before ``graph``."""
    if isinstance(x, Graph):
        raise TypeError(f"x: expected features, got a Graph; the features come first: {function}(x, graph)")
    if _is_edge_index(x) and isinstance(graph, Tensor) and graph.is_floating_point():
        raise TypeError(
            f"x: expected features, got an edge_index ({x.dtype}, shape {list(x.shape)}); the features come first: "
            f"{function}(x, edge_index)"
        )


def _is_edge_index(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dim() == 2 and x.shape[0] == 2 and x.dtype in (torch.int32, torch.int64)


def check_features(name: str, x: Any, channels: int, module: nn.Module, said: str) -> None:
    """``x`` is a tensor ``[*batch, vertices, channels]`` that a module can take; ``said`` is how to call the module."""
    check_is_tensor(name, x, module, said)
    if x.dim() < 2 or x.shape[-1] != channels:
        raise ValueError(f"{name}: {said} expects shape [*batch, vertices, {channels}], got {list(x.shape)}")
    check_home(name, x, module, said)


def check_is_tensor(name: str, given: Any, module: nn.Module, said: str) -> None:
    if isinstance(given, Tensor):
        return
    advice = ""
    if isinstance(given, np.ndarray) and given.dtype.kind in "iuf":
        advice = f"; convert it with torch.as_tensor({name}, dtype={_first_tensor(module).dtype})"
    raise TypeError(f"{name}: {said} expects a tensor, got {brief(given)}{advice}")


def check_home(name: str, given: Tensor, module: nn.Module, said: str) -> None:
    """What a module is given lies on its device and, without autocast, has its dtype; ``said`` is how to call it."""
    own = _first_tensor(module)
    if given.device != own.device:
        raise ValueError(f"{name}: is on {given.device}, {said} on {own.device}; move one with .to()")
    if not given.is_floating_point():
        advice = "" if given.is_complex() else f"; convert {name} with .to({own.dtype}) if these are features"
        raise TypeError(f"{name}: is {given.dtype}, {said} has {own.dtype} parameters{advice}")
    if given.dtype != own.dtype and not torch.is_autocast_enabled(given.device.type):
        half = given.dtype.itemsize == 2 or own.dtype.itemsize == 2
        raise TypeError(
            f"{name}: is {given.dtype}, {said} has {own.dtype} parameters; convert one of them with .to(dtype)"
            + (", or use torch.autocast" if half else "")
        )


def _first_tensor(module: nn.Module) -> Tensor:
    # Its own, if it has any: the generator over all of them takes longer than some kernels run.
    own = next(iter(module._parameters.values()), None)
    return next(module.parameters()) if own is None else own
