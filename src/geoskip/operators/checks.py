"""Checks of what an operator or a model is called with: features, edge weights, pseudo-coordinates."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx import Proxy

from geoskip.arguments import brief
from geoskip.graphs import Graph
from geoskip.graphs.checks import as_tensor
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


EdgeValues = Tensor | np.ndarray | None


@runtime_checkable
class UsesEdges(Protocol):
    """What an operator says about itself."""

    uses_edge_weight: ClassVar[bool]
    uses_pseudo: ClassVar[bool]

    def _say(self) -> str: ...


def with_edge_values(
    operator: UsesEdges,
    graph: Graph,
    edge_values: EdgeValues,
    edge_weight: EdgeValues,
    pseudo: EdgeValues,
) -> Graph:
    """``graph`` with the edge weights and pseudo-coordinates that were passed to the operator.

    ``edge_values``, passed by position, are those that it uses. To pass others is an error. A graph may carry
    pseudo-coordinates that the operator does not use, but no such edge weights: without them it is another graph.
    """
    if edge_values is not None:
        edge_values = as_tensor("edge_values", edge_values, graph.device)
        _check_edge_values(operator, edge_values)
        if operator.uses_edge_weight:
            edge_weight = _once("edge_weight", edge_values, edge_weight)
        else:
            pseudo = _once("pseudo", edge_values, pseudo)
    if edge_weight is not None and not operator.uses_edge_weight:
        raise ValueError(f"edge_weight: {operator._say()} does not use edge weights; leave edge_weight out")
    if pseudo is not None and not operator.uses_pseudo:
        raise ValueError(f"pseudo: {operator._say()} does not use pseudo-coordinates; leave pseudo out")
    if graph.given_edge_weight is not None and not operator.uses_edge_weight:
        raise ValueError(
            f"graph: has edge weights, which {operator._say()} does not use; pass graph.without_edge_weight()"
        )
    if pseudo is not None:
        graph = graph.with_pseudo(pseudo)
    return graph if edge_weight is None else graph.with_edge_weight(edge_weight)


def _check_edge_values(operator: UsesEdges, values: Tensor) -> None:
    if not (operator.uses_edge_weight or operator.uses_pseudo):
        raise ValueError(
            f"edge_values: {operator._say()} uses neither edge weights nor pseudo-coordinates; leave the third "
            "argument out"
        )
    if operator.uses_edge_weight and values.dim() == 2 and values.shape[1] != 1:
        raise ValueError(
            f"edge_values: {operator._say()} takes edge weights of shape [edges], got {list(values.shape)}; it does "
            "not use pseudo-coordinates"
        )


def _once(name: str, by_position: Tensor, by_name: EdgeValues) -> Tensor:
    if by_name is not None:
        raise ValueError(f"{name}: was given twice, by position and by name; pass it once")
    return by_position


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


def refuse_to_hetero(said: Callable[[], str], remedy: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Stop ``to_hetero`` and ``to_hetero_with_bases`` where they meet a module that they would transform wrongly.

    Both trace the model and treat a module as a convolution only if it is a ``MessagePassing``. Any other module that
    takes an ``edge_index`` becomes a layer on edges: its outputs are no longer summed over edge types. Such a trace
    calls the module with proxies; other traces, ``to_fixed_size`` among them, are fine.
    """
    if not any(isinstance(value, Proxy) for value in (*args, *kwargs.values())):
        return
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("torch_geometric.nn.to_hetero"):
            raise TypeError(
                f"model: PyTorch Geometric's to_hetero and to_hetero_with_bases do not treat {said()} as a convolution "
                f"and would not sum its outputs over edge types. {remedy}"
            )
        frame = frame.f_back
