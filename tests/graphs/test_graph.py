"""The graph record: orders of edges, sources, pseudo-coordinates, memory."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from geoskip.graphs import Graph, Hierarchy, RecordBuffers, attach, map_tensors, pack, separate
from geoskip.meshes import icosphere
from geoskip.operators import GCNConv
from tests.specimens import features, specimen

EDGES = torch.tensor([[3, 0, 1, 3, 0], [0, 2, 2, 2, 2]])


def test_edges_are_sorted_by_receiver_and_then_by_sender() -> None:
    graph = Graph.from_edge_index(EDGES, 5)
    assert graph.edge_index.tolist() == [[3, 0, 0, 1, 3], [0, 2, 2, 2, 2]]
    assert graph.degrees.tolist() == [1, 0, 4, 0, 0]
    assert (graph.num_vertices, graph.num_edges, graph.num_graphs) == (5, 5, 1)


def test_order_leads_back_to_the_given_edges() -> None:
    made = specimen()
    graph = made.graph()
    assert torch.equal(made.edge_index[:, graph.order], graph.edge_index)
    assert torch.equal(graph.order.sort().values, torch.arange(graph.num_edges))


def test_pseudo_is_given_in_the_original_order() -> None:
    """Also for edges that are listed twice: each keeps its own."""
    pseudo = torch.arange(5.0).unsqueeze(1)
    graph = Graph.from_edge_index(EDGES, 5, pseudo)
    assert graph.pseudo is not None
    assert torch.equal(graph.pseudo, pseudo[graph.order])
    assert graph.pseudo[:, 0].tolist() == [0, 1, 4, 2, 3]
    later = Graph.from_edge_index(EDGES, 5).with_pseudo(pseudo)
    assert later.pseudo is not None
    assert torch.equal(later.pseudo, graph.pseudo)


def test_attach_takes_the_receiver_order() -> None:
    values = torch.arange(5.0).unsqueeze(1)
    graph = attach(Graph.from_edge_index(EDGES, 5), values)
    assert graph.pseudo is not None
    assert torch.equal(graph.pseudo, values)


def test_gradients_reach_the_given_pseudo_coordinates() -> None:
    pseudo = torch.rand(5, 2, requires_grad=True)
    graph = Graph.from_edge_index(EDGES, 5, pseudo)
    assert graph.pseudo is not None
    scale = torch.arange(5.0).unsqueeze(1)
    (graph.pseudo * scale).sum().backward()
    assert pseudo.grad is not None
    assert torch.equal(pseudo.grad[graph.order], scale.expand(5, 2))


def test_edge_weights_are_given_in_the_original_order_and_read_in_receiver_order() -> None:
    weight = torch.arange(5.0)
    graph = Graph.from_edge_index(EDGES, 5, edge_weight=weight)
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [0, 1, 4, 2, 3]
    assert graph.given_edge_weight is weight
    assert graph.without_edge_weight().edge_weight is None
    again = Graph.from_edge_index(graph.edge_index, 5, edge_weight=graph.edge_weight)
    assert again.edge_weight is not None
    assert torch.equal(again.edge_weight, graph.edge_weight)


def test_attach_takes_edge_weights_in_receiver_order() -> None:
    """As for a mesh, whose edges are known from ``graph.edge_index`` alone."""
    graph = Graph.from_faces(torch.tensor([[0, 1, 2], [2, 1, 3]]), 4)
    senders, receivers = graph.edge_index
    weight = (10 * senders + receivers).double()
    attached = attach(graph, edge_weight=weight)
    assert attached.edge_weight is not None
    assert torch.equal(attached.edge_weight, weight)
    both = attach(graph, torch.rand(graph.num_edges, 2), weight)
    assert both.pseudo is not None
    assert both.edge_weight is not None
    assert torch.equal(both.edge_weight, weight)


def test_edge_weights_stay_when_other_things_change() -> None:
    made, weight = specimen(), torch.rand(specimen().edge_index.shape[1], dtype=torch.float64)
    graph = Graph.from_edge_index(made.edge_index, 7, edge_weight=weight)
    for other in (
        graph.with_pseudo(made.pseudo),
        graph.with_spirals(made.spirals),
        attach(graph, made.pseudo),
        copy.deepcopy(graph),
        map_tensors(graph, torch.clone),
        RecordBuffers(graph)(),
        Hierarchy.from_matrices([graph], [], []).levels[0],
        graph.to(torch.float32).to(torch.float64),
    ):
        assert other.edge_weight is not None
        assert graph.edge_weight is not None
        assert torch.allclose(other.edge_weight, graph.edge_weight)


def test_the_graph_does_not_share_memory_with_an_array() -> None:
    array = np.ones((5, 1))
    graph = Graph.from_edge_index(EDGES, 5, array)
    array[:] = -1
    assert graph.pseudo is not None
    assert (graph.pseudo == 1).all()


def test_faces_give_each_side_once_in_each_direction() -> None:
    """A tetrahedron and a quadrilateral that hangs on one of its sides."""
    tetrahedron = Graph.from_faces(torch.tensor([[0, 1, 2], [0, 3, 1], [1, 3, 2], [2, 3, 0]]), 4)
    complete = [[j, i] for i in range(4) for j in range(4) if i != j]
    assert tetrahedron.edge_index.t().tolist() == complete
    square = Graph.from_faces(torch.tensor([[0, 1, 2, 3]]), 5)
    assert square.degrees.tolist() == [2, 2, 2, 2, 0]
    assert [0, 2] not in square.edge_index.t().tolist()


def test_degenerate_faces_make_no_self_loops() -> None:
    graph = Graph.from_faces(torch.tensor([[0, 0, 1], [2, 2, 2]]), 3)
    assert graph.edge_index.t().tolist() == [[1, 0], [0, 1]]


def test_no_faces() -> None:
    graph = Graph.from_faces(torch.empty(0, 3, dtype=torch.long), 4)
    assert (graph.num_vertices, graph.num_edges) == (4, 0)


def test_no_vertices() -> None:
    graph = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long), 0)
    assert (graph.num_vertices, graph.num_edges) == (0, 0)
    assert graph.degrees.shape == (0,)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.uint64])
def test_other_whole_numbers(dtype: torch.dtype) -> None:
    edges, faces = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([[0, 1, 2], [1, 2, 3]])
    for found, wanted in (
        (Graph.from_edge_index(edges.to(dtype), 3), Graph.from_edge_index(edges, 3)),
        (Graph.from_faces(faces.to(dtype), 4), Graph.from_faces(faces, 4)),
    ):
        assert torch.equal(found.edge_index, wanted.edge_index)
        assert found.edge_index.dtype == torch.int64


def test_from_pyg_data() -> None:
    made = specimen()
    graph = Graph.from_pyg(Data(edge_index=made.edge_index, edge_attr=made.pseudo, num_nodes=7))
    wanted = made.graph()
    assert torch.equal(graph.edge_index, wanted.edge_index)
    assert graph.pseudo is not None
    assert wanted.pseudo is not None
    assert torch.equal(graph.pseudo, wanted.pseudo)
    assert graph.graph_offsets is None
    assert Graph.from_pyg(Data(edge_index=made.edge_index, num_nodes=7)).pseudo is None


def test_from_pyg_data_with_one_number_per_edge() -> None:
    weights = torch.rand(EDGES.shape[1])
    graph = Graph.from_pyg(Data(edge_index=EDGES, edge_attr=weights, num_nodes=5))
    assert graph.pseudo is not None
    assert torch.equal(graph.pseudo, weights[graph.order].unsqueeze(1))


def test_from_pyg_carries_edge_weights() -> None:
    """Beside ``edge_attr``, and in a batch."""
    made = specimen()
    weight = torch.rand(made.edge_index.shape[1])
    data = Data(edge_index=made.edge_index, edge_attr=made.pseudo, edge_weight=weight, num_nodes=7)
    graph, batch = Graph.from_pyg(data), Graph.from_pyg(Batch.from_data_list([data, data]))
    assert graph.edge_weight is not None
    assert batch.edge_weight is not None
    assert graph.pseudo is not None
    assert torch.equal(graph.edge_weight, weight[graph.order])
    assert torch.equal(batch.edge_weight, graph.edge_weight.repeat(2))
    packed = pack([graph, graph])
    assert packed.edge_weight is not None
    assert torch.equal(packed.edge_weight, batch.edge_weight)


def test_from_pyg_batch() -> None:
    first, second = specimen(), specimen(num_vertices=5, seed=3)
    items = [Data(edge_index=s.edge_index, edge_attr=s.pseudo, num_nodes=s.num_vertices) for s in (first, second)]
    graph = Graph.from_pyg(Batch.from_data_list(items))
    assert (graph.num_vertices, graph.num_graphs) == (12, 2)
    assert graph.graph_offsets is not None
    assert graph.graph_offsets.tolist() == [0, 7, 12]
    assert graph.num_edges == first.edge_index.shape[1] + second.edge_index.shape[1]


def test_to_changes_the_dtype_of_pseudo_coordinates_alone() -> None:
    graph = specimen().graph(torch.float64).to(torch.float32)
    assert graph.pseudo is not None
    assert graph.pseudo.dtype == torch.float32
    assert graph.order.dtype == graph.pattern.senders.dtype == torch.int64


def test_to_moves_everything() -> None:
    weight = torch.ones(specimen().edge_index.shape[1])
    graph = specimen().graph().with_edge_weight(weight).to("meta")
    assert graph.edge_weight is not None
    assert graph.edge_weight.device.type == "meta"
    assert graph.device.type == "meta"
    assert graph.pseudo is not None
    assert graph.spirals is not None
    assert {graph.pseudo.device, graph.spirals.device, graph.order.device, graph.pattern.offsets.device} == {
        torch.device("meta")
    }
    assert (graph.num_vertices, graph.num_edges) == (7, specimen().edge_index.shape[1])


def test_a_graph_prints_its_sizes() -> None:
    """Not its tensors, which may fill the screen."""
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), 3, torch.rand(2, 1))
    assert repr(graph) == "Graph(num_vertices=3, num_edges=2, pseudo=[2, 1])"
    assert repr(pack([graph, graph])) == "Graph(num_vertices=6, num_edges=4, num_graphs=2, pseudo=[4, 1])"


def test_a_graph_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        specimen().graph().__setattr__("order", torch.arange(3))


def test_remember_builds_once() -> None:
    graph, built = specimen().graph(), []

    def build() -> torch.Tensor:
        built.append(1)
        return features(1)

    assert graph.remember("a", build) is graph.remember("a", build)
    assert len(built) == 1
    graph.remember("b", build)
    assert len(built) == 2


def test_what_is_remembered_does_not_follow_to_another_graph() -> None:
    """Pseudo-coordinates, spirals, dtype and device may all have entered it."""
    graph = specimen().graph()
    graph.remember("a", lambda: "old")
    others = [
        graph.with_pseudo(features(graph.num_edges, 2)),
        graph.with_spirals(torch.zeros(7, 2, dtype=torch.long)),
        attach(graph, features(graph.num_edges, 2)),
        graph.to(torch.float32),
        dataclasses.replace(graph, pseudo=None),
        graph.with_edge_weight(features(graph.num_edges)),
        graph.without_edge_weight(),
    ]
    assert [other.remember("a", lambda: "new") for other in others] == ["new"] * 7
    assert graph.remember("a", lambda: "new") == "old"


def test_what_depends_on_a_tensor_is_built_again_when_that_changes() -> None:
    graph, tensor = specimen().graph(), torch.zeros(1)

    def value() -> float:
        return graph.remember("a", lambda: float(tensor.detach()), of=tensor)

    assert value() == 0
    tensor.data.fill_(1)  # unseen by torch: it shows that the value is remembered
    assert value() == 0
    tensor.fill_(2)
    assert value() == 2
    tensor.requires_grad_()
    tensor.data.fill_(3)
    assert value() == 3


def test_what_is_remembered_in_inference_mode_can_be_trained_with() -> None:
    graph = specimen().graph()
    with torch.inference_mode():
        made = graph.remember("a", lambda: torch.ones(3))
    assert not made.is_inference()


@pytest.mark.parametrize("again", [copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])
def test_copies_made_in_inference_mode_can_be_trained_with(again: Callable[[Graph], Graph]) -> None:
    graph, conv = Graph.from_edge_index(EDGES, 5), GCNConv(3, 2)
    with torch.inference_mode():
        copied = again(graph)
    x = torch.rand(5, 3)
    y = conv(x, copied)
    y.sum().backward()
    assert torch.equal(y, conv(x, graph))


@pytest.mark.parametrize("mode", [nullcontext, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("made_in_inference_mode", [False, True])
@pytest.mark.parametrize("name", ["order", "spirals", "graph_offsets", "senders", "receivers", "offsets", "by_sender"])
def test_a_change_in_place_is_noticed(name: str, made_in_inference_mode: bool, mode: Callable[[], Any]) -> None:
    with torch.inference_mode(made_in_inference_mode):
        graph = pack([specimen().graph(), specimen().graph()])
    tensor = getattr(graph if hasattr(graph, name) else graph.pattern, name)
    with mode():
        graph.remember("a", lambda: "old")
        assert graph.remember("a", lambda: "new") == "old"
        tensor.copy_(tensor.flip(0))
        assert graph.remember("a", lambda: "new") == "new"
        assert graph.remember("a", lambda: "newer") == "new"


def test_values_count_for_what_is_made_of_them() -> None:
    graph = specimen().graph()
    assert graph.pseudo is not None
    graph.remember("of edges", lambda: "old")
    graph.remember("of pseudo", lambda: "old", of=graph.pseudo)
    graph.pseudo[0] = 0.5
    assert graph.remember("of edges", lambda: "new") == "old"
    assert graph.remember("of pseudo", lambda: "new", of=graph.pseudo) == "new"


def test_nothing_is_kept_of_values_that_require_gradients() -> None:
    graph = attach(specimen().graph(), features(17, 2).requires_grad_())
    assert graph.pseudo is not None
    graph.remember("a", lambda: "old", of=graph.pseudo)
    assert graph.remember("a", lambda: "new", of=graph.pseudo) == "new"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])
def test_copies_remember_nothing(copied: Callable[[Graph], Graph]) -> None:
    """Versions of a copy start again: a change of the copy could have the number of an earlier one of the original."""
    graph = specimen().graph()
    graph.remember("a", lambda: "old")
    twin = copied(graph)
    assert twin.remember("a", lambda: "new") == "new"
    assert graph.remember("a", lambda: "new") == "old"


def test_faces_of_pyg_make_the_graph_of_the_mesh() -> None:
    mesh = icosphere(1)
    faces, pos = torch.tensor(mesh.faces), torch.tensor(mesh.verts)
    expected = Graph.from_faces(faces, mesh.num_vertices)
    data = Data(pos=pos, face=faces.t())
    graph = Graph.from_pyg(data)
    assert torch.equal(graph.edge_index, expected.edge_index)
    assert (graph.num_vertices, graph.num_edges, graph.graph_offsets) == (42, 240, None)
    both = Graph.from_pyg(Batch.from_data_list([data, data]))
    assert (both.num_graphs, both.num_edges) == (2, 480)
    for part in separate(both):
        assert torch.equal(part.edge_index, expected.edge_index)


@given(st.integers(0, 40), st.data())
@settings(max_examples=60, deadline=None)
def test_faces_in_columns_are_refused_or_change_nothing(count: int, data: st.DataObject) -> None:
    """All triangles with three different corners; three of them that do not touch in columns can be read either way."""
    corners = st.lists(st.integers(0, 9), min_size=3, max_size=3, unique=True)
    rows = data.draw(st.lists(corners, min_size=count, max_size=count))
    faces = torch.tensor(rows, dtype=torch.long).reshape(count, 3)
    if count == 3 and all(len(set(column)) == 3 for column in faces.t().tolist()):
        assert Graph.from_faces(faces.t(), 10).num_vertices == 10
    else:
        with pytest.raises(ValueError, match=r"faces: shape .* looks like one column per face"):
            Graph.from_faces(faces.t(), 10)
    expected = {(i, j) for row in rows for i in row for j in row if i != j}
    for graph in (Graph.from_faces(faces, 10), Graph.from_pyg(Data(face=faces.t(), num_nodes=10))):
        assert {(i, j) for i, j in graph.edge_index.t().tolist()} == expected
        assert graph.num_edges == len(expected)
