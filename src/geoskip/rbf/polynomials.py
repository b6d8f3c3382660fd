"""The polynomial part: monomials over a domain moved and stretched to [-1, 1]."""

from dataclasses import dataclass
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from geoskip.shapes import Float


@dataclass(frozen=True, eq=False)
class Domain:
    """Where the centres lie: monomials of (x - shift) / scale stay in [-1, 1] on their bounding box.

    It only names the polynomials otherwise: the interpolant does not depend on it, but powers of coordinates
    around 1000 would cost the system its digits.
    """

    shift: Float[Tensor, "*batch 1 dim"]
    scale: Float[Tensor, "*batch 1 dim"]

    @classmethod
    def of(cls, centres: Float[Tensor, "*batch centres dim"]) -> "Domain":
        low, high = centres.detach().aminmax(dim=-2, keepdim=True)
        half = (high - low) / 2
        return cls((high + low) / 2, torch.where(half > 0, half, 1))

    def __call__(self, points: Float[Tensor, "*any points dim"]) -> Float[Tensor, "*all points dim"]:
        return (points - self.shift) / self.scale


def monomials(points: Float[Tensor, "*batch points dim"], degree: int) -> Float[Tensor, "*batch points monomials"]:
    """All products of at most ``degree`` coordinates, by degree: 1, x, y, x², xy, y², … None for degree -1."""
    columns = [points[..., :0].sum(dim=-1) + 1] if degree >= 0 else []
    for count in range(1, degree + 1):
        for axes in combinations_with_replacement(range(points.shape[-1]), count):
            columns.append(points[..., list(axes)].prod(dim=-1))
    return torch.stack(columns, dim=-1) if columns else points[..., :0]
