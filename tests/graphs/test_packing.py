"""Many graphs as one, and one as many."""

from __future__ import annotations

import torch
from torch_geometric.data import Batch, Data

from geoskip.graphs import Graph, graph_of_vertex, pack, separate
from tests.specimens import edgeless, specimen

PARTS = [specimen(), edgeless(0), specimen(num_vertices=5, seed=3, directed=True), edgeless(3)]


def same(first: Graph, second: Graph) -> bool:
    tensors = [
        (g.edge_index, g.pattern.offsets, g.pattern.sender_offsets, g.pseudo, g.spirals, g.edge_weight)
        for g in (first, second)
    ]
    return all(torch.equal(a, b) for a, b in zip(*tensors, strict=True) if a is not None and b is not None)


def test_pack_numbers_vertices_on() -> None:
    packed = pack([part.graph() for part in PARTS])
    assert (packed.num_graphs, packed.num_vertices) == (4, 15)
    assert packed.graph_offsets is not None
    assert packed.graph_offsets.tolist() == [0, 7, 7, 12, 15]
    assert graph_of_vertex(packed).tolist() == [0] * 7 + [2] * 5 + [3] * 3
    owner = graph_of_vertex(packed)[packed.edge_index]
    assert torch.equal(owner[0], owner[1])


def test_separate_undoes_pack() -> None:
    graphs = [part.graph() for part in PARTS]
    again = separate(pack(graphs))
    assert len(again) == 4
    for first, second in zip(graphs, again, strict=True):
        assert second.pseudo is not None
        assert second.spirals is not None
        assert same(first, second)


def test_pack_equals_a_batch_of_pytorch_geometric() -> None:
    weights = [torch.rand(part.edge_index.shape[1]) for part in PARTS]
    items = [
        Data(edge_index=p.edge_index, edge_attr=p.pseudo, edge_weight=w, num_nodes=p.num_vertices)
        for p, w in zip(PARTS, weights, strict=True)
    ]
    theirs = Graph.from_pyg(Batch.from_data_list(items))
    ours = pack([part.graph().with_edge_weight(w) for part, w in zip(PARTS, weights, strict=True)])
    assert ours.edge_weight is not None
    assert theirs.edge_weight is not None
    assert same(ours, theirs)
    assert ours.graph_offsets is not None
    assert theirs.graph_offsets is not None
    assert torch.equal(ours.graph_offsets, theirs.graph_offsets)
    assert all(same(a, b) for a, b in zip(separate(ours), separate(theirs), strict=True))


def test_ends_of_spirals_stay_ends() -> None:
    packed = pack([PARTS[0].graph(), PARTS[2].graph()])
    assert packed.spirals is not None
    inside = packed.spirals[7:]
    assert torch.equal(inside < 0, PARTS[2].spirals < 0)
    assert torch.equal(inside[inside >= 0] - 7, PARTS[2].spirals[PARTS[2].spirals >= 0])


def test_what_not_every_graph_has_is_left_out() -> None:
    whole, bare = specimen().graph(), Graph.from_edge_index(specimen().edge_index, 7)
    packed = pack([whole, bare])
    assert packed.pseudo is None
    assert packed.spirals is None


def test_one_graph_is_its_own_pack() -> None:
    graph = specimen().graph()
    assert same(pack([graph]), graph)
    (only,) = separate(graph)
    assert only is graph
    assert graph_of_vertex(graph).tolist() == [0] * 7


def test_packs_can_be_packed() -> None:
    graphs = [part.graph() for part in PARTS]
    nested = pack([pack(graphs[:2]), pack(graphs[2:])])
    assert same(nested, pack(graphs))
    assert nested.num_graphs == 2


def test_with_pseudo_on_a_pack_takes_the_order_of_its_edge_index() -> None:
    packed = pack([part.graph() for part in PARTS])
    values = torch.rand(packed.num_edges, 1)
    again = packed.with_pseudo(values)
    assert again.pseudo is not None
    assert torch.equal(again.pseudo, values)
