"""Checks of what an operator, a block or a model is called with."""

from __future__ import annotations

from collections.abc import Callable
from traceback import walk_stack
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx import Proxy

from geoskip.arguments import short_repr
from geoskip.graphs import Graph
from geoskip.graphs.checks import check_device
from geoskip.shapes import Float


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


def check_features(name: str, x: Any, channels: int, module: nn.Module, label: str) -> None:
    """``x`` is a tensor ``[*batch, vertices, channels]`` that a module can take; ``label`` names the module."""
    check_is_tensor(name, x, module, label)
    if x.dim() < 2 or x.shape[-1] != channels:
        raise ValueError(f"{name}: {label} expects shape [*batch, vertices, {channels}], got {list(x.shape)}")
    check_device_and_dtype(name, x, module, label)


def check_is_tensor(name: str, given: Any, module: nn.Module, label: str) -> None:
    if isinstance(given, Tensor):
        if given.layout is not torch.strided:
            raise TypeError(f"{name}: {label} expects a dense tensor, got layout {given.layout}; call .to_dense()")
        return
    advice = ""
    if isinstance(given, np.ndarray) and given.dtype.kind in "iuf":
        advice = f"; convert it with torch.as_tensor({name}, dtype={first_tensor(module).dtype})"
    raise TypeError(f"{name}: {label} expects a tensor, got {short_repr(given)}{advice}")


def check_device_and_dtype(name: str, given: Tensor, module: nn.Module, label: str) -> None:
    """``given`` is on the module's device and, without autocast, has its dtype."""
    own = first_tensor(module)
    check_device(name, given.device, own.device, label)
    if not given.is_floating_point():
        advice = "" if given.is_complex() else f"; convert {name} with .to({own.dtype}) if these are features"
        raise TypeError(f"{name}: is {given.dtype}, {label} has {own.dtype} parameters{advice}")
    if given.dtype != own.dtype and not torch.is_autocast_enabled(given.device.type):
        half = given.dtype.itemsize == 2 or own.dtype.itemsize == 2
        raise TypeError(
            f"{name}: is {given.dtype}, {label} has {own.dtype} parameters; convert one of them with .to(dtype)"
            + (", or use torch.autocast" if half else "")
        )


def first_tensor(module: nn.Module) -> Tensor:
    """The first parameter of a module, whose device and dtype its inputs must have."""
    # Its own, if it has any: the generator over all of them takes longer than some kernels run.
    own = next(iter(module._parameters.values()), None)
    own = next(module.parameters(), None) if own is None else own
    if own is not None:
        return own
    # torch.nn.DataParallel copies modules with plain tensors as parameters.
    return next(value for part in module.modules() for value in vars(part).values() if isinstance(value, Tensor))


def pseudo_of(graph: Graph, dim: int, operator: str) -> Float[Tensor, "edges dim"]:
    """The graph's pseudo-coordinates, or an error that says what is missing."""
    if graph.pseudo is None:
        raise ValueError(
            f"graph: {operator} needs pseudo-coordinates; make them with geoskip.graphs.cartesian, polar or "
            "target_degree and attach them, or call conv(x, edge_index, pseudo)"
        )
    if graph.pseudo.shape[1] != dim:
        raise ValueError(
            f"pseudo: {operator} was made with dim={dim}, the graph's pseudo-coordinates have "
            f"{graph.pseudo.shape[1]} dimensions; make it with dim={graph.pseudo.shape[1]}"
        )
    return graph.pseudo


def refuse_to_hetero(label: Callable[[], str], advice: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Stop ``to_hetero`` and ``to_hetero_with_bases``, which would transform a module of geoskip wrongly.

    Both trace the model and treat a module as a convolution only if it is a ``MessagePassing``. Any other module that
    takes an ``edge_index`` becomes a layer on edges: its outputs are no longer summed over edge types. Such a trace
    calls the module with proxies; other traces, ``to_fixed_size`` among them, are fine.
    """
    if not any(isinstance(value, Proxy) for value in (*args, *kwargs.values())):
        return
    callers = (str(frame.f_globals.get("__name__")) for frame, _ in walk_stack(None))
    if any(name.startswith("torch_geometric.nn.to_hetero") for name in callers):
        raise TypeError(
            f"model: PyTorch Geometric's to_hetero and to_hetero_with_bases do not treat {label()} as a convolution "
            f"and would not sum its outputs over edge types. {advice}"
        )
