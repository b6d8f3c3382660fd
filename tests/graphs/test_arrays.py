"""Edges, faces, pseudo-coordinates and spirals may be arrays of NumPy; coarsening takes tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

from geoskip.graphs import Graph
from geoskip.graphs.coarsening import graclus
from geoskip.meshes import icosphere
from geoskip.operators import GCNConv, MoNetConv
from tests.specimens import features, specimen

SOME = specimen()
ARRAYS = SOME.edge_index.numpy(), SOME.num_vertices, SOME.pseudo.numpy(), SOME.spirals.numpy()


def equal_graphs(one: Graph, other: Graph) -> bool:
    pairs = zip(tree_leaves(one), tree_leaves(other), strict=True)
    return all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in pairs)


def test_graphs_from_arrays() -> None:
    assert equal_graphs(Graph.from_edge_index(*ARRAYS), SOME.graph())
    bare = Graph.from_edge_index(SOME.edge_index, SOME.num_vertices)
    assert equal_graphs(bare.with_pseudo(ARRAYS[2]).with_spirals(ARRAYS[3]), SOME.graph())


def test_faces_of_a_mesh() -> None:
    """They are read-only, of which torch would warn."""
    mesh = icosphere(0)
    assert not mesh.faces.flags.writeable
    assert equal_graphs(Graph.from_faces(mesh.faces, 12), Graph.from_faces(torch.tensor(mesh.faces), 12))


def test_the_graph_does_not_share_memory_with_the_array() -> None:
    pseudo = SOME.pseudo.numpy().copy()
    graph = Graph.from_edge_index(SOME.edge_index, SOME.num_vertices, pseudo)
    pseudo[:] = -1
    assert equal_graphs(graph, Graph.from_edge_index(SOME.edge_index, SOME.num_vertices, SOME.pseudo))


def test_operators_take_arrays() -> None:
    x = features(SOME.num_vertices, 3)
    gcn, monet = GCNConv(3, 2).double(), MoNetConv(3, 2, kernel_size=4, dim=2).double()
    assert_close(gcn(x, ARRAYS[0]), gcn(x, SOME.edge_index))
    assert_close(monet(x, ARRAYS[0], ARRAYS[2]), monet(x, SOME.edge_index, SOME.pseudo))


@pytest.mark.usefixtures("unchecked")
def test_coarsening_takes_tensors() -> None:
    edges = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
    weights, offsets = torch.ones(6), torch.tensor([0, 3, 5])
    one = graclus(edges, weights, offsets)  # type: ignore[arg-type]
    other = graclus(edges.numpy(), weights.numpy(), offsets.numpy())
    for name in ("clusters", "offsets", "edge_index", "weights", "volumes"):
        assert isinstance(getattr(one, name), np.ndarray)
        assert np.array_equal(getattr(one, name), getattr(other, name))
