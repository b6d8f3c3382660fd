"""Records in the buffers of a module."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from geoskip.graphs import Graph, RecordBuffers, SparseMatrix, attach, map_tensors, move, record_keys
from geoskip.operators import GCNConv, SplineConv
from tests.specimens import features, specimen


class Net(nn.Module):
    """An operator that brings its graph."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.topology = RecordBuffers(graph)
        self.conv = GCNConv(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x, self.topology())


def test_the_record_comes_back() -> None:
    graph = specimen().graph()
    kept = RecordBuffers(graph)
    assert torch.equal(kept().edge_index, graph.edge_index)
    assert {name for name, _ in kept.named_buffers()} >= {"pattern__senders", "order", "pseudo", "spirals"}
    assert not list(kept.parameters())


def test_what_a_graph_has_not_is_no_buffer() -> None:
    kept = RecordBuffers(Graph.from_edge_index(specimen().edge_index, 7))
    assert "pseudo" not in dict(kept.named_buffers())
    assert kept().pseudo is None


def test_to_reaches_the_record() -> None:
    kept = RecordBuffers(specimen().graph(torch.float32)).double()
    assert kept().pseudo.dtype == torch.float64
    assert kept().pattern.senders.dtype == torch.int64
    assert kept.to("meta")().device.type == "meta"


def test_what_a_graph_remembers_stays_until_the_buffers_change() -> None:
    kept = RecordBuffers(specimen().graph())
    kept().remember("a", lambda: "old")
    assert kept().remember("a", lambda: "new") == "old"
    assert kept.double()().remember("a", lambda: "new") == "old"
    assert kept.float()().remember("a", lambda: "new") == "new"


def tensors(record: object) -> dict[str, torch.Tensor]:
    """Copies of all tensors of a record."""
    return {name: tensor.clone() for name, tensor in RecordBuffers(record).named_buffers()}


def assert_same_tensors(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


EDGE_LISTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=4, max_size=4)


@given(EDGE_LISTS, EDGE_LISTS, st.sampled_from([False, True]))
@settings(max_examples=60, deadline=None)
def test_loading_never_changes_a_graph_and_refuses_another_topology(
    saved_edges: list[tuple[int, int]], own_edges: list[tuple[int, int]], assign: bool
) -> None:
    saved, own = (
        Graph.from_edge_index(torch.tensor(edges).t(), 4, features(4, 2, seed=seed))
        for seed, edges in enumerate((saved_edges, own_edges))
    )
    before = [tensors(graph) for graph in (saved, own)]
    source, target, bystander = (RecordBuffers(graph) for graph in (saved, own, own))
    indices = [[tensor for tensor in kept.values() if not tensor.is_floating_point()] for kept in before]
    if all(torch.equal(*pair) for pair in zip(*indices, strict=True)):
        target.load_state_dict(source.state_dict(), assign=assign)
        assert_same_tensors(tensors(target()), before[0])
    else:
        with pytest.raises(RuntimeError, match=r"saved for another topology of the same size \(\w+ differs in"):
            target.load_state_dict(source.state_dict(), assign=assign)
        assert_same_tensors(tensors(target()), before[1])
    for graph, expected in zip((saved, own, bystander()), (*before, before[1]), strict=True):
        assert_same_tensors(tensors(graph), expected)


def test_what_is_done_to_the_buffers_does_not_reach_the_graph() -> None:
    graph = specimen().graph()
    before, twin, net = tensors(graph), RecordBuffers(graph), RecordBuffers(graph)
    for buffer in net.buffers():
        buffer.zero_()
    assert_same_tensors(tensors(graph), before)
    assert_same_tensors(tensors(twin()), before)


def test_weights_load_without_their_topology() -> None:
    """What the error message advises."""
    first = Net(specimen().graph(torch.float32))
    second = Net(specimen().relabelled(torch.arange(6, -1, -1)).graph(torch.float32))
    with pytest.raises(RuntimeError, match=r'drop the keys that start with "topology\." and load with strict=False'):
        second.load_state_dict(first.state_dict())
    weights = {key: value for key, value in first.state_dict().items() if not key.startswith("topology.")}
    _, unexpected = second.load_state_dict(weights, strict=False)
    assert not unexpected
    assert torch.equal(second.conv.theta, first.conv.theta)


def test_checkpoints_of_the_same_topology_load() -> None:
    first, second = (Net(specimen().graph(torch.float32)) for _ in range(2))
    x = features(7, 3, dtype=torch.float32)
    assert not torch.equal(second(x), first(x))
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(second(x), first(x))


def test_loading_what_is_there_already_writes_nothing() -> None:
    """A CUDA graph may read what the graph remembers."""
    net = Net(specimen().graph(torch.float32))
    kept = net.topology().remember("a", lambda: torch.ones(3))
    net.load_state_dict(copy.deepcopy(net.state_dict()))
    assert net.topology().remember("a", lambda: torch.zeros(3)) is kept


def test_loaded_values_are_used() -> None:
    """The spline basis is remembered, and computed again for the pseudo-coordinates of the checkpoint."""
    graphs = [specimen().graph(), attach(specimen().graph(), features(17, 2).sigmoid())]
    conv, x = SplineConv(3, 2, kernel_size=3, dim=2).double(), features(7, 3)
    kept, saved = (RecordBuffers(graph) for graph in graphs)
    before = conv(x, kept())
    kept.load_state_dict(saved.state_dict())
    assert torch.equal(conv(x, kept()), conv(x, graphs[1]))
    assert not torch.equal(conv(x, kept()), before)
    assert torch.equal(conv(x, graphs[0]), before)


def test_a_model_on_the_meta_device_takes_the_topology_of_the_checkpoint() -> None:
    net = Net(specimen().graph(torch.float32))
    empty = copy.deepcopy(net).to("meta")
    empty.load_state_dict(net.state_dict(), assign=True)
    x = features(7, 3, dtype=torch.float32)
    assert torch.equal(empty(x), net(x))


def test_buffers_can_be_replaced_from_outside() -> None:
    kept, other = RecordBuffers(specimen().graph()), features(17, 2)
    assert torch.equal(torch.func.functional_call(kept, {"pseudo": other}, ()).pseudo, other)
    assert_same_tensors(tensors(kept()), tensors(specimen().graph()))
    kept.pseudo = other
    assert torch.equal(kept().pseudo, other)


def test_moved_in_inference_mode_it_still_follows_its_buffers() -> None:
    conv, x, kept = SplineConv(3, 2, kernel_size=3, dim=2), features(7, 3), RecordBuffers(specimen().graph())
    with torch.inference_mode():
        kept.float()
        before = conv(x.float(), kept())
        kept.load_state_dict({**kept.state_dict(), "pseudo": torch.full((17, 2), 0.5)})
        assert torch.equal(kept().pseudo, torch.full((17, 2), 0.5))
        assert not torch.equal(conv(x.float(), kept()), before)


def test_keys_of_records() -> None:
    net = nn.Sequential(nn.Linear(2, 2), Net(specimen().graph()))
    own = {name for name, _ in net.named_parameters()}
    assert record_keys(net) == net.state_dict().keys() - own
    kept = RecordBuffers(specimen().graph())
    assert record_keys(kept) == kept.state_dict().keys()


def test_a_graph_of_another_size_does_not_load() -> None:
    with pytest.raises(RuntimeError, match=r"size mismatch for topology\.pattern__senders"):
        Net(specimen(num_vertices=5).graph()).load_state_dict(Net(specimen().graph()).state_dict())


def test_deepcopy_is_independent() -> None:
    net = Net(specimen().graph(torch.float32))
    twin = copy.deepcopy(net).double()
    assert twin.topology().pseudo.dtype == torch.float64
    assert net.topology().pseudo.dtype == torch.float32
    x = features(7, 3)
    assert torch.allclose(twin(x).float(), net(x.float()), atol=1e-5)


def test_any_record_can_be_kept() -> None:
    matrix = SparseMatrix.from_entries(torch.tensor([0, 1]), torch.tensor([1, 0]), torch.tensor([2.0, 3.0]), (2, 2))
    kept = RecordBuffers(matrix).double()
    assert kept().values.dtype == torch.float64
    assert torch.equal(kept().dense(), matrix.dense().double())


def test_map_tensors_and_move() -> None:
    graph = specimen().graph(torch.float32)
    assert map_tensors(graph, lambda tensor: tensor + 1).order.tolist() == (graph.order + 1).tolist()
    moved = move(graph, dtype=torch.float64)
    assert moved.pseudo is not None
    assert moved.pseudo.dtype == torch.float64
    assert moved.order.dtype == torch.int64
