"""What cannot be interpolated is refused, with what to do about it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from geoskip.rbf import bending_energy, fit_local, fit_rbf, fit_sparse, native_energy, thin_plate_spline
from tests.rbf.scattered import normal, scattered, uniform

CENTRES, VALUES = scattered(20, 2), normal(20, 2)
LINE = torch.stack([uniform(20), 2 * uniform(20) + 1], dim=1)
TWINS = CENTRES.clone()
TWINS[7] = TWINS[3]


def with_nan(given: Tensor) -> Tensor:
    return given.where(torch.arange(20)[:, None] != 4, torch.nan)


@pytest.mark.parametrize(
    ("attempt", "named"),
    [
        (lambda: fit_rbf(CENTRES[0], VALUES), r"centres: expected \[\*batch, centres, dim\]"),
        (lambda: fit_rbf(CENTRES[:0], VALUES[:0]), r"none of them 0, got \[0, 2\]"),
        (lambda: fit_rbf(CENTRES, VALUES[:, 0]), r"values: expected \[20, out\].*a scalar for each centre is values\["),
        (lambda: fit_rbf(CENTRES, VALUES[:9]), r"values: expected \[20, out\] for centres \[20, 2\], got \[9, 2\]"),
        (lambda: fit_rbf(with_nan(CENTRES), VALUES), "centres: must be finite"),
        (lambda: fit_rbf(CENTRES, with_nan(VALUES)), "values: must be finite"),
        (lambda: fit_rbf(CENTRES, VALUES.long()), "values: must be finite floating-point numbers"),
        (lambda: fit_rbf(CENTRES, VALUES, degree=-2), "degree: of the polynomial part, -1 for none, got -2"),
        (lambda: fit_rbf(CENTRES, VALUES, smoothing=-0.1), "smoothing: expected a number of at least 0"),
        (lambda: fit_rbf(CENTRES, VALUES, smoothing=float("nan")), "smoothing: expected a number of at least 0"),
        (lambda: fit_rbf(CENTRES, VALUES, smoothing=float("inf")), "smoothing: expected a number of at least 0"),
        (lambda: fit_rbf(CENTRES, VALUES, smoothing=uniform(9)), "one for each of 20 centres"),
        (lambda: fit_rbf(CENTRES[:2], VALUES[:2]), "degree 1 needs at least 3 of them, got 2"),
        (lambda: fit_rbf(LINE, VALUES), "they do not fix a polynomial of degree 1"),
        (lambda: fit_rbf(TWINS, VALUES), "centres: 3 and 7 coincide; merge them, or give smoothing"),
        (lambda: fit_rbf(TWINS.expand(2, 20, 2), VALUES.expand(2, 20, 2)), "centres: 3 and 7 coincide"),
        (lambda: fit_rbf(CENTRES, VALUES, "gaussian", epsilon=1e-4), "singular to working precision; use a narrower"),
        (lambda: fit_rbf(CENTRES, VALUES)(CENTRES[:, :1]), r"points: expected \[\*batch, points, 2\], got \[20, 1\]"),
        (lambda: fit_rbf(CENTRES, VALUES)(CENTRES[0]), r"points: expected \[\*batch, points, 2\], got \[2\]"),
        (lambda: fit_rbf(CENTRES, VALUES, degree=2).affine(), "degree: a polynomial part of degree 2 is not affine"),
        (lambda: thin_plate_spline(scattered(20, 4), VALUES), "thin plate splines are for 1 to 3 dimensions, got 4"),
        (lambda: native_energy(fit_rbf(CENTRES, VALUES, degree=0)), "needs a polynomial part of degree 1 or more"),
        (lambda: bending_energy(fit_rbf(CENTRES, VALUES, "cubic")), "cubic in 2 dimensions is no fundamental solution"),
        (lambda: bending_energy(fit_rbf(CENTRES, VALUES, "gaussian", epsilon=4.0)), "has no bending energy"),
        (lambda: bending_energy(fit_rbf(CENTRES, VALUES, degree=2)), "degree 2 bends without end; .* degrees below 2"),
        (lambda: fit_local(CENTRES, VALUES, neighbours=21), "neighbours: expected 1 to 20"),
        (lambda: fit_local(CENTRES, VALUES, neighbours=0), "neighbours: expected 1 to 20"),
        (lambda: fit_local(CENTRES[None], VALUES[None], neighbours=4), "the local form takes one set"),
        (lambda: fit_local(CENTRES, VALUES, neighbours=9)(CENTRES[:, :1]), r"points: expected \[points, 2\]"),
        (lambda: fit_local(CENTRES, VALUES, neighbours=2)(CENTRES), "degree 1 needs at least 3 of them"),
        (lambda: fit_sparse(CENTRES[None], VALUES[None], 0.5), "the sparse form takes one set"),
        (lambda: fit_sparse(CENTRES, VALUES, 0.0), "radius: of the kernel's support, a number above 0, got 0"),
        (lambda: fit_sparse(CENTRES, VALUES, 0.5, tolerance=0.0), "tolerance: of the relative residual"),
        (lambda: fit_sparse(CENTRES, VALUES, 0.5, smoothness=1), "kernel: 'wendland_c1' is not one of"),
        (lambda: fit_sparse(CENTRES.clone().requires_grad_(), VALUES, 0.5), "gives no gradients; detach them"),
        (lambda: fit_sparse(TWINS, VALUES, 0.5), "centres: 3 and 7 coincide"),
        (lambda: fit_sparse(LINE, VALUES, 0.5, degree=1), "they do not fix a polynomial of degree 1"),
        (lambda: fit_sparse(CENTRES, VALUES, 0.5)(CENTRES[:, :1]), r"points: expected \[points, 2\]"),
        (lambda: fit_sparse(CENTRES, VALUES, 1e4, smoothness=4), "the system does not converge; make it smaller"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_what_is_wrong_is_said(attempt: Callable[[], Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        attempt()


def test_smoothing_takes_centres_that_coincide() -> None:
    """Two values at one place: the curve goes between them."""
    values = torch.zeros(20, 1, dtype=torch.float64)
    values[3], values[7] = 1.0, -1.0
    fitted = fit_rbf(TWINS, values, smoothing=1e-3)
    assert fitted(TWINS).abs().max() < 1e-9
    assert fit_sparse(TWINS, values, 0.5, smoothing=1e-3)(TWINS).abs().max() < 1e-9


def test_a_bad_item_is_not_hidden_by_large_values_of_another() -> None:
    centres, values = torch.stack([CENTRES, CENTRES * 1e-4]), torch.stack([VALUES * 1e12, VALUES])
    fit_rbf(centres[:1], values[:1], "gaussian", epsilon=4.0)
    with pytest.raises(ValueError, match="singular to working precision"):
        fit_rbf(centres, values, "gaussian", epsilon=4.0)


def test_only_names_that_exist_are_found() -> None:
    import geoskip.rbf as rbf

    assert [name for name in rbf.__all__ if not hasattr(rbf, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'thin_plates'"):
        rbf.__getattr__("thin_plates")
