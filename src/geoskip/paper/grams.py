r"""Roughness of a filter :math:`f(u) = \sum_m w_m(u)\, \Theta_m`, from inner products of its basis functions.

Energies of f are quadratic in Θ, so a basis is known by three M × M matrices. They are the energies that thin plate
splines minimize, of first and of second derivatives (Wahba, Spline models for observational data, 1990).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from geoskip.operators.spline import bspline
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
    center = narrow * (mean / variance + other / other_variance)
    height = torch.exp(-(mean - other).square() / (2 * (variance + other_variance)))
    moments = height.unsqueeze(-1) * _moments(center, narrow, low, high)
    derived = [_hermite(center - mean, variance), _hermite(center - other, other_variance)]
    return separable_grams(
        torch.stack([(_product(derived[0][k], derived[1][k]) * moments[..., : 2 * k + 1]).sum(-1) for k in range(3)])
    )


def _hermite(offset: Tensor, variance: Tensor) -> list[Tensor]:
    r"""Polynomials p_k with :math:`g^{(k)} = p_k\, g`, as coefficients in powers of t from the common center."""
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


def _moments(center: Tensor, variance: Tensor, low: float, high: float) -> Tensor:
    r""":math:`J_p = \int_{low}^{high} (t - \nu)^p e^{-(t-\nu)^2 / 2\tau^2} dt` for p = 0 … 4, by
    :math:`J_p = \tau^2 \big((p - 1) J_{p-2} - [(t-\nu)^{p-1} e^{\dots}]_{low}^{high}\big)`."""
    bounds = [bound - center for bound in (low, high)]
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


# Gauss-Legendre nodes in each span: exact up to degree 2 · 4 - 1, and cubic splines multiply to degree 6.
NODES = 4


def bspline_grams(sizes: tuple[int, ...], degree: int = 1, closed: tuple[bool, ...] | None = None) -> Grams:
    r"""Of SplineCNN's products of B-splines over [0, 1]^dim.

    Splines of degree 1 have kinks, whose second derivatives are not square integrable. For them ``bend`` is what
    P-splines penalize in its place, second differences of neighboring coefficients (Eilers and Marx, Flexible
    smoothing with B-splines and penalties, 1996), :math:`\sum_k h\, (\Delta^2 \theta_k / h^2)^2` along an axis with
    spans of length h, and it becomes the integral as h goes to 0.
    """
    closed = (False,) * len(sizes) if closed is None else closed
    along = [_axis_grams(size, degree, loop) for size, loop in zip(sizes, closed, strict=True)]
    places = torch.cartesian_prod(*(torch.arange(size) for size in sizes)).reshape(-1, len(sizes))
    axes = [
        [gram[places[:, d].unsqueeze(1), places[:, d]] for d, gram in enumerate(order)]
        for order in zip(*along, strict=True)
    ]
    return separable_grams(torch.stack([torch.stack(order) for order in axes]))


def chebyshev_grams(kernel_size: int, center: bool = True, nodes: int | None = None) -> Grams:
    r"""Of :math:`T_m(\lambda - 1)` over the eigenvalues :math:`0 \le \lambda \le 2` of the normalized Laplacian, m from
    0 (``center``) or from 1: the filter :math:`g(\lambda) = \sum_m T_m(\lambda - 1)\, \Theta_m` of ChebNet."""
    points, weights = _legendre(nodes or kernel_size + 1, -1.0, 1.0)
    return sampled_grams(lambda s: chebyshev(s[:, 0], kernel_size, center), points.unsqueeze(1), weights)


def chebyshev(s: Float[Tensor, " points"], kernel_size: int, center: bool = True) -> Float[Tensor, "points slots"]:
    r""":math:`T_m(s)`, from :math:`T_0` or, without ``center``, from :math:`T_1`."""
    columns = [torch.ones_like(s), s]
    while len(columns) < kernel_size + 1:
        columns.append(2 * s * columns[-1] - columns[-2])
    first = 0 if center else 1
    return torch.stack(columns[first : first + kernel_size], dim=1)


def _axis_grams(size: int, degree: int, closed: bool) -> list[Tensor]:
    """The integrals of order 0, 1 and 2 along one axis, ``[size, size]`` each."""
    spans = 1 if size == 1 else size if closed else size - degree
    bounds = np.linspace(0, 1, spans + 1)
    # Nodes lie inside the spans, so that no kink is met.
    nodes = [_legendre(NODES, low, high) for low, high in pairwise(bounds)]
    points, weights = (torch.cat(parts) for parts in zip(*nodes, strict=True))
    grams = sampled_grams(lambda u: bspline(u[:, 0], size, degree, closed), points.unsqueeze(1), weights)
    bend = _second_differences(size, closed) if degree == 1 else grams.bend
    return [grams.size, grams.slope, bend]


def _second_differences(size: int, closed: bool) -> Tensor:
    """Eilers and Marx's penalty as a matrix, for B-splines of degree 1."""
    if size < 3:
        return torch.zeros(size, size, dtype=torch.float64)
    eye = torch.eye(size, dtype=torch.float64)
    rows = eye.roll(1, 0) - 2 * eye + eye.roll(-1, 0)
    spacing = 1 / (size if closed else size - 1)
    kept = rows if closed else rows[1:-1]
    return kept.t() @ kept / spacing**3


def _legendre(nodes: int, low: float, high: float) -> tuple[Tensor, Tensor]:
    points, weights = np.polynomial.legendre.leggauss(nodes)
    half = (high - low) / 2
    return torch.from_numpy(low + half * (points + 1)), torch.from_numpy(half * weights)
