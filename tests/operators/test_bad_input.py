"""Bad input to an operator: the error names the argument, its value and the remedy.

What is wrong for every operator is in tests/test_wrong_input.py.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest
import torch

from geoskip.graphs import Graph
from geoskip.operators import (
    ChebConv,
    FeaStConv,
    GCNConv,
    GINConv,
    MoNetConv,
    Operator,
    RBFConv,
    SpiralConv,
    SplineConv,
)
from tests.specimens import specimen

pytestmark = pytest.mark.usefixtures("unchecked")

X = torch.ones(7, 3)
EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])
GRAPH = specimen(dim=2, length=5).graph(torch.float32)
SPLINE = SplineConv(3, 2, kernel_size=4, dim=2)


def bare(num_vertices: int = 7) -> Graph:
    return Graph.from_edge_index(EDGES, num_vertices)


def with_one(value: float) -> Graph:
    """Pseudo-coordinates in [0, 1] but for one."""
    pseudo = torch.full((3, 2), 0.5)
    pseudo[1, 1] = value
    return bare().with_pseudo(pseudo)


MISTAKES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    # Splines
    (
        lambda: SplineConv(3, 2, kernel_size=4, degree=4),
        ValueError,
        r"degree: SplineConv has .* degree 1, 2 and 3, got 4",
    ),
    (
        lambda: SplineConv(3, 2, kernel_size=4, degree=0),
        ValueError,
        r"degree: SplineConv has .* degree 1, 2 and 3, got 0",
    ),
    (
        lambda: SplineConv(3, 2, kernel_size=(4, 4), dim=3),
        ValueError,
        r"kernel_size: .* each of 3 dimensions, got \(4, 4\)",
    ),
    (
        lambda: SplineConv(3, 2, kernel_size=4, dim=2, closed=(True,)),
        ValueError,
        r"closed: .* each of 2 dimensions, got \(True,\)",
    ),
    (
        lambda: SplineConv(3, 2, kernel_size=3, degree=3),
        ValueError,
        r"kernel_size: 3 open B-splines .* degree 3; .* at least 4",
    ),
    (lambda: SplineConv(3, 2, kernel_size=2, degree=2), ValueError, r"kernel_size: 2 open B-splines .* at least 3"),
    # The skip matrix
    (lambda: GCNConv(3, 2)(X, GRAPH, skip=X), ValueError, r"skip: .* shape \[3, 2\], got \[7, 3\]"),
    (lambda: GCNConv(3, 2)(X, GRAPH, skip=torch.ones(3, 1)), ValueError, r"skip: .* shape \[3, 2\], got \[3, 1\]"),
    (lambda: GINConv(3, 2)(X, GRAPH, skip=torch.ones(3, 2).double()), TypeError, r"skip: is torch.float64, GINConv.*"),
    (lambda: GCNConv(3, 2)(X, GRAPH, skip=torch.ones(3, 2).to("meta")), ValueError, r"skip: is on meta, .* cpu; move"),
    # An edge_index in place of the graph
    (lambda: GCNConv(3, 2)(X, EDGES.to("meta")), ValueError, r"graph: is on meta, x on cpu; move"),
    # Pseudo-coordinates
    (
        lambda: MoNetConv(3, 2, kernel_size=4)(X, bare()),
        ValueError,
        r"graph: MoNetConv needs pseudo.*cartesian.*conv\(x, edge_index",
    ),
    (
        lambda: RBFConv(3, 2, kernel_size=4)(X, bare()),
        ValueError,
        r"graph: RBFConv needs pseudo-coordinates; make them",
    ),
    (
        lambda: SplineConv(3, 2, kernel_size=4)(X, EDGES),
        ValueError,
        r"graph: SplineConv needs pseudo-coordinates; make them",
    ),
    (
        lambda: MoNetConv(3, 2, kernel_size=4)(X, GRAPH),
        ValueError,
        r"pseudo: MoNetConv .* dim=3, .* 2 dimensions; .*dim=2",
    ),
    (lambda: SPLINE(X, with_one(1.5)), ValueError, r"pseudo: .*\[0, 1\], .* from 0.5 to 1.5; normalize them"),
    (lambda: SPLINE(X, with_one(-0.25)), ValueError, r"pseudo: .*\[0, 1\], .* from -0.25 to 0.5; normalize them"),
    # Spirals
    (
        lambda: SpiralConv(3, 2, kernel_size=4)(X, bare()),
        ValueError,
        r"graph: SpiralConv needs spirals, .*with_spirals",
    ),
    (
        lambda: SpiralConv(3, 2, kernel_size=6)(X, GRAPH),
        ValueError,
        r"spirals: .*kernel_size=6.* length 6, the graph's have 5; make",
    ),
    (
        lambda: SpiralConv(3, 2, kernel_size=3, dilation=3)(X, GRAPH),
        ValueError,
        r"spirals: .*dilation=3.* length 7, .* have 5",
    ),
    (
        lambda: SpiralConv(3, 2, kernel_size=5, center=False)(X, GRAPH),
        ValueError,
        r"spirals: .*center=False.* length 6, .* have 5",
    ),
]


@pytest.mark.parametrize(("mistake", "error", "message"), MISTAKES, ids=[message[:40] for *_, message in MISTAKES])
def test_mistakes_are_named(mistake: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        mistake()


def test_pseudo_coordinates_outside_are_found_at_every_graph() -> None:
    """Not only at the first call: each graph is checked when its basis is first made."""
    conv: Operator = SPLINE
    conv(X, with_one(0.5))
    with pytest.raises(ValueError, match="pseudo"):
        conv(X, with_one(1.25))


def test_ends_of_the_interval_are_inside() -> None:
    assert SPLINE(X, with_one(0.0)).isfinite().all()
    assert SPLINE(X, with_one(1.0)).isfinite().all()


OPERATORS = [ChebConv, FeaStConv, MoNetConv, RBFConv, SpiralConv, SplineConv, GCNConv, GINConv]


@pytest.mark.parametrize("make", OPERATORS, ids=lambda cls: cls.__name__)
def test_only_channels_go_by_position(make: Any) -> None:
    """PyTorch Geometric's SplineConv takes (in, out, dim, kernel_size): the order of the last two differs from ours."""
    parameters = signature(make).parameters.values()
    assert [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY] == ["in_channels", "out_channels"]
    with pytest.raises(TypeError, match="positional argument"):
        make(3, 2, 4)
