"""Inner products of SplineCNN's B-splines and ChebNet's polynomials: piecewise polynomial, so quadrature is exact."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from geoskip.operators.bspline import bspline
from geoskip.paper.grams import Grams, sampled_grams, separable_grams
from geoskip.shapes import Float

# Gauss-Legendre nodes in each span: exact up to degree 2 · 4 - 1, and cubic splines multiply to degree 6.
NODES = 4


def bspline_grams(sizes: tuple[int, ...], degree: int = 1, closed: tuple[bool, ...] | None = None) -> Grams:
    r"""Of SplineCNN's products of B-splines over [0, 1]^dim.

    Splines of degree 1 have kinks, whose second derivatives are not square integrable. For them ``bend`` is what
    P-splines penalise in its place, second differences of neighbouring coefficients (Eilers and Marx, Flexible
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


def chebyshev_grams(kernel_size: int, centre: bool = True, nodes: int | None = None) -> Grams:
    r"""Of :math:`T_m(\lambda - 1)` over the eigenvalues :math:`0 \le \lambda \le 2` of the normalised Laplacian, m from
    0 (``centre``) or from 1: the filter :math:`g(\lambda) = \sum_m T_m(\lambda - 1)\, \Theta_m` of ChebNet."""
    points, weights = _legendre(nodes or kernel_size + 1, -1.0, 1.0)
    return sampled_grams(lambda s: chebyshev(s[:, 0], kernel_size, centre), points.unsqueeze(1), weights)


def chebyshev(s: Float[Tensor, " points"], kernel_size: int, centre: bool = True) -> Float[Tensor, "points slots"]:
    r""":math:`T_m(s)`, from :math:`T_0` or, without ``centre``, from :math:`T_1`."""
    columns = [torch.ones_like(s), s]
    while len(columns) < kernel_size + 1:
        columns.append(2 * s * columns[-1] - columns[-2])
    first = 0 if centre else 1
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
