"""From ``block(x, graph)`` to the kernel there are at most six calls, as docs/kernels.md lists them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import geoskip
from geoskip.blocks import make_block
from geoskip.kernels import use_path
from geoskip.operators import OPERATORS, make_operator
from tests.specimens import features, specimen

ROOT = Path(geoskip.__file__).parent
KERNELS = {str(ROOT / "kernels" / name) for name in ("cpu.py", "sparse.py", "triton/convolution.py")}
MOST = 6


def calls_to_kernel(block: nn.Module, *inputs: Any) -> list[str]:
    """The functions of geoskip on the stack when the last kernel of the forward pass begins. ``__call__`` is left out:
    it belongs to torch's modules."""
    chain: list[str] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal chain
        if event != "call" or frame.f_code.co_filename not in KERNELS or frame.f_code.co_name.startswith("_"):
            return
        frames: list[str] = []
        caller: FrameType | None = frame
        while caller is not None:
            path, name = Path(caller.f_code.co_filename), caller.f_code.co_name
            if path.is_relative_to(ROOT) and name != "__call__":
                frames.append(f"{path.relative_to(ROOT).with_suffix('')}.{name}")
            caller = caller.f_back
        # Kernels call each other; the first is the one that was called.
        if sum(entry.startswith(("kernels/cpu", "kernels/sparse", "kernels/triton")) for entry in frames) == 1:
            chain = frames[::-1]

    block(*inputs)
    sys.setprofile(watch)
    try:
        block(*inputs)
    finally:
        sys.setprofile(None)
    return chain


def block_of(operator: str, skip: str) -> nn.Module:
    kernel_size = None if operator in ("gcn", "gin") else 2
    dim = 3 if operator in ("monet", "spline", "rbf") else None
    return make_block(make_operator(operator, 3, 4, kernel_size=kernel_size, dim=dim), skip)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("skip", ["none", "residual", "affine"])
@pytest.mark.parametrize("operator", OPERATORS.names())
def test_at_most_six_calls_on_the_cpu(operator: str, skip: str) -> None:
    graph = specimen(dim=3).graph(torch.float32)
    chain = calls_to_kernel(block_of(operator, skip), features(7, 3, dtype=torch.float32), graph)
    assert chain
    assert len(chain) <= MOST, chain


@pytest.mark.compiled
def test_at_most_six_calls_in_triton() -> None:
    graph = specimen(dim=3).graph(torch.float32)
    with use_path("interpreter"):
        chain = calls_to_kernel(block_of("monet", "affine"), features(7, 3, dtype=torch.float32), graph)
    assert [entry.rpartition("/")[2] for entry in chain] == [
        "skips.forward",
        "base.forward",
        "monet.convolve",
        "functional.gaussian_convolution",
        "autograd.forward",
        "convolution.gaussian_convolution",
    ]
