"""Scattered data for the tests: centers that are never too close, values, and points around them."""

import torch
from torch import Tensor

from geoskip.rbf import KERNEL_NAMES

POLYHARMONIC = ("linear", "thin_plate", "cubic", "quintic")
# Inverse widths that keep the systems of `centers` well conditioned.
EPSILON = {name: 0.8 if name.startswith("wendland") else 2.0 for name in KERNEL_NAMES if name not in POLYHARMONIC}


def uniform(*shape: int, seed: int = 0) -> Tensor:
    """Float64 in [0, 1)."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def scattered(count: int, dim: int, seed: int = 0) -> Tensor:
    """Cells of a grid, jittered by a third of a cell: random, and apart."""
    side = 1
    while side**dim < count:
        side += 1
    cells = torch.cartesian_prod(*[torch.arange(side, dtype=torch.float64)] * dim).reshape(-1, dim)
    chosen = cells[torch.randperm(len(cells), generator=torch.Generator().manual_seed(seed))[:count]]
    return (chosen + uniform(count, dim, seed=seed + 1) / 3) / side


def widths(name: str, dim: int) -> float | None:
    """On a line centers are 1/25 apart, and wide kernels alike to many digits."""
    return None if name not in EPSILON else EPSILON[name] * (6 if dim == 1 else 1.5)
