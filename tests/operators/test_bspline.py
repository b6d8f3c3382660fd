"""B-splines: what defines them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from geoskip.operators.spline import bspline, bspline_products
from tests.operators import oracles

U = torch.linspace(0, 1, 97, dtype=torch.float64)
every = pytest.mark.parametrize(
    ("size", "degree", "closed"),
    [(size, degree, closed) for degree in (1, 2, 3) for size in (degree + 1, 5, 6) for closed in (False, True)],
)


@every
def test_equals_the_recursive_definition(size: int, degree: int, closed: bool) -> None:
    wanted = [[oracles.bspline(k, u, size, degree, closed) for k in range(size)] for u in U.tolist()]
    assert_close(bspline(U, size, degree, closed), torch.tensor(wanted, dtype=torch.float64), rtol=0, atol=1e-12)


@every
def test_partition_of_unity(size: int, degree: int, closed: bool) -> None:
    values = bspline(U, size, degree, closed)
    assert (values >= 0).all()
    assert_close(values.sum(1), torch.ones_like(U), rtol=0, atol=1e-14)


@every
def test_local_support(size: int, degree: int, closed: bool) -> None:
    """At most degree + 1 are non-zero, exactly so inside a span if there are that many."""
    spans = size if closed else size - degree
    inside = (torch.arange(spans, dtype=torch.float64) + 0.4) / spans
    assert ((bspline(inside, size, degree, closed) > 0).sum(1) == min(size, degree + 1)).all()


@every
def test_every_spline_is_used(size: int, degree: int, closed: bool) -> None:
    assert (bspline(U, size, degree, closed).max(0).values > 0.1).all()


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_one_spline_is_constant(degree: int, closed: bool) -> None:
    assert torch.equal(bspline(U, 1, degree, closed), torch.ones(97, 1, dtype=torch.float64))


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_open_splines_reproduce_affine_functions(degree: int) -> None:
    """Σ k b_k(u) = (m - p) u + (p - 1)/2: a kernel that is linear in u can be represented."""
    weighted = bspline(U, 6, degree, closed=False) @ torch.arange(6, dtype=torch.float64)
    assert_close(weighted, (6 - degree) * U + (degree - 1) / 2, rtol=0, atol=1e-12)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_closed_splines_join(degree: int) -> None:
    ends = bspline(torch.tensor([0.0, 1.0], dtype=torch.float64), 5, degree, closed=True)
    assert_close(ends[0], ends[1])
    open_ends = bspline(torch.tensor([0.0, 1.0], dtype=torch.float64), 5, degree, closed=False)
    assert not torch.allclose(open_ends[0], open_ends[1])


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_closed_splines_are_turns_of_one_another(degree: int) -> None:
    turned = bspline((U + 0.2) % 1, 5, degree, closed=True)
    assert_close(turned, bspline(U, 5, degree, closed=True).roll(1, dims=1), rtol=0, atol=1e-12)


def one_sided(knot: float, order: int, side: int, size: int, degree: int, closed: bool) -> Tensor:
    """Derivative of each spline at a knot from one side, by differences, in units of the span."""
    spans = size if closed else size - degree
    step = 1e-4
    places = (knot + side * step * torch.arange(1, order + 2, dtype=torch.float64)) / spans
    values = bspline(places % 1, size, degree, closed)
    for _ in range(order):
        values = values.diff(dim=0) / (side * step)
    return values[0]


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_smooth_to_order_p_minus_1_and_no_further(degree: int, closed: bool) -> None:
    size = 6
    knots = range(size) if closed else range(1, size - degree)
    for knot in knots:
        for order in range(degree + 1):
            left, right = (one_sided(knot, order, side, size, degree, closed) for side in (-1, 1))
            jump = float((left - right).abs().max())
            assert jump > 0.5 if order == degree else jump < 5e-3, (knot, order)


def test_products_run_through_the_last_dimension_fastest() -> None:
    pseudo = torch.rand(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sizes, closed = (3, 4, 1), (False, True, False)
    factors = [bspline(pseudo[:, d], sizes[d], 2, closed[d]) for d in range(3)]
    wanted = torch.einsum("ea,eb,ec->eabc", *factors).flatten(1)
    products = bspline_products(pseudo, sizes, 2, closed)
    assert_close(products, wanted, rtol=0, atol=1e-14)
    assert_close(products.sum(1), torch.ones(20, dtype=torch.float64))


def test_no_edges() -> None:
    assert bspline_products(torch.empty(0, 2), (3, 3), 1, (False, False)).shape == (0, 9)
