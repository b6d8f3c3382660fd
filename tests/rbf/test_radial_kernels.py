"""The kernels: their formulas, their signs, their smoothness, and the errors for wrong names."""

from math import exp, log, sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from geoskip.rbf import KERNEL_NAMES, fit_rbf, make_kernel
from geoskip.rbf.interpolant import monomials, squared_distances
from tests.rbf.scattered import EPSILON, scattered, widths

FORMULAS = {
    "linear": lambda r: -r,
    "thin_plate": lambda r: r * r * log(r),
    "cubic": lambda r: r**3,
    "quintic": lambda r: -(r**5),
    "polyharmonic_4": lambda r: -(r**4) * log(r),
    "polyharmonic_6": lambda r: r**6 * log(r),
    "polyharmonic_7": lambda r: r**7,
    "gaussian": lambda r: exp(-r * r),
    "multiquadric": lambda r: -sqrt(1 + r * r),
    "inverse_multiquadric": lambda r: 1 / sqrt(1 + r * r),
    "inverse_quadratic": lambda r: 1 / (1 + r * r),
    "wendland_c0": lambda r: max(1 - r, 0) ** 2,
    "wendland_c2": lambda r: max(1 - r, 0) ** 4 * (4 * r + 1),
    "wendland_c4": lambda r: max(1 - r, 0) ** 6 * (35 * r * r + 18 * r + 3) / 3,
}


def width(name: str) -> float | None:
    return EPSILON.get(name)


@pytest.mark.parametrize("name", FORMULAS)
@given(r=st.floats(1e-6, 30))
@settings(max_examples=50, deadline=None)
def test_the_formula(name: str, r: float) -> None:
    kernel = make_kernel(name, width(name))
    found = kernel(torch.tensor([r * r], dtype=torch.float64))
    assert found.item() == pytest.approx(FORMULAS[name](kernel.epsilon * r), rel=1e-9, abs=1e-12)
    assert kernel.name == name


def test_every_name_has_its_formula_here() -> None:
    assert set(KERNEL_NAMES) <= set(FORMULAS)


@pytest.mark.parametrize("name", FORMULAS)
def test_finite_at_0_with_two_derivatives_of_the_distance(name: str) -> None:
    """At a center the logarithm and the root have none, and the product with x - c must not be 0 · ∞."""
    kernel = make_kernel(name, width(name))
    x = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    value = kernel(squared_distances(x, torch.zeros(1, 2, dtype=torch.float64)))
    assert value.item() == pytest.approx(FORMULAS[name](1e-9), abs=1e-8)
    (slope,) = torch.autograd.grad(value, x, torch.ones_like(value), create_graph=True)
    assert not slope.any()
    (second,) = torch.autograd.grad(slope.sum(), x)
    assert second.isfinite().all()


@pytest.mark.parametrize("dim", [1, 2, 3, 5])
@pytest.mark.parametrize("name", FORMULAS)
def test_conditionally_positive_definite(name: str, dim: int) -> None:
    """On weights that see no polynomial of degree below the order, wᵀ Φ w > 0; with one degree less it is not so."""
    kernel = make_kernel(name, widths(name, dim), dim)
    centers = 2 * scattered(40 if kernel.order < 4 else 60, dim)
    gram = kernel(squared_distances(centers, centers))
    assert restricted(gram, centers, kernel.min_degree).min() > 0
    if kernel.order and kernel.name != "multiquadric":
        assert restricted(gram, centers, kernel.min_degree - 1).min() < 0


def restricted(gram: torch.Tensor, centers: torch.Tensor, degree: int) -> torch.Tensor:
    """Eigenvalues of Φ on the weights with vanishing moments."""
    poly = monomials(centers - centers.mean(dim=0), degree)
    basis = (
        torch.linalg.svd(poly, full_matrices=True)[0][:, torch.linalg.matrix_rank(poly) :] if poly.shape[1] else None
    )
    return torch.linalg.eigvalsh(gram if basis is None else basis.T @ gram @ basis)


@pytest.mark.parametrize("smoothness", [0, 2, 4])
@pytest.mark.parametrize("dim", [3, 5])
def test_wendland_has_its_smoothness_at_the_edge_of_its_support(smoothness: int, dim: int) -> None:
    kernel = make_kernel(f"wendland_c{smoothness}", epsilon=0.5, dim=dim)
    inside = torch.tensor([2 - 1e-3, 2.0, 2.5], dtype=torch.float64).square()
    found = kernel(inside)
    assert 0 < found[0] < (1e-3) ** smoothness
    assert not found[1:].any()


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: make_kernel("thinplate"), "kernel: 'thinplate' is not one of linear, thin_plate"),
        (lambda: make_kernel("gaussian"), "epsilon: the gaussian kernel needs an inverse width"),
        (lambda: make_kernel("gaussian", -1.0), "epsilon: the inverse width of gaussian must be above 0"),
        (lambda: make_kernel("wendland_c2", 0.0), "epsilon: the inverse width of wendland_c2"),
        (lambda: make_kernel("multiquadric", float("nan")), "epsilon: the inverse width of multiquadric"),
        (lambda: make_kernel("cubic", 1.0), "epsilon: the cubic kernel has no width"),
        (lambda: make_kernel("polyharmonic_0"), "kernel: a polyharmonic kernel needs an exponent of at least 1"),
        (lambda: make_kernel("wendland_c3", 1.0), "kernel: 'wendland_c3' is not one of"),
        (
            lambda: fit_rbf(scattered(9, 2), scattered(9, 2), make_kernel("linear"), epsilon=2.0),
            "epsilon: the given linear kernel already has epsilon 1; leave",
        ),
    ],
)
def test_error_messages(make: object, named: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=named):
        make()


def test_names_and_exponents_are_one_kernel() -> None:
    assert make_kernel("polyharmonic_2").name == "thin_plate"
    assert make_kernel("polyharmonic_3").name == "cubic"
    squared = torch.linspace(0, 4, 9, dtype=torch.float64)
    assert_close(make_kernel("polyharmonic_5")(squared), make_kernel("quintic")(squared))
