"""What radial basis interpolation promises."""

from itertools import combinations_with_replacement

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from geoskip.rbf import KERNEL_NAMES, bending_energy, fit_rbf, thin_plate_spline
from geoskip.rbf.interpolant import monomials
from tests.rbf.scattered import normal, scattered, uniform, widths

DIMS = [1, 2, 3, 4]
DEGREES = [-1, 0, 1, 2]


def polynomial(x: torch.Tensor, degree: int, seed: int) -> torch.Tensor:
    """Random, of that degree and two outputs, written out as a sum of products."""
    total = torch.zeros(len(x), 2, dtype=x.dtype)
    for count in range(degree + 1):
        for place, axes in enumerate(combinations_with_replacement(range(x.shape[1]), count)):
            term = torch.ones(len(x), dtype=x.dtype)
            for axis in axes:
                term = term * x[:, axis]
            total = total + term[:, None] * normal(2, seed=seed + 100 * count + place)
    return total


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_values_are_met_at_the_centers(name: str, dim: int) -> None:
    centers, values = scattered(25, dim), normal(25, 2)
    for degree in DEGREES:
        fitted = fit_rbf(centers, values, name, degree=degree, epsilon=widths(name, dim))
        assert_close(fitted(centers), values, rtol=0, atol=2e-6)
        assert fitted.degree == degree


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_polynomials_of_the_degree_are_reproduced(name: str, dim: int) -> None:
    """Everywhere, not at the centers alone; then no radial weight is left."""
    centers, points = scattered(30, dim), 3 * uniform(50, dim) - 1
    for degree in DEGREES[1:]:
        fitted = fit_rbf(centers, polynomial(centers, degree, 1), name, degree=degree, epsilon=widths(name, dim))
        expected = polynomial(points, degree, 1)
        assert_close(fitted(points), expected, rtol=0, atol=1e-5)
        assert_close(fitted.polynomial(points), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize("name", ["thin_plate", "cubic", "gaussian", "wendland_c2"])
def test_one_degree_more_is_not_reproduced(name: str, degree: int) -> None:
    centers, points = scattered(30, 2), 3 * uniform(50, 2) - 1
    fitted = fit_rbf(centers, polynomial(centers, degree + 1, 1), name, degree=degree, epsilon=widths(name, 2))
    assert (fitted(points) - polynomial(points, degree + 1, 1)).abs().max() > 0.05


@given(seed=st.integers(0, 10**6), dim=st.integers(1, 4), degree=st.integers(0, 2), name=st.sampled_from(KERNEL_NAMES))
@settings(max_examples=40, deadline=None)
def test_vanishing_moments(seed: int, dim: int, degree: int, name: str) -> None:
    """Pᵀ w = 0, for all polynomials of the degree."""
    centers = scattered(30, dim, seed)
    fitted = fit_rbf(centers, normal(30, 2, seed=seed), name, degree=degree, epsilon=widths(name, dim))
    moments = monomials(centers, degree).T @ fitted.weights
    assert moments.abs().max() <= 1e-9 * fitted.weights.abs().max()
    assert fitted.weights.abs().max() > 0


def test_without_the_polynomial_there_are_moments() -> None:
    centers = scattered(30, 2)
    fitted = fit_rbf(centers, normal(30, 2), degree=-1)
    assert (monomials(centers, 1).T @ fitted.weights).abs().max() > 1e-2


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_without_the_affine_part_a_plane_is_missed(dim: int) -> None:
    centers, points = scattered(30, dim), 3 * uniform(50, dim) - 1
    plane = polynomial(centers, 1, 3)
    full = thin_plate_spline(centers, plane)(points)
    bare = thin_plate_spline(centers, plane, affine=False)
    assert_close(bare(centers), plane)
    assert_close(full, polynomial(points, 1, 3))
    assert (bare(points) - full).abs().max() > 1e-2
    assert not bare.polynomial(points).any()


@given(seed=st.integers(0, 10**6), dim=st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_bending_energy_is_0_for_affine_data_and_positive_for_other(seed: int, dim: int) -> None:
    centers = scattered(20, dim, seed)
    flat = polynomial(centers, 1, seed)
    scale = flat.abs().max() ** 2
    assert bending_energy(thin_plate_spline(centers, flat)).abs().max() < 1e-9 * scale
    bent = flat.clone()
    bent[0] += 0.01
    assert bending_energy(thin_plate_spline(centers, bent)).min() > 1e-6


@given(seed=st.integers(0, 10**6), dim=st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_among_all_interpolants_the_thin_plate_spline_bends_least(seed: int, dim: int) -> None:
    """Any other is f + h with h = 0 at the centers: J(f + h) = J(f) + J(h), since the two are orthogonal."""
    centers, extra = scattered(28, dim, seed).split([20, 8])
    values, bumps = normal(20, 1, seed=seed), normal(8, 1, seed=seed + 1)
    both = torch.cat([centers, extra])
    least = thin_plate_spline(centers, values)
    h = thin_plate_spline(both, torch.cat([torch.zeros_like(values), bumps]))
    other = thin_plate_spline(both, torch.cat([values, least(extra) + bumps]))
    assert_close(other(centers), values, rtol=0, atol=1e-7)
    assert bending_energy(other) > bending_energy(least)
    assert_close(bending_energy(other), bending_energy(least) + bending_energy(h), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["thin_plate", "cubic", "gaussian", "wendland_c2"])
def test_smoothing_trades_fit_for_energy(name: str) -> None:
    centers, values = scattered(40, 2), normal(40, 1)
    fits = [
        fit_rbf(centers, values, name, degree=1, smoothing=by, epsilon=widths(name, 2)) for by in (0.0, 1e-3, 1.0, 1e9)
    ]
    misfits = [float((fitted(centers) - values).square().sum()) for fitted in fits]
    energies = [float((fitted.weights * fitted.radial(centers)).sum()) for fitted in fits]
    assert misfits == sorted(misfits)
    assert energies == sorted(energies, reverse=True)
    # In the limit nothing but the least-squares plane is left.
    poly = torch.cat([torch.ones(40, 1), centers], dim=1)
    plane = poly @ torch.linalg.lstsq(poly, values).solution
    assert_close(fits[-1](centers), plane, rtol=0, atol=1e-6)


@given(factor=st.floats(1e-5, 1e5), offset=st.floats(-1e3, 1e3), dim=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_units_and_origin_do_not_matter_to_a_thin_plate_spline(factor: float, offset: float, dim: int) -> None:
    centers, values, points = scattered(30, dim), normal(30, 2), uniform(40, dim, seed=5)
    here = thin_plate_spline(centers, values)(points)
    there = thin_plate_spline(factor * (centers + offset), values)(factor * (points + offset))
    assert_close(there, here, rtol=0, atol=1e-6)


def test_affine_in_the_coordinates_of_the_centers() -> None:
    centers, points = 50 * scattered(30, 3) + 700, 50 * uniform(40, 3) + 700
    fitted = thin_plate_spline(centers, normal(30, 2))
    slopes, offset = fitted.affine()
    assert_close(points @ slopes + offset, fitted.polynomial(points))
    constant, level = fit_rbf(centers, normal(30, 2), "linear", degree=0).affine()
    assert not constant.any()
    assert level.all()
    assert not any(part.any() for part in fit_rbf(centers, normal(30, 2), degree=-1).affine())


def test_the_parts_add_up() -> None:
    fitted, points = fit_rbf(scattered(30, 2), normal(30, 2), degree=2), uniform(40, 2)
    assert_close(fitted.radial(points) + fitted.polynomial(points), fitted(points))
    assert fitted.radial(points).abs().min() > 0
    assert fitted.polynomial(points).abs().min() > 0


def test_the_domain_of_equal_coordinates() -> None:
    """Centres on a line parallel to an axis: no division by their extent of 0."""
    centers = torch.stack([uniform(9), torch.full((9,), 3.0, dtype=torch.float64)], dim=1)
    fitted = fit_rbf(centers, normal(9, 1), "linear")
    assert fitted.scale[0, 1] == 1
    assert_close(fitted(centers), normal(9, 1))
