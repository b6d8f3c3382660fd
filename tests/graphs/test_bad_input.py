"""Bad input to graphs: the error names the argument, its value and the remedy.

The arguments of every public function are in tests/test_wrong_input.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch_geometric.data import Data

from geoskip.graphs import Graph, RecordBuffers, SparseMatrix, attach, cartesian, pack, polar
from tests.specimens import specimen

pytestmark = pytest.mark.usefixtures("unchecked")

EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])
GRAPH = Graph.from_edge_index(EDGES, 4)
FACES = torch.tensor([[0, 1, 2]])
ENTRIES = torch.tensor([0, 1])
MATRIX = SparseMatrix.from_entries(ENTRIES, ENTRIES, torch.ones(2), (2, 2))


def entries(rows: Any = ENTRIES, columns: Any = ENTRIES, values: Any = None) -> SparseMatrix:
    return SparseMatrix.from_entries(rows, columns, torch.ones(2) if values is None else values, (2, 2))


def with_one(value: float) -> torch.Tensor:
    """Pseudo-coordinates that are sound but for one."""
    return torch.tensor([[0.5, 0.5], [0.5, value], [0.5, 0.5]])


MISTAKES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    # Edges
    (
        lambda: Graph.from_edge_index(EDGES, 2),
        ValueError,
        r"edge_index: vertex 2 .* there are 2 .* 0 to 1. Fix the indices or the number",
    ),
    (
        lambda: Graph.from_edge_index(EDGES.t(), 4),
        ValueError,
        r"edge_index: .* \[2, edges\] \(row 0 sends.*got \[3, 2\]",
    ),
    (
        lambda: Graph.from_edge_index(EDGES.float(), 4),
        TypeError,
        r"edge_index: .* got torch.float32; convert with .long",
    ),
    (lambda: Graph.from_pyg(Data(pos=torch.rand(4, 3))), ValueError, r"data: has neither edge_index nor face"),
    (
        lambda: Graph.from_pyg(Data(edge_index=EDGES, edge_attr=torch.tensor([0, 2, 1]), num_nodes=4)),
        TypeError,
        r"data.edge_attr: expected floating-point numbers, got torch.int64; convert with .float\(\)",
    ),
    (
        lambda: Graph.from_pyg(Data(edge_index=EDGES, edge_attr=torch.rand(2, 2), num_nodes=4)),
        ValueError,
        r"data.edge_attr: expected shape \[edges, dim\] with 3 edges, got \[2, 2\]",
    ),
    (
        lambda: Graph.from_pyg(Data(edge_index=EDGES, edge_attr=[0.5, 0.5, 0.5], num_nodes=4)),
        TypeError,
        r"data.edge_attr: expected a tensor or a NumPy array, got list",
    ),
    (
        lambda: Graph.from_edge_index(EDGES.to(torch.uint32), 2),
        ValueError,
        r"edge_index: vertex 2 does not exist",
    ),
    # Faces
    (
        lambda: Graph.from_pyg(Data(face=FACES.t(), edge_attr=torch.rand(6), num_nodes=4)),
        ValueError,
        r"data: has edge_attr but no edge_index",
    ),
    (lambda: Graph.from_pyg(Data(face=FACES, num_nodes=4)), ValueError, r"data.face: .* \[3, faces\], got \[1, 3\]"),
    (lambda: Graph.from_pyg(Data(face=FACES.t(), num_nodes=2)), ValueError, r"data.face: vertex 2 does not exist"),
    (lambda: Graph.from_faces(FACES.t(), 4), ValueError, r"faces: shape \[3, 1\] looks like one column per face"),
    (lambda: Graph.from_faces(FACES[:, :2], 4), ValueError, r"faces: .* 3 corners or more, got \[1, 2\]"),
    (lambda: Graph.from_edge_index(EDGES[:, :0], -1), ValueError, r"num_vertices: .* 0 vertices or more, got -1"),
    (
        lambda: Graph.from_edge_index(EDGES, cast(Any, 3.5)),
        TypeError,
        r"num_vertices: expected a whole number, got 3.5",
    ),
    # Pseudo-coordinates
    (lambda: GRAPH.with_pseudo(with_one(torch.nan)), ValueError, r"pseudo: edge 1 has \[0.5, nan\], not finite; fix"),
    (lambda: cartesian(GRAPH, torch.rand(4, 2), largest=0), ValueError, r"largest: .* above 0, .* got 0"),
    (lambda: GRAPH.with_pseudo(torch.rand(2, 3)), ValueError, r"pseudo: .* with 3 edges, got \[2, 3\]"),
    (lambda: GRAPH.with_pseudo(torch.rand(3)), ValueError, r"pseudo: .* got \[3\]; .* needs the shape \[edges, 1\]"),
    (lambda: GRAPH.with_pseudo(torch.ones(3, 1, device="meta")), ValueError, r"pseudo: is on meta, .* on cpu; move"),
    (lambda: cartesian(GRAPH, torch.rand(3, 2)), ValueError, r"positions: .* with 4 vertices, got \[3, 2\]"),
    (lambda: polar(GRAPH, torch.rand(4, 3)), ValueError, r"positions: .* need 2 dimensions, got 3; use cartesian"),
    # Spirals
    (lambda: GRAPH.with_spirals(torch.zeros(3, 2).long()), ValueError, r"spirals: .* with 4 vertices, got \[3, 2\]"),
    (lambda: GRAPH.with_spirals(torch.full((4, 2), 4)), ValueError, r"spirals: vertex 4 does not exist; .* -1 to 3"),
    # Packing
    (lambda: pack([]), ValueError, r"graphs: nothing to pack; give at least one"),
    (lambda: pack([GRAPH, GRAPH.to("meta")]), ValueError, r"graphs: is on meta, .* cpu; move"),
    (
        lambda: pack([specimen(dim=2).graph(), specimen(dim=3).graph()]),
        ValueError,
        r"graphs: their pseudo have \[2, 3\] col",
    ),
    (
        lambda: pack([specimen(length=4).graph(), specimen().graph()]),
        ValueError,
        r"graphs: their spirals have \[4, 8\] col",
    ),
    # Matrices
    (lambda: entries(rows=ENTRIES + 1), ValueError, r"rows: vertex 2 does not exist; there are 2"),
    (
        lambda: entries(values=torch.ones(3)),
        ValueError,
        r"values: every entry .* got \[2\] rows, \[2\] columns and \[3\]",
    ),
    (lambda: MATRIX @ torch.ones(3, 1), ValueError, r"x: expected 2 vertices .* got shape \[3, 1\]"),
    (lambda: MATRIX @ torch.ones(2, 1, device="meta"), ValueError, r"x: is on meta, the matrix on cpu; move"),
    # Records
    (
        lambda: RecordBuffers(attach(GRAPH, torch.ones(3, 1, requires_grad=True))),
        ValueError,
        r"pseudo: requires gradients, but a model keeps a constant copy of its graph\. Detach it",
    ),
    (lambda: RecordBuffers(torch.ones(3)), TypeError, r"RecordBuffers: expected a record such as a Graph, got Tensor"),
]


@pytest.mark.parametrize(("mistake", "error", "message"), MISTAKES, ids=[message[:40] for *_, message in MISTAKES])
def test_mistakes_are_named(mistake: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        mistake()
