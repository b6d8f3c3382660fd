"""PyTorch Geometric's ``to_hetero`` copies convolutions per edge type; here is what it does not recognize as one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch.fx import Proxy


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
