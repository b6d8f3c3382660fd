"""Roughness by quadrature: against the theory of each basis, and what it must not depend on."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from geoskip.kernels.reference import gaussian_basis
from geoskip.operators.spline import bspline_products
from geoskip.paper.smoothness import (
    Grams,
    basis_roughness,
    bspline_grams,
    chebyshev,
    chebyshev_grams,
    filter_roughness,
    gaussian_grams,
    sampled_grams,
    separable_grams,
)
from tests.specimens import features


def quadrature(dim: int, nodes: int, pieces: int = 1) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre on [0, 1]^dim, with ``pieces`` equal spans along each axis."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    line = torch.from_numpy(np.concatenate([(k + (points + 1) / 2) / pieces for k in range(pieces)]))
    share = torch.from_numpy(np.tile(weights / 2 / pieces, pieces))
    grid = torch.cartesian_prod(*[line] * dim).reshape(-1, dim)
    return grid, torch.cartesian_prod(*[share] * dim).reshape(-1, dim).prod(1)


def gaussians(slots: int, dim: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Centres in and around the box, scales of both signs."""
    random = torch.Generator().manual_seed(seed)
    mean = 2 * torch.rand(slots, dim, generator=random, dtype=torch.float64) - 0.5
    scale = 0.2 + torch.rand(slots, dim, generator=random, dtype=torch.float64)
    return mean, scale * torch.randn(slots, dim, generator=random, dtype=torch.float64).sign()


def assert_same_grams(found: Grams, expected: Grams, rtol: float = 1e-10) -> None:
    for name in ("size", "slope", "bend"):
        one, other = getattr(found, name), getattr(expected, name)
        assert_close(one, other, rtol=rtol, atol=rtol * float(other.abs().max()), msg=name)


@pytest.mark.parametrize(("dim", "nodes"), [(1, 60), (2, 40), (3, 24)])
def test_gaussians_agree_with_quadrature(dim: int, nodes: int) -> None:
    mean, scale = gaussians(4, dim)
    oracle = sampled_grams(lambda u: gaussian_basis(u, mean, scale, floor=0.0), *quadrature(dim, nodes))
    assert_same_grams(gaussian_grams(mean, scale), oracle)


@pytest.mark.parametrize(("size", "degree", "closed"), [(5, 1, False), (4, 2, False), (6, 3, False), (5, 2, True)])
def test_splines_agree_with_fine_quadrature(size: int, degree: int, closed: bool) -> None:
    """Spans are cut once more, so that no node is shared; the bend of kinks is another matter."""
    spans = size if closed else size - degree
    points, weights = quadrature(1, 6, 2 * spans)
    oracle = sampled_grams(lambda u: bspline_products(u, (size,), degree, (closed,)), points, weights)
    found = bspline_grams((size,), degree, (closed,))
    if degree == 1:
        oracle = Grams(oracle.size, oracle.slope, found.bend)
    assert_same_grams(found, oracle)


def test_products_of_splines_agree_with_quadrature() -> None:
    points, weights = quadrature(2, 5, 6)
    oracle = sampled_grams(lambda u: bspline_products(u, (4, 5), 2, (False, False)), points, weights)
    assert_same_grams(bspline_grams((4, 5), 2), oracle)


def test_linear_splines_are_hats() -> None:
    """Known from finite elements: mass h/6 · [1, 4, 1], halved at the ends, stiffness 1/h · [-1, 2, -1]."""
    h = 1 / 4
    grams = bspline_grams((5,))
    off = torch.ones(4, dtype=torch.float64)
    ends = torch.tensor([1.0, 2, 2, 2, 1], dtype=torch.float64)
    assert_close(grams.size, h / 6 * (torch.diag(2 * ends) + torch.diag(off, 1) + torch.diag(off, -1)))
    assert_close(grams.slope, (torch.diag(ends) - torch.diag(off, 1) - torch.diag(off, -1)) / h)


def line_filter(sizes: tuple[int, ...], values: Tensor) -> Tensor:
    """Coefficients of hats are the values at the knots."""
    return values.double().reshape(math.prod(sizes), 1, 1)


def knots(sizes: tuple[int, ...]) -> Tensor:
    return torch.cartesian_prod(*(torch.linspace(0, 1, size, dtype=torch.float64) for size in sizes))


def test_constants_have_no_slope_and_planes_no_bend() -> None:
    sizes = (4, 3)
    grams, places = bspline_grams(sizes), knots(sizes)
    flat = filter_roughness(line_filter(sizes, torch.ones(12)), grams)
    assert flat.slope == pytest.approx(0, abs=1e-12)
    assert flat.bend == pytest.approx(0, abs=1e-12)
    plane = filter_roughness(line_filter(sizes, places @ torch.tensor([3.0, 4.0]).double()), grams)
    # ∫ (3u + 4v)² = 3 + 6 + 16/3 and |∇|² = 25; the mixed derivative of a plane is 0.
    assert plane.slope == pytest.approx(25 / (3 + 6 + 16 / 3))
    assert plane.bend == pytest.approx(0, abs=1e-9)


def test_second_differences_approach_the_integral() -> None:
    """For sin(πu): ∫ f″² / ∫ f² = π⁴, with an error that falls with the number of knots."""
    errors = []
    for size in (11, 41, 161):
        values = torch.sin(math.pi * torch.linspace(0, 1, size, dtype=torch.float64))
        errors.append(abs(filter_roughness(line_filter((size,), values), bspline_grams((size,))).bend / math.pi**4 - 1))
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[2] < 0.01


def test_closed_splines_turn() -> None:
    """A filter on a loop may be shifted by a span; with open ends it may not."""
    values = features(6)
    for closed, same in ((True, True), (False, False)):
        found = [
            filter_roughness(line_filter((6,), row), bspline_grams((6,), 1, (closed,)))
            for row in (values, values.roll(1))
        ]
        for name in ("slope", "bend"):
            assert (getattr(found[0], name) == pytest.approx(getattr(found[1], name))) is same


@pytest.mark.parametrize("center", [True, False])
def test_chebyshev_polynomials_are_cosines(center: bool) -> None:
    angle = torch.linspace(0.1, 3, 9, dtype=torch.float64)
    order = torch.arange(5) + (0 if center else 1)
    assert_close(chebyshev(angle.cos(), 5, center), torch.cos(angle.unsqueeze(1) * order))


@pytest.mark.parametrize(("size", "center"), [(1, True), (6, True), (6, False), (1, False)])
def test_chebyshev_integrals_are_exact(size: int, center: bool) -> None:
    """∫ T_m² = 1 - 1/(4m² - 1) on [-1, 1]."""
    grams = chebyshev_grams(size, center)
    order = torch.arange(size) + (0 if center else 1)
    assert_close(grams.size.diagonal(), 1 - 1 / (4 * order.double() ** 2 - 1))


@given(st.integers(0, 50), st.floats(0.01, 100))
@settings(max_examples=20, deadline=None)
def test_roughness_has_no_scale_and_knows_no_channels(seed: int, factor: float) -> None:
    """f and c·f are equally rough, and so is f in another orthonormal frame of channels."""
    grams = gaussian_grams(*gaussians(4, 2, seed))
    theta = features(4, 3, 5, seed=seed)
    frame = torch.linalg.qr(features(5, 5, seed=seed + 1))[0]
    found = filter_roughness(theta, grams)
    for other in (factor * theta, theta @ frame):
        again = filter_roughness(other, grams)
        assert again.slope == pytest.approx(found.slope)
        assert again.bend == pytest.approx(found.bend)


def test_the_basis_counts_what_reaches_into_the_box() -> None:
    """A needle far outside changes nothing; the same needle inside does."""
    wide = torch.tensor([[0.5]]), torch.tensor([[1.0]])
    alone = basis_roughness(gaussian_grams(*wide)).slope
    for place, changes in ((7.0, False), (0.5, True)):
        both = gaussian_grams(torch.cat([wide[0], torch.tensor([[place]])]), torch.tensor([[1.0], [0.01]]))
        assert (basis_roughness(both).slope > 1.01 * alone) is changes


def test_points_weigh_the_same() -> None:
    """A sum over the edges of a graph is a mean: twice the same edges change nothing."""
    mean, scale = gaussians(3, 2)
    points = torch.rand(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    once, twice = (sampled_grams(lambda u: gaussian_basis(u, mean, scale), p) for p in (points, points.repeat(2, 1)))
    assert_same_grams(once, twice)
    by_hand = gaussian_basis(points, mean, scale)
    assert_close(once.size, by_hand.t() @ by_hand / 20)


def test_a_constant_basis_has_no_slope() -> None:
    grams = bspline_grams((1, 1))
    assert_close(grams.size, torch.ones(1, 1).double())
    assert float(grams.slope) == float(grams.bend) == 0


def test_separable_grams_in_one_dimension_are_the_integrals() -> None:
    axis = Grams(*features(3, 2, 2))
    assert_same_grams(separable_grams([axis]), axis)


def test_bad_input_is_named() -> None:
    mean, scale = gaussians(2, 1)
    with pytest.raises(ValueError, match="scale: a Gaussian of scale 0"):
        gaussian_grams(mean, 0 * scale)
    with pytest.raises(ValueError, match="theta: the filter is zero"):
        filter_roughness(torch.zeros(2, 1, 1), gaussian_grams(mean, scale))
