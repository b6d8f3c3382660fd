"""Initial values, as the paper's appendix has them."""

from __future__ import annotations

import math

import torch
from torch import Tensor


@torch.no_grad()
def glorot(matrix: Tensor) -> None:
    r"""Uniform in :math:`\pm\sqrt{6 / (\text{fan in} + \text{fan out})}`.

    A stack :math:`\Theta` of shape ``[slots, in, out]`` counts as the one matrix ``[slots · in, out]`` that it
    is in the product, so that the spread of y does not grow with the kernel size.
    """
    bound = math.sqrt(6 / (matrix.numel() / matrix.shape[-1] + matrix.shape[-1]))
    matrix.uniform_(-bound, bound)


@torch.no_grad()
def linear_default(theta: Tensor) -> None:
    r"""Uniform in :math:`\pm 1/\sqrt{\text{in}}` for a stack ``[slots, in, out]``: the default of PyTorch's Linear."""
    bound = 1 / math.sqrt(theta.shape[-2])
    theta.uniform_(-bound, bound)


def check_init(operator: str, init: str) -> None:
    """ValueError unless ``init`` names the initial values of the paper's text or of the authors' public code."""
    if init not in ("paper", "authors"):
        raise ValueError(f"init: {operator} has 'paper' and 'authors', got {init!r}")


@torch.no_grad()
def normal(parameter: Tensor, std: float = 0.1) -> None:
    """FeaStNet's parameters are drawn from N(0, 0.1)."""
    parameter.normal_(0, std)


@torch.no_grad()
def zeros(parameter: Tensor | None) -> None:
    if parameter is not None:
        parameter.zero_()
