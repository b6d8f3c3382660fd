"""How a skip starts: like a layer of its own, or as if it were not there."""

from __future__ import annotations

from torch import Tensor

from geoskip.operators.initial import glorot, zeros

_STARTS = {"glorot": glorot, "zeros": zeros}


def check_init(init: str, block: str) -> str:
    if not isinstance(init, str) or init not in _STARTS:
        raise ValueError(f"init: {block} starts with one of {sorted(_STARTS)}, got {init!r}")
    return init


def start(matrix: Tensor, init: str) -> None:
    _STARTS[init](matrix)
