"""Records in the buffers of a module."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn

from geoskip.graphs import Graph, Held, SparseMatrix, map_tensors, move
from geoskip.operators import GCNConv
from tests.specimens import features, specimen


class Net(nn.Module):
    """An operator that brings its graph."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = Held(graph)
        self.conv = GCNConv(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x, self.graph())


def test_the_record_comes_back() -> None:
    graph = specimen().graph()
    held = Held(graph)
    assert torch.equal(held().edge_index, graph.edge_index)
    assert {name for name, _ in held.named_buffers()} >= {"pattern__senders", "order", "pseudo", "spirals"}
    assert not list(held.parameters())


def test_what_a_graph_has_not_is_no_buffer() -> None:
    held = Held(Graph.from_edge_index(specimen().edge_index, 7))
    assert "pseudo" not in dict(held.named_buffers())
    assert held().pseudo is None


def test_to_reaches_the_record() -> None:
    held = Held(specimen().graph(torch.float32)).double()
    assert held().pseudo.dtype == torch.float64
    assert held().pattern.senders.dtype == torch.int64
    assert held.to("meta")().device.type == "meta"


def test_what_a_graph_remembers_stays_until_the_buffers_change() -> None:
    held = Held(specimen().graph())
    held().remember("a", lambda: "old")
    assert held().remember("a", lambda: "new") == "old"
    assert held.double()().remember("a", lambda: "new") == "new"


def test_state_dicts_carry_topology() -> None:
    """A net over one graph becomes a net over another of the same size."""
    torch.manual_seed(0)
    first = Net(specimen().graph(torch.float32))
    second = Net(specimen().relabelled(torch.arange(6, -1, -1)).graph(torch.float32))
    x = features(7, 3, dtype=torch.float32)
    before = second(x)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(second(x), first(x))
    assert not torch.equal(second(x), before)
    assert torch.equal(second.graph().edge_index, first.graph().edge_index)


def test_a_graph_of_another_size_does_not_load() -> None:
    with pytest.raises(RuntimeError, match=r"size mismatch for graph\.pattern__senders"):
        Net(specimen(num_vertices=5).graph()).load_state_dict(Net(specimen().graph()).state_dict())


def test_deepcopy_is_independent() -> None:
    net = Net(specimen().graph(torch.float32))
    twin = copy.deepcopy(net).double()
    assert twin.graph().pseudo.dtype == torch.float64
    assert net.graph().pseudo.dtype == torch.float32
    x = features(7, 3)
    assert torch.allclose(twin(x).float(), net(x.float()), atol=1e-5)


def test_any_record_can_be_held() -> None:
    matrix = SparseMatrix.from_entries(torch.tensor([0, 1]), torch.tensor([1, 0]), torch.tensor([2.0, 3.0]), (2, 2))
    held = Held(matrix).double()
    assert held().values.dtype == torch.float64
    assert torch.equal(held().dense(), matrix.dense().double())


def test_map_tensors_and_move() -> None:
    graph = specimen().graph(torch.float32)
    assert map_tensors(graph, lambda tensor: tensor + 1).order.tolist() == (graph.order + 1).tolist()
    moved = move(graph, dtype=torch.float64)
    assert moved.pseudo is not None
    assert moved.pseudo.dtype == torch.float64
    assert moved.order.dtype == torch.int64
