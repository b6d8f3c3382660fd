"""The records all loaders return: what they hold, what they refuse, and the PyTorch Geometric view of them."""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from geoskip.data import CorrespondenceSet, GraphLevel, GraphSet, MeshSet, Split, StoredShapes
from geoskip.data.graph_sets import local_dtype
from geoskip.graphs.graph_hierarchy import cluster_of_vertex
from geoskip.meshes.mesh import Mesh, MeshError

NO_ITEMS = torch.zeros(0, dtype=torch.int64)


def tetrahedron() -> Mesh:
    return Mesh(np.eye(4, 3), np.array([[0, 1, 2], [0, 3, 1], [1, 3, 2], [2, 3, 0]]))


def random_verts(num_items: int, num_vertices: int) -> torch.Tensor:
    return torch.randn(num_items, num_vertices, 3, generator=torch.Generator().manual_seed(0))


def mesh_set(num_items: int = 5, num_vertices: int = 4, **changes) -> MeshSet:
    verts = random_verts(num_items, num_vertices)
    names = tuple(f"mesh{i}" for i in range(num_items))
    fields: dict[str, Any] = {"names": names, "split": Split.leading(num_items, 3), "unit_mm": 1000.0} | changes
    return MeshSet(tetrahedron(), StoredShapes(verts), **fields)


def graph_set() -> GraphSet:
    """A path of three vertices, an isolated vertex, and a triangle; the next level joins the path's first two."""
    edges = [[(0, 1), (1, 0), (1, 2), (2, 1)], [], [(0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0)]]
    fine = GraphLevel(
        pos=torch.arange(14.0).reshape(7, 2),
        offsets=torch.tensor([0, 3, 4, 7]),
        edges=torch.tensor([edge for graph in edges for edge in graph], dtype=torch.uint8).T,
        edge_offsets=torch.tensor([0, 4, 4, 10]),
        clusters=torch.tensor([0, 0, 1, 0, 0, 0, 0], dtype=torch.uint8),
    )
    coarse = GraphLevel(
        pos=torch.zeros(4, 2),
        offsets=torch.tensor([0, 2, 3, 4]),
        edges=torch.tensor([[0, 1], [1, 0]], dtype=torch.uint8),
        edge_offsets=torch.tensor([0, 2, 2, 2]),
    )
    x = torch.arange(7.0).unsqueeze(1)
    return GraphSet(x, (fine, coarse), torch.tensor([0, 1, 1]), ("path", "other"), Split.leading(3, 2))


def test_blocks_take_the_first_ten_of_each_hundred() -> None:
    split = Split.blocks(250)
    assert split.test.tolist() == [*range(10), *range(100, 110), *range(200, 210)]
    assert sorted(split.train.tolist() + split.test.tolist()) == list(range(250))


def test_leading_items_are_for_training() -> None:
    split = Split.leading(100, 80)
    assert (split.train.tolist(), split.test.tolist()) == (list(range(80)), list(range(80, 100)))


def test_an_expression_is_the_test() -> None:
    names = ["a/smile/0", "a/frown/0", "b/smile/0"]
    assert Split.coma(names, "smile").train.tolist() == [1]
    assert Split.coma(names * 70, "interpolation").test.tolist() == [*range(10), *range(100, 110), *range(200, 210)]


@pytest.mark.parametrize(
    ("train", "test", "fault"), [([0, 1], [1], "twice"), ([0], [3], "names item 3"), ([-1], [0], "negative")]
)
def test_bad_splits_are_refused(train: list[int], test: list[int], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        Split(torch.tensor(train), torch.tensor(test)).check(3)


def test_mesh_set_gives_positions_and_meshes() -> None:
    meshes = mesh_set()
    verts = meshes.verts(torch.tensor([4, 0]))
    assert torch.equal(verts[0], random_verts(5, 4)[4])
    assert torch.equal(torch.tensor(meshes.mesh(4).verts).float(), verts[0])
    assert (meshes.mesh(4).faces == meshes.template.faces).all()
    assert len(meshes.to("cpu")) == len(meshes) == 5


def test_moments_are_those_of_the_training_items() -> None:
    meshes = mesh_set()
    mean, std = meshes.moments(chunk=2)
    training = random_verts(5, 4)[:3]
    torch.testing.assert_close(mean, training.mean(0))
    torch.testing.assert_close(std, training.std(0))
    with pytest.raises(ValueError, match="two or more training meshes, got 1"):
        mesh_set(split=Split.leading(5, 1)).moments()


@pytest.mark.parametrize("unit", [0.0, -1.0, float("inf"), float("nan")])
def test_units_that_are_no_length_are_refused(unit: float) -> None:
    with pytest.raises(ValueError, match="millimeters"):
        mesh_set(unit_mm=unit)


def test_mesh_sets_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ValueError, match="4 names for 5 meshes"):
        mesh_set(names=("a", "b", "c", "d"))
    with pytest.raises(ValueError, match="a name used twice"):
        mesh_set(names=("a",) * 5)
    with pytest.raises(MeshError, match="as many vertices as its template"):
        mesh_set(num_vertices=5)
    with pytest.raises(ValueError, match="names item 5"):
        mesh_set(split=Split.leading(6, 3))


def test_mesh_set_as_pyg_data() -> None:
    meshes = mesh_set()
    data = list(meshes.pyg())
    assert [d.name for d in data] == list(meshes.names)
    assert torch.equal(data[2].pos, random_verts(5, 4)[2])
    assert data[0].edge_index.shape == (2, 12)
    assert data[0].is_undirected()
    assert data[0].face.shape == (3, 4)
    assert [d.name for d in meshes.pyg([3])] == ["mesh3"]


def test_correspondence_set_as_pyg_data() -> None:
    mesh = tetrahedron()
    larger = Mesh(np.vstack([mesh.verts, [9.0, 9.0, 9.0]]), mesh.faces)
    labels = (torch.arange(4), torch.tensor([3, 2, 1, 0, -1]))
    pairs = CorrespondenceSet(mesh, (mesh, larger), labels, ("a", "b"), Split.leading(2, 1), 1.0)
    assert (len(pairs), pairs.num_classes) == (2, 4)
    assert [data.y.tolist() for data in pairs.pyg()] == [labels[0].tolist(), labels[1].tolist()]
    assert [data.num_nodes for data in pairs.pyg([1])] == [5]


@pytest.mark.parametrize(
    ("labels", "names", "unit", "fault"),
    [
        (torch.arange(3), ("a",), 1.0, r"a: \(3,\) labels for 4 vertices"),
        (torch.arange(4) + 1, ("a",), 1.0, "a: labels outside -1 to 3"),
        (torch.arange(4) - 2, ("a",), 1.0, "a: labels outside -1 to 3"),
        (torch.arange(4), ("a", "b"), 1.0, "one mesh, one list of labels"),
        (torch.arange(4), ("a",), 0.0, "millimeters"),
    ],
)
def test_correspondence_sets_that_do_not_fit_are_refused(labels, names, unit, fault) -> None:
    with pytest.raises(ValueError, match=fault):
        CorrespondenceSet(tetrahedron(), (tetrahedron(),), (labels,), names, Split(NO_ITEMS, NO_ITEMS), unit)


def test_selected_graphs_equal_the_graphs_one_by_one() -> None:
    graphs = graph_set()
    batch = graphs.select(torch.tensor([2, 0, 1, 0]))
    singles = [graphs.select(torch.tensor([item])) for item in (2, 0, 1, 0)]
    assert batch.x.flatten().tolist() == [4, 5, 6, 0, 1, 2, 3, 0, 1, 2]
    assert batch.labels.tolist() == [1, 0, 1, 0]
    for depth, level in enumerate(batch.levels):
        shifted = [
            single.levels[depth].edge_index + offset for single, offset in zip(singles, level.offsets[:-1], strict=True)
        ]
        assert torch.equal(level.edge_index, torch.cat(shifted, dim=1))
        assert torch.equal(level.pos, torch.cat([single.levels[depth].pos for single in singles]))
    assert batch.levels[0].graph_of_vertex.tolist() == [0, 0, 0, 1, 1, 1, 2, 3, 3, 3]
    assert batch.levels[0].clusters_in(batch.levels[1]).tolist() == [0, 0, 0, 1, 1, 2, 3, 4, 4, 5]
    assert len(batch.to("cpu")) == 4


def test_graphs_as_a_model_takes_them() -> None:
    graphs = graph_set()
    pooled = graphs.select(torch.tensor([2, 0])).pooled()
    fine, coarse = pooled.levels
    assert pooled.num_graphs == 2
    assert fine.graph_offsets is not None
    assert fine.graph_offsets.tolist() == [0, 3, 6]
    assert sorted(map(tuple, coarse.edge_index.T.tolist())) == [(1, 2), (2, 1)]
    assert cluster_of_vertex(pooled.clusters[0]).tolist() == [0, 0, 0, 1, 1, 2]


def test_scales_of_a_whole_set() -> None:
    fine, coarse = graph_set().levels
    assert fine.largest_offset == 4.0
    assert fine.largest_degree == 2
    assert coarse.largest_offset == 0.0
    bare = fine.select(torch.tensor([1]))
    assert (bare.largest_offset, bare.largest_degree) == (0.0, 0)


def test_the_coarsest_level_has_no_clusters() -> None:
    coarse = graph_set().levels[1]
    with pytest.raises(ValueError, match="it is the coarsest"):
        coarse.clusters_in(coarse)


def test_graph_set_as_pyg_data() -> None:
    graphs = graph_set()
    data = list(graphs.pyg())
    assert [d.num_nodes for d in data] == [3, 1, 3]
    assert [d.num_edges for d in data] == [4, 0, 6]
    assert [int(d.y) for d in data] == [0, 1, 1]
    assert data[2].x.flatten().tolist() == [4, 5, 6]
    (named,) = replace(graphs, names=("a", "b", "c")).pyg([1])
    assert named.name == "b"


def test_graph_sets_that_do_not_fit_together_are_refused() -> None:
    graphs = graph_set()
    fine, coarse = graphs.levels
    with pytest.raises(ValueError, match="one row of features per vertex"):
        replace(graphs, x=graphs.x[:-1])
    with pytest.raises(ValueError, match="holds every graph"):
        replace(graphs, levels=(fine, coarse.select(torch.tensor([0]))))
    with pytest.raises(ValueError, match="which cluster each vertex"):
        replace(graphs, levels=(replace(fine, clusters=None), coarse))
    with pytest.raises(ValueError, match="labels outside 0 to 1"):
        replace(graphs, labels=torch.tensor([0, 1, 2]))


@pytest.mark.parametrize("num_vertices", [1, 256, 257, 2**15, 2**15 + 1])
def test_local_numbers_fit_their_type(num_vertices: int) -> None:
    assert torch.tensor(num_vertices - 1, dtype=local_dtype(num_vertices)).item() == num_vertices - 1


def test_without_pyg_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    with pytest.raises(ImportError, match=r"pip install 'geoskip\[pyg\]"):
        next(mesh_set().pyg())
