"""Names of operators."""

from __future__ import annotations

import pytest

from geoskip.operators import ChebConv, FeaStConv, GINConv, MoNetConv, SpiralConv, SplineConv, make_operator


def test_options_arrive() -> None:
    assert isinstance(cheb := make_operator("cheb", 3, 5, kernel_size=2, center=False), ChebConv)
    assert cheb.center is False
    assert isinstance(spiral := make_operator("spiral", 3, 5, kernel_size=2, center=False, dilation=2), SpiralConv)
    assert (spiral.center, spiral.dilation) == (False, 2)
    assert isinstance(feast := make_operator("feast", 3, 5, kernel_size=2, self_loops=False), FeaStConv)
    assert feast.self_loops is False
    assert isinstance(monet := make_operator("monet", 3, 5, kernel_size=4, dim=1), MoNetConv)
    assert monet.mean.shape == (4, 1)
    assert isinstance(spline := make_operator("spline", 3, 5, kernel_size=(2, 3), dim=2, degree=1), SplineConv)
    assert spline.theta.shape == (6, 3, 5)
    assert isinstance(gin := make_operator("gin", 3, 5, hidden_channels=7), GINConv)
    assert gin.theta.shape == (3, 7)


def test_dimension_is_ignored_by_those_who_do_not_look() -> None:
    assert make_operator("feast", 3, 5, kernel_size=2, dim=2).kernel_size == 2


def test_unknown_option() -> None:
    with pytest.raises(ValueError, match="self_loops: cheb has no such option; it has bias, center"):
        make_operator("cheb", 3, 5, kernel_size=2, self_loops=False)


def test_kernel_size_missing() -> None:
    with pytest.raises(ValueError, match="kernel_size: monet needs one"):
        make_operator("monet", 3, 5)


@pytest.mark.parametrize("name", ["gcn", "gin"])
def test_kernel_size_unwanted(name: str) -> None:
    with pytest.raises(ValueError, match=f"kernel_size: {name} has one weight matrix and takes none, got 4"):
        make_operator(name, 3, 5, kernel_size=4)
