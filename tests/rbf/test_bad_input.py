"""What cannot be interpolated raises an error that says what to do."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from geoskip.meshes import icosphere
from geoskip.rbf import bending_energy, fit_rbf, thin_plate_spline, warp, warp_mesh
from tests.rbf.scattered import normal, scattered, uniform

CENTERS, VALUES = scattered(20, 2), normal(20, 2)
LINE = torch.stack([uniform(20), 2 * uniform(20) + 1], dim=1)
BALL = icosphere(1)
TWINS = CENTERS.clone()
TWINS[7] = TWINS[3]
# For calls with arguments of the wrong type.
FIT: Any = fit_rbf
WARP: Any = warp
WARP_MESH: Any = warp_mesh


def with_nan(given: Tensor) -> Tensor:
    return given.where(torch.arange(20)[:, None] != 4, torch.nan)


@pytest.mark.parametrize(
    ("attempt", "named"),
    [
        (lambda: fit_rbf(CENTERS, VALUES.long()), r"values: .* got torch.int64; use .double\(\)"),
        (lambda: fit_rbf(CENTERS[0], VALUES), r"centers: expected \[\*batch, centers, dim\]"),
        (lambda: fit_rbf(CENTERS[:0], VALUES[:0]), r"none of them 0, got \[0, 2\]"),
        (
            lambda: fit_rbf(CENTERS, VALUES[:, 0]),
            r"values: expected \[20, out\].*for one scalar per center use values\[",
        ),
        (lambda: fit_rbf(CENTERS, VALUES[:9]), r"values: expected \[20, out\] for centers \[20, 2\], got \[9, 2\]"),
        (lambda: fit_rbf(with_nan(CENTERS), VALUES), "centers: must be finite"),
        (lambda: fit_rbf(CENTERS, with_nan(VALUES)), "values: must be finite"),
        (lambda: fit_rbf(CENTERS, VALUES.long()), "values: must be finite floating-point numbers"),
        (lambda: fit_rbf(CENTERS, VALUES, degree=-2), r"degree: must be -1 \(no polynomial part\) or more, got -2"),
        (lambda: fit_rbf(CENTERS, VALUES, smoothing=-0.1), "smoothing: must be at least 0, got -0.1"),
        (lambda: fit_rbf(CENTERS, VALUES, smoothing=float("nan")), "smoothing: fit_rbf needs a finite number"),
        (lambda: fit_rbf(CENTERS, VALUES, smoothing=float("inf")), "smoothing: fit_rbf needs a finite number"),
        (lambda: fit_rbf(CENTERS[:2], VALUES[:2]), "degree 1 needs at least 3 of them, got 2"),
        (lambda: fit_rbf(LINE, VALUES), "they do not determine a polynomial of degree 1"),
        (lambda: fit_rbf(TWINS, VALUES), "centers: 3 and 7 coincide; merge them, or use smoothing"),
        (lambda: fit_rbf(TWINS.expand(2, 20, 2), VALUES.expand(2, 20, 2)), "centers: 3 and 7 coincide"),
        (lambda: fit_rbf(CENTERS, VALUES, "gaussian", epsilon=1e-4), "singular to working precision; use a narrower"),
        (lambda: fit_rbf(CENTERS, VALUES)(CENTERS[:, :1]), r"points: expected \[\*batch, points, 2\], got \[20, 1\]"),
        (lambda: fit_rbf(CENTERS, VALUES)(CENTERS[0]), r"points: expected \[\*batch, points, 2\], got \[2\]"),
        (lambda: fit_rbf(CENTERS, VALUES, degree=2).affine(), "degree: a polynomial part of degree 2 is not affine"),
        (lambda: thin_plate_spline(scattered(20, 4), VALUES), "thin plate splines are for 1 to 3 dimensions, got 4"),
        (lambda: bending_energy(fit_rbf(CENTERS, VALUES, degree=0)), "degree 0 .* undefined; .* at least 1"),
        (
            lambda: bending_energy(fit_rbf(CENTERS, VALUES, "cubic")),
            "cubic in 2 dimensions is not the fundamental solution",
        ),
        (lambda: bending_energy(fit_rbf(CENTERS, VALUES, "gaussian", epsilon=4.0)), "has no bending energy"),
        (
            lambda: bending_energy(fit_rbf(CENTERS, VALUES, degree=2)),
            "degree 2 has infinite bending energy; .* a degree below 2",
        ),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_error_messages(attempt: Callable[[], Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        attempt()


@pytest.mark.parametrize(
    ("attempt", "named"),
    [
        (lambda: FIT(CENTERS.numpy(), VALUES), "centers: expected a Tensor, got ndarray of shape"),
        (lambda: FIT(CENTERS, VALUES.tolist()), "values: expected a Tensor, got list; convert it with"),
        (lambda: FIT(CENTERS, VALUES)(CENTERS.numpy()), "points: expected a Tensor"),
        (lambda: FIT(CENTERS, VALUES, 5), "kernel: expected a RadialKernel, got 5; or give the name"),
        (lambda: FIT(CENTERS, VALUES, degree=1.5), "degree: fit_rbf needs a whole number, got 1.5"),
        (lambda: WARP(CENTERS.numpy(), CENTERS), "landmarks: expected a Tensor"),
        (lambda: WARP_MESH(BALL.verts, BALL.verts, BALL.verts), "mesh: expected a Mesh, got ndarray"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_errors_name_what_is_of_the_wrong_type(attempt: Callable[[], Any], named: str) -> None:
    with pytest.raises(TypeError, match=named):
        attempt()


@pytest.mark.parametrize(
    ("attempt", "named"),
    [
        (lambda: warp(LINE, LINE + 1), "landmarks: they do not .* leave out the affine part, or add landmarks"),
        (lambda: warp(TWINS, TWINS + 1), "landmarks: 3 and 7 coincide; merge them, or use smoothing"),
        (lambda: warp(CENTERS[:0], CENTERS[:0], affine=False), r"landmarks: expected \[\*batch, landmarks, dim\]"),
        (lambda: warp(CENTERS[0], CENTERS[0]), r"landmarks: expected points, \[landmarks, dim\], got shape \[2\]"),
        (lambda: warp_mesh(BALL, np.arange(5), BALL.verts[:5]), r"landmarks: .* 2 dimensions, got shape \[5\]"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_errors_of_a_warp_name_its_own_arguments(attempt: Callable[[], Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        attempt()


def test_smoothing_takes_centers_that_coincide() -> None:
    """Two values at one place: the curve goes between them."""
    values = torch.zeros(20, 1, dtype=torch.float64)
    values[3], values[7] = 1.0, -1.0
    fitted = fit_rbf(TWINS, values, smoothing=1e-3)
    assert fitted(TWINS).abs().max() < 1e-9


def test_a_bad_item_is_not_hidden_by_large_values_of_another() -> None:
    centers, values = torch.stack([CENTERS, CENTERS * 1e-4]), torch.stack([VALUES * 1e12, VALUES])
    fit_rbf(centers[:1], values[:1], "gaussian", epsilon=4.0)
    with pytest.raises(ValueError, match="singular to working precision"):
        fit_rbf(centers, values, "gaussian", epsilon=4.0)


def test_unknown_names_raise_an_attribute_error() -> None:
    import geoskip.rbf as rbf

    assert [name for name in rbf.__all__ if not hasattr(rbf, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'thin_plates'"):
        rbf.__getattr__("thin_plates")
