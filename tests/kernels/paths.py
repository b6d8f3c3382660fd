"""What the tests of the fast paths share: places and sizes to try, and the comparison with the reference in float64,
of values and all gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from geoskip.kernels import Pattern, sort_edges, use_path


class Sizes(NamedTuple):
    channels: int
    out: int
    slots: int
    batch: tuple[int, ...]
    vertices: int
    hub: int = 0


# Ones, primes, blocks that do not divide, more channels than a block, items as rows and vertices as rows, many slots.
SMALL = [
    Sizes(1, 1, 1, (), 5),
    Sizes(3, 5, 2, (2,), 9),
    Sizes(5, 2, 4, (13,), 6, hub=11),
    Sizes(2, 3, 3, (17,), 4),
    Sizes(18, 19, 3, (12,), 4),
    Sizes(3, 18, 17, (), 6, hub=19),
]
LARGE = [
    Sizes(33, 17, 5, (3,), 71, hub=300),
    Sizes(3, 130, 9, (2, 7), 50),
    Sizes(64, 128, 10, (), 200),
    Sizes(32, 32, 14, (32,), 90, hub=70),
    Sizes(129, 64, 7, (12,), 40),
    Sizes(1, 257, 25, (1,), 33),
    Sizes(70, 40, 25, (), 90, hub=40),
    Sizes(1, 32, 64, (), 200),
]


@dataclass(frozen=True)
class Where:
    """A path, and the device and precision it is tried in."""

    path: str
    device: str = "cpu"
    dtype: torch.dtype = torch.float32

    @property
    def tolerance(self) -> float:
        return 1e-12 if self.dtype == torch.float64 else 1e-5

    def __str__(self) -> str:
        return f"{self.path}-{self.device}-{str(self.dtype).removeprefix('torch.')}"


CPU = [Where("fast"), Where("fast", dtype=torch.float64)]
ON_TRITON = [
    pytest.param(Where("interpreter"), id="interpreter", marks=pytest.mark.compiled),
    pytest.param(Where("fast", "cuda"), id="cuda", marks=pytest.mark.gpu),
]
EVERYWHERE = [*[pytest.param(where, id=str(where)) for where in CPU], *ON_TRITON]


def cases(least_slots: int = 1) -> list[Any]:
    def chosen(sizes: list[Sizes]) -> list[tuple[int, Sizes]]:
        return [(i, one) for i, one in enumerate(sizes) if one.slots >= least_slots]

    return [
        *[pytest.param(where, sizes, id=f"{where}-{i}") for where in CPU for i, sizes in chosen(SMALL + LARGE)],
        *[
            pytest.param(Where("interpreter"), sizes, id=f"interpreter-{i}", marks=pytest.mark.compiled)
            for i, sizes in chosen(SMALL)
        ],
        *[
            pytest.param(Where("fast", "cuda"), sizes, id=f"cuda-{i}", marks=pytest.mark.gpu)
            for i, sizes in chosen(SMALL + LARGE)
        ],
    ]


def edges(sizes: Sizes, groups: int = 1, loops: bool = False) -> Pattern:
    """Random edges; a hub that hears many; the last vertex is isolated unless every vertex hears itself."""
    random = torch.Generator().manual_seed(sizes.vertices)
    count = 4 * sizes.vertices
    senders = torch.randint(sizes.vertices, (count + sizes.hub,), generator=random)
    receivers = torch.randint(max(sizes.vertices - 1, 1), (count + sizes.hub,), generator=random)
    receivers[count:] = 0
    if loops:
        own = torch.arange(sizes.vertices)
        senders, receivers = torch.cat([senders, own]), torch.cat([receivers, own])
    group = torch.randint(groups, senders.shape, generator=random) if groups > 1 else None
    return sort_edges(senders, receivers, sizes.vertices, sizes.vertices, group, groups)[0]


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def relative(found: Tensor, exact: Tensor) -> float:
    """The error in the Frobenius norm."""
    return float((found.to(exact) - exact).norm() / exact.norm())


def outputs(function, inputs: list[Tensor], where: Where | None) -> list[Tensor]:
    """The value and the gradient of every input, under a fixed gradient of the value."""
    dtype, device = (torch.float64, "cpu") if where is None else (where.dtype, where.device)
    ready = [tensor.to(device, dtype).requires_grad_() for tensor in inputs]
    with use_path("reference" if where is None else where.path):
        y = function(*ready)
        grads = torch.autograd.grad(y, ready, drawn(*y.shape, seed=99).to(device, y.dtype))
    return [y.detach(), *grads]


def compare(function, inputs: list[Tensor], where: Where) -> None:
    expected = outputs(lambda *a: function(*a, device="cpu"), inputs, None)
    found = outputs(lambda *a: function(*a, device=where.device), inputs, where)
    again = outputs(lambda *a: function(*a, device=where.device), inputs, where)
    for a, b, repeated in zip(found, expected, again, strict=True):
        assert torch.equal(a, repeated)
        # Inputs are of the order of 1; where the true gradient is 0 there is nothing to be relative to.
        error = (a.cpu().double() - b).norm() / b.norm().clamp(min=0.1)
        assert float(error) < where.tolerance


def moved(pattern: Pattern, device: str) -> Pattern:
    from geoskip.graphs import move

    return move(pattern, device)
