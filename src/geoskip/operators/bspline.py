r"""B-splines on [0, 1] with evenly spaced knots, and their products in several dimensions."""

from __future__ import annotations

import torch
from torch import Tensor

from geoskip.graphs.checks import values_readable
from geoskip.shapes import Float


def bspline_products(
    pseudo: Float[Tensor, "edges dim"], sizes: tuple[int, ...], degree: int, closed: tuple[bool, ...]
) -> Float[Tensor, "edges slots"]:
    r""":math:`B_{k_1 \dots k_d}(u) = \prod_d b_{k_d}(u_d)`, all :math:`\prod_d m_d` of them, the last dimension
    running fastest. They are non-negative and sum to 1."""
    _check_range(pseudo)
    product = pseudo.new_ones(pseudo.shape[0], 1)
    for axis, (size, loop) in enumerate(zip(sizes, closed, strict=True)):
        factor = bspline(pseudo[:, axis], size, degree, loop)
        product = (product.unsqueeze(2) * factor.unsqueeze(1)).flatten(1)
    return product


def bspline(u: Float[Tensor, " edges"], size: int, degree: int, closed: bool) -> Float[Tensor, "edges size"]:
    r"""The ``size`` B-splines of a degree at u; of each u, ``degree + 1`` neighbors are non-zero.

    Open splines have :math:`m - p` spans on [0, 1]; closed ones have m, and the last joins the first.
    One spline alone is the constant 1.
    """
    if size == 1:
        return torch.ones_like(u).unsqueeze(1)
    check_size(size, degree, closed)
    spans = size if closed else size - degree
    place = u * spans
    left = place.detach().floor()
    values = _local(place - left, degree)
    index = (left.long().unsqueeze(1) + torch.arange(degree + 1, device=u.device)) % size
    return values.new_zeros(u.shape[0], size).scatter_add(1, index, values)


def check_size(size: int, degree: int, closed: bool) -> None:
    """Whether there are enough splines for one span, or just the constant."""
    if not closed and 1 < size <= degree:
        raise ValueError(
            f"kernel_size: {size} open B-splines cannot have degree {degree}; take 1, or at least {degree + 1}"
        )


def _local(t: Tensor, degree: int) -> Tensor:
    """The degree + 1 splines that live on a span, at t in [0, 1) along it."""
    if degree == 1:
        pieces = [1 - t, t]
    elif degree == 2:
        pieces = [(1 - t) ** 2 / 2, (1 + 2 * t - 2 * t**2) / 2, t**2 / 2]
    else:
        pieces = [
            (1 - t) ** 3 / 6,
            (3 * t**3 - 6 * t**2 + 4) / 6,
            (-3 * t**3 + 3 * t**2 + 3 * t + 1) / 6,
            t**3 / 6,
        ]
    return torch.stack(pieces, dim=1)


def _check_range(pseudo: Tensor) -> None:
    if not values_readable(pseudo):
        return
    low, high = (float(value) for value in torch.aminmax(pseudo.detach()))
    if not (low >= 0 and high <= 1):
        raise ValueError(
            f"pseudo: B-splines live on [0, 1], the pseudo-coordinates run from {low:g} to {high:g}; "
            "normalize them, as geoskip.graphs.cartesian does"
        )
