"""The same functions by other means: SciPy's interpolators, natural cubic splines, integrals by quadrature."""

from math import pi

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.interpolate import CubicSpline, RBFInterpolator

from geoskip.rbf import bending_energy, fit_rbf, thin_plate_spline
from tests.rbf.scattered import POLYHARMONIC, normal, scattered, uniform, widths

THEIRS = {"thin_plate": "thin_plate_spline"}
SHARED = (*POLYHARMONIC, "gaussian", "multiquadric", "inverse_multiquadric", "inverse_quadratic")


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("dim", [1, 2, 3, 5])
@pytest.mark.parametrize("name", SHARED)
def test_scipy_agrees(name: str, dim: int, smoothing: float) -> None:
    centers, values, points = scattered(40, dim) * 3, normal(40, 2), uniform(30, dim) * 4
    epsilon = widths(name, dim)
    ours = fit_rbf(centers, values, name, smoothing=smoothing, epsilon=epsilon)
    theirs = RBFInterpolator(centers, values, kernel=THEIRS.get(name, name), smoothing=smoothing, epsilon=epsilon)
    expected = theirs(points.numpy())
    assert_allclose(ours(points), expected, rtol=0, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize("degree", [-1, 0, 1, 2])
def test_scipy_agrees_on_degrees(degree: int) -> None:
    centers, values, points = scattered(40, 3), normal(40, 2), uniform(30, 3) * 2
    theirs = RBFInterpolator(centers, values, kernel="gaussian", epsilon=4.0, degree=degree)(points.numpy())
    assert_allclose(fit_rbf(centers, values, "gaussian", epsilon=4.0, degree=degree)(points), theirs, atol=1e-9)


def test_on_a_line_it_is_the_natural_cubic_spline() -> None:
    knots = scattered(12, 1).sort(dim=0).values
    values, points = normal(12, 2), torch.linspace(float(knots[0]), float(knots[-1]), 101, dtype=torch.float64)
    spline = CubicSpline(knots[:, 0], values, bc_type="natural")
    ours = thin_plate_spline(knots, values)
    assert_allclose(ours(points[:, None]), spline(points.numpy()), atol=1e-9)
    # f'' is linear between knots and 0 outside, so the integral of its square is a sum: Simpson's rule is exact.
    bends = spline(knots[:, 0].numpy(), 2)
    middles = spline(((knots[1:] + knots[:-1]) / 2)[:, 0].numpy(), 2)
    lengths = (knots[1:] - knots[:-1]).numpy()
    exact = (lengths / 6 * (bends[1:] ** 2 + 4 * middles**2 + bends[:-1] ** 2)).sum(axis=0)
    assert_allclose(bending_energy(ours), exact, rtol=1e-9)


def test_bending_energy_in_the_plane_is_its_integral() -> None:
    """∫ f_xx² + 2 f_xy² + f_yy², by autograd and the midpoint rule in polar coordinates r = tan(t), up to infinity."""
    fitted = thin_plate_spline(scattered(5, 2) * 2 - 1, normal(5, 1))
    steps = (torch.arange(240, dtype=torch.float64) + 0.5) / 240
    radius, angle = torch.meshgrid((steps * pi / 2).tan(), steps[:120] * 4 * pi, indexing="ij")
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=-1).reshape(-1, 2).requires_grad_()
    (slope,) = torch.autograd.grad(fitted(points).sum(), points, create_graph=True)
    rows = [torch.autograd.grad(slope[:, axis].sum(), points, retain_graph=True)[0] for axis in (0, 1)]
    density = (rows[0].square() + rows[1].square()).sum(dim=1).reshape(radius.shape)
    area = radius * (1 + radius**2) * (pi / 480) * (2 * pi / 120)
    assert (density * area).sum().item() == pytest.approx(bending_energy(fitted).item(), rel=0.02)
