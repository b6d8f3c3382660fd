"""Bad input to an operator: the error names the argument, its value and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest
import torch
from torch import Tensor

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
from tests.operators.cases import FIRST, Case
from tests.specimens import specimen

pytestmark = pytest.mark.usefixtures("unchecked")

X = torch.ones(7, 3)
EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])
GRAPH = specimen(dim=2, length=5).graph(torch.float32)
SPLINE = SplineConv(3, 2, kernel_size=4, dim=2)


def bare(num_vertices: int = 7) -> Graph:
    return Graph.from_edge_index(EDGES, num_vertices)


def beside(value: float) -> Graph:
    """Pseudo-coordinates in [0, 1] but for one."""
    pseudo = torch.full((3, 2), 0.5)
    pseudo[1, 1] = value
    return bare().with_pseudo(pseudo)


MISTAKES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    # Sizes
    (lambda: GCNConv(0, 2), ValueError, r"in_channels: GCNConv needs a whole number of at least 1, got 0"),
    (lambda: GINConv(3, -1), ValueError, r"out_channels: GINConv needs .* at least 1, got -1"),
    (lambda: GINConv(3, 2, hidden_channels=0), ValueError, r"hidden_channels: GINConv needs .* at least 1, got 0"),
    (lambda: ChebConv(3, 2, kernel_size=0), ValueError, r"kernel_size: ChebConv needs .* at least 1, got 0"),
    (lambda: FeaStConv(3, 2, kernel_size=-3), ValueError, r"kernel_size: FeaStConv needs .* at least 1, got -3"),
    (lambda: MoNetConv(3, 2, kernel_size=4, dim=0), ValueError, r"dim: MoNetConv needs .* at least 1, got 0"),
    (lambda: RBFConv(3, 2, kernel_size=4, dim=0), ValueError, r"dim: RBFConv needs .* at least 1, got 0"),
    (lambda: SplineConv(3, 2, kernel_size=4, dim=0), ValueError, r"dim: SplineConv needs .* at least 1, got 0"),
    (
        lambda: SplineConv(3, 2, kernel_size=(4, 0), dim=2),
        ValueError,
        r"kernel_size: SplineConv needs .* at least 1, got 0",
    ),
    (
        lambda: SpiralConv(3, 2, kernel_size=4, dilation=0),
        ValueError,
        r"dilation: SpiralConv needs .* at least 1, got 0",
    ),
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
    # Features
    (lambda: GCNConv(4, 2)(X, GRAPH), ValueError, r"x: GCNConv\(4, 2\) expects .*vertices, 4\], got \[7, 3\]"),
    (lambda: GCNConv(3, 2)(X[0], GRAPH), ValueError, r"x: GCNConv\(3, 2\) expects .*, got \[3\]"),
    (lambda: GCNConv(3, 2)(X.double(), GRAPH), TypeError, r"x: is torch.float64, .* torch.float32 parameters; convert"),
    (lambda: GCNConv(3, 2)(X.long(), GRAPH), TypeError, r"x: is torch.int64, .* torch.float32 parameters; convert"),
    (lambda: GCNConv(3, 2)(X.to("meta"), GRAPH), ValueError, r"x: is on meta, GCNConv\(3, 2\) on cpu; move"),
    (lambda: GCNConv(3, 2)(X[:5], GRAPH), ValueError, r"x: has 5 vertices, the graph 7; pass the graph"),
    (lambda: GCNConv(3, 2)(X, GRAPH, skip=X), ValueError, r"skip: .* shape \[3, 2\], got \[7, 3\]"),
    (lambda: GCNConv(3, 2)(X, GRAPH, skip=torch.ones(3, 1)), ValueError, r"skip: .* shape \[3, 2\], got \[3, 1\]"),
    (lambda: GINConv(3, 2)(X, GRAPH, skip=torch.ones(3, 2).double()), TypeError, r"skip: is torch.float64, GINConv.*"),
    (lambda: GCNConv(3, 2)(X, GRAPH, skip=torch.ones(3, 2).to("meta")), ValueError, r"skip: is on meta, .* cpu; move"),
    # Graph
    (lambda: GCNConv(3, 2)(X, GRAPH.to("meta")), ValueError, r"graph: is on meta, x on cpu; move"),
    (lambda: GCNConv(3, 2)(X, EDGES.to("meta")), ValueError, r"graph: is on meta, x on cpu; move"),
    (lambda: GCNConv(3, 2)(X, [0, 1]), TypeError, r"graph: expected a Graph or an edge_index, got list; see Graph"),
    (lambda: GCNConv(3, 2)(X, None), TypeError, r"graph: expected .* got NoneType"),
    (lambda: GCNConv(3, 2)(X, EDGES + 5), ValueError, r"edge_index: vertex 7 does not exist; there are 7 .*0 to 6"),
    (lambda: GCNConv(3, 2)(X, EDGES - 1), ValueError, r"edge_index: vertex -1 does not exist"),
    (lambda: GCNConv(3, 2)(X, EDGES.float()), TypeError, r"edge_index: .* got torch.float32; convert with .long"),
    (lambda: GCNConv(3, 2)(X, EDGES.t()), ValueError, r"edge_index: expected shape \[2, edges\].*, got \[3, 2\]"),
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
    (lambda: SPLINE(X, beside(1.5)), ValueError, r"pseudo: .*\[0, 1\], .* from 0.5 to 1.5; normalize them"),
    (lambda: SPLINE(X, beside(-0.25)), ValueError, r"pseudo: .*\[0, 1\], .* from -0.25 to 0.5; normalize them"),
    (
        lambda: SPLINE(X, EDGES, torch.full((3, 2), torch.nan)),
        ValueError,
        r"pseudo: edge 0 has \[nan, nan\], not fin",
    ),
    (lambda: SPLINE(X, EDGES, torch.ones(2, 2)), ValueError, r"pseudo: .* with 3 edges, got \[2, 2\]"),
    (lambda: SPLINE(X, EDGES, torch.ones(3)), ValueError, r"pseudo: .* got \[3\]; .* \[edges, 1\]"),
    (lambda: SPLINE(X, EDGES, torch.ones(3, 2).long()), TypeError, r"pseudo: .* got torch.int64; convert"),
    (lambda: SPLINE(X, EDGES, torch.ones(3, 2, device="meta")), ValueError, r"pseudo: is on meta, .* cpu; move"),
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


@pytest.mark.parametrize("case", FIRST, ids=lambda case: case.name)
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(7, 4), "expects shape"),
        (torch.ones(7, 3).double(), "is torch.float64"),
        (torch.ones(6, 3), "has 6 vertices"),
        (torch.ones(7, 3, device="meta"), "is on meta"),
        (torch.ones(7, 3).to_sparse(), "expects a dense tensor, got layout torch.sparse_coo"),
    ],
    ids=["channels", "dtype", "vertices", "device", "layout"],
)
def test_every_operator_checks_its_features(case: Case, x: Tensor, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^x: .*{message}"):
        case.make(torch.float32)(x, specimen(dim=case.dim).graph(torch.float32))


def test_pseudo_coordinates_outside_are_found_at_every_graph() -> None:
    """Not only at the first call: each graph is checked when its basis is first made."""
    conv: Operator = SPLINE
    conv(X, beside(0.5))
    with pytest.raises(ValueError, match="pseudo"):
        conv(X, beside(1.25))


def test_ends_of_the_interval_are_inside() -> None:
    assert SPLINE(X, beside(0.0)).isfinite().all()
    assert SPLINE(X, beside(1.0)).isfinite().all()


OPERATORS = [ChebConv, FeaStConv, MoNetConv, RBFConv, SpiralConv, SplineConv, GCNConv, GINConv]


@pytest.mark.parametrize("make", OPERATORS, ids=lambda cls: cls.__name__)
def test_only_channels_go_by_position(make: Any) -> None:
    """PyTorch Geometric's SplineConv takes (in, out, dim, kernel_size): the order of the last two differs from ours."""
    parameters = signature(make).parameters.values()
    assert [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY] == ["in_channels", "out_channels"]
    with pytest.raises(TypeError, match="positional argument"):
        make(3, 2, 4)
