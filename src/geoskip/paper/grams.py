r"""Roughness of a filter :math:`f(u) = \sum_m w_m(u)\, \Theta_m`, from inner products of its basis functions.

Energies of f are quadratic in Θ, so a basis is known by three M × M matrices. They are the energies that thin plate
splines minimise, of first and of second derivatives (Wahba, Spline models for observational data, 1990).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from geoskip.shapes import Float


@dataclass(frozen=True, eq=False)
class Grams:
    r"""Inner products of basis functions over some region, or over some points.

    Attributes:
        size: :math:`\int w_m w_n`.
        slope: :math:`\int \langle \nabla w_m, \nabla w_n \rangle`.
        bend: :math:`\int \langle \nabla^2 w_m, \nabla^2 w_n \rangle`, over all entries of the Hessians.
    """

    size: Float[Tensor, "slots slots"]
    slope: Float[Tensor, "slots slots"]
    bend: Float[Tensor, "slots slots"]


@dataclass(frozen=True)
class Roughness:
    r"""How fast a filter changes, whatever its scale: neither number changes when f is multiplied.

    Attributes:
        slope: :math:`\int \|\nabla f\|^2 \big/ \int \|f\|^2`; 0 for constants.
        bend: :math:`\int \|\nabla^2 f\|^2 \big/ \int \|f\|^2`; 0 for affine functions.
    """

    slope: float
    bend: float


def filter_roughness(theta: Float[Tensor, "slots channels out"], grams: Grams) -> Roughness:
    """Of the filter, all its channels together."""
    inner = torch.einsum("mio,nio->mn", theta.double(), theta.double())
    return _quotients(*(float((inner * gram).sum()) for gram in (grams.size, grams.slope, grams.bend)))


def basis_roughness(grams: Grams) -> Roughness:
    r"""Of the basis functions themselves: the mean of their quotients, weighted by their :math:`\int w_m^2`, so that
    one which hardly reaches into the region hardly counts."""
    return _quotients(*(float(gram.trace()) for gram in (grams.size, grams.slope, grams.bend)))


def separable_grams(axes: Float[Tensor, "orders dim slots slots"]) -> Grams:
    r"""Of products :math:`w_m(u) = \prod_d g_{md}(u_d)` over a box, from one-dimensional integrals:
    ``axes[k, d]`` holds :math:`\int g_{md}^{(k)} g_{nd}^{(k)}` for derivatives of order k = 0, 1, 2."""
    dim = axes.shape[1]

    def term(*derived: int) -> Tensor:
        """With one derivative along each axis that is named, two where it is named twice."""
        return torch.stack([axes[derived.count(d), d] for d in range(dim)]).prod(0)

    slope = sum((term(a) for a in range(dim)), torch.zeros_like(axes[0, 0]))
    bend = sum((term(a, b) for a in range(dim) for b in range(dim)), torch.zeros_like(axes[0, 0]))
    return Grams(term(), slope, bend)


def sampled_grams(
    basis: Callable[[Float[Tensor, "points dim"]], Float[Tensor, "points slots"]],
    points: Float[Tensor, "points dim"],
    weights: Float[Tensor, " points"] | None = None,
) -> Grams:
    """Of any basis that autograd follows, as weighted sums over points: the edges of a graph, by default all with the
    same weight, or the nodes of a quadrature."""
    u = points.detach().double().requires_grad_()
    share = u.new_full((len(u),), 1 / max(len(u), 1)) if weights is None else weights.double()
    values = basis(u)
    slopes = torch.stack([_gradient(values[:, m], u) for m in range(values.shape[1])], dim=1)
    flat = slopes.flatten(1)
    bends = torch.stack([_gradient(flat[:, k], u) for k in range(flat.shape[1])], dim=1)
    bends = bends.reshape(len(u), values.shape[1], -1)
    parts = values.unsqueeze(2), slopes, bends
    return Grams(*(torch.einsum("p,pmk,pnk->mn", share, part, part).detach() for part in parts))


def _gradient(values: Tensor, u: Tensor) -> Tensor:
    """Zero where the values do not depend on u, as with a constant basis."""
    if not values.requires_grad:
        return torch.zeros_like(u)
    found = torch.autograd.grad(values.sum(), u, create_graph=True, allow_unused=True)[0]
    return torch.zeros_like(u) if found is None else found


def _quotients(size: float, slope: float, bend: float) -> Roughness:
    if not size > 0:
        raise ValueError("theta: the filter is zero where it is measured, so it has no roughness")
    return Roughness(slope / size, bend / size)
