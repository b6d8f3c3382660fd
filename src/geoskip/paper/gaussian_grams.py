r"""Inner products of MoNet's Gaussians and of their derivatives over a box, in closed form."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from geoskip.paper.grams import Grams, separable_grams
from geoskip.shapes import Float


def gaussian_grams(
    mean: Float[Tensor, "slots dim"], scale: Float[Tensor, "slots dim"], low: float = 0.0, high: float = 1.0
) -> Grams:
    r"""Of :math:`w_m(u) = \exp(-\tfrac12 \sum_d (u_d - \mu_{md})^2 / \sigma_{md}^2)` over the box [low, high]^dim, by
    default the one in which pseudo-coordinates lie. Infinite bounds are allowed: over all space
    :math:`\int |\nabla w|^2 / \int w^2 = \tfrac12 \sum_d \sigma_d^{-2}`.

    A product of two Gaussians is a Gaussian again, derivatives bring polynomials, and the moments of a Gaussian
    between two bounds follow by partial integration from the error function. In float64; for σ of more than a hundred
    times the box what is subtracted there begins to cancel.
    """
    if not low < high:
        raise ValueError(f"low, high: the box from {low} to {high} is empty")
    if bool((scale == 0).any()):
        raise ValueError("scale: a Gaussian of scale 0 has no roughness")
    mean, variance = mean.double().t().unsqueeze(2), scale.double().square().t().unsqueeze(2)
    other, other_variance = mean.mT, variance.mT
    narrow = 1 / (1 / variance + 1 / other_variance)
    centre = narrow * (mean / variance + other / other_variance)
    height = torch.exp(-(mean - other).square() / (2 * (variance + other_variance)))
    moments = height.unsqueeze(-1) * _moments(centre, narrow, low, high)
    derived = [_hermite(centre - mean, variance), _hermite(centre - other, other_variance)]
    return separable_grams(
        torch.stack([(_product(derived[0][k], derived[1][k]) * moments[..., : 2 * k + 1]).sum(-1) for k in range(3)])
    )


def _hermite(offset: Tensor, variance: Tensor) -> list[Tensor]:
    r"""Polynomials p_k with :math:`g^{(k)} = p_k\, g`, as coefficients in powers of t from the common centre."""
    offset, variance = torch.broadcast_tensors(offset, variance)
    one, zero = torch.ones_like(offset), torch.zeros_like(offset)
    first = torch.stack([-offset / variance, -one / variance], dim=-1)
    minus = torch.stack([one / variance, zero, zero], dim=-1)
    return [one.unsqueeze(-1), first, _product(first, first) - minus]


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Of two polynomials of one degree, coefficients in the last axis."""
    terms = a.shape[-1]
    total = a.new_zeros(*torch.broadcast_shapes(a.shape[:-1], b.shape[:-1]), 2 * terms - 1)
    for k in range(terms):
        total[..., k : k + terms] += a[..., k : k + 1] * b
    return total


def _moments(centre: Tensor, variance: Tensor, low: float, high: float) -> Tensor:
    r""":math:`J_p = \int_{low}^{high} (t - \nu)^p e^{-(t-\nu)^2 / 2\tau^2} dt` for p = 0 … 4, by
    :math:`J_p = \tau^2 \big((p - 1) J_{p-2} - [(t-\nu)^{p-1} e^{\dots}]_{low}^{high}\big)`."""
    bounds = [bound - centre for bound in (low, high)]
    ends = [torch.exp(-bound.square() / (2 * variance)) for bound in bounds]

    def jump(power: int) -> Tensor:
        """Zero at infinity, where the Gaussian beats any power."""
        at_high, at_low = (
            torch.where(end > 0, bound**power * end, 0) for bound, end in zip(bounds[::-1], ends[::-1], strict=True)
        )
        return at_high - at_low

    below, above = (torch.erf(bound / (2 * variance).sqrt()) for bound in bounds)
    moments = [(math.pi / 2 * variance).sqrt() * (above - below), -variance * jump(0)]
    for power in range(2, 5):
        moments.append(variance * ((power - 1) * moments[power - 2] - jump(power - 1)))
    return torch.stack(moments, dim=-1)
