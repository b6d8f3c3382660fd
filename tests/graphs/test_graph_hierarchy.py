"""Hierarchies as the operators see them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch.testing import assert_close

from geoskip.graphs import Graph, RecordBuffers, SparseMatrix, cartesian
from geoskip.graphs.graph_hierarchy import Hierarchy
from geoskip.meshes import icosphere, spirals
from geoskip.meshes.hierarchy import mesh_hierarchy
from tests.specimens import features

MESHES = mesh_hierarchy(icosphere(1), targets=(20, 8))


def path(num_vertices: int) -> Graph:
    steps = torch.arange(num_vertices - 1)
    return Graph.from_edge_index(torch.stack([steps, steps + 1]), num_vertices)


def ones(rows: int, columns: int) -> SparseMatrix:
    return SparseMatrix.from_scipy(csr_array(np.ones((rows, columns))))


def test_from_meshes_keeps_levels_and_matrices() -> None:
    hierarchy = Hierarchy.from_meshes(MESHES, spiral_length=5, dtype=torch.float64)
    assert hierarchy.sizes == (42, 20, 8)
    for level, mesh in zip(hierarchy.levels, MESHES.levels, strict=True):
        assert level.num_edges == 2 * len(mesh.edges())
        assert level.pseudo is not None
        assert level.spirals is not None
        assert_close(level.pseudo, cartesian(level, torch.tensor(mesh.verts)))
        assert np.array_equal(level.spirals.numpy(), spirals(mesh, 5))
    for ours, theirs in zip([*hierarchy.down, *hierarchy.up], [*MESHES.down, *MESHES.up], strict=True):
        assert_close(ours.dense().numpy(), theirs.toarray())


def test_without_a_length_there_are_no_spirals() -> None:
    hierarchy = Hierarchy.from_meshes(MESHES)
    assert all(level.spirals is None for level in hierarchy.levels)
    assert hierarchy.down[0].values.dtype == torch.float32


def test_pooling_what_was_unpooled_changes_nothing() -> None:
    """D U = I, and U keeps constants."""
    hierarchy = Hierarchy.from_meshes(MESHES, dtype=torch.float64)
    x = features(3, 20, 2)
    assert_close(hierarchy.down[0] @ (hierarchy.up[0] @ x), x)
    assert_close(hierarchy.up[0] @ torch.ones(20, 1).double(), torch.ones(42, 1).double())


def test_moves_as_a_whole() -> None:
    hierarchy = Hierarchy.from_meshes(MESHES).to(torch.float64)
    assert hierarchy.levels[1].pseudo is not None
    assert hierarchy.levels[1].pseudo.dtype == hierarchy.up[1].values.dtype == torch.float64
    assert hierarchy.to("meta").device == torch.device("meta")


def test_lives_in_buffers() -> None:
    kept = RecordBuffers(Hierarchy.from_meshes(MESHES))
    assert {key.split("__")[0] for key in kept.state_dict()} == {"levels", "down", "up"}
    assert kept.double()().down[0].values.dtype == torch.float64


def test_takes_matrices_of_scipy() -> None:
    graphs = [path(4), path(2)]
    hierarchy = Hierarchy.from_matrices(graphs, [csr_array(np.ones((2, 4)))], [csr_array(np.ones((4, 2)))])
    assert_close(hierarchy.down[0].dense(), torch.ones(2, 4))


def test_no_levels() -> None:
    with pytest.raises(ValueError, match="levels: a hierarchy needs at least one graph"):
        Hierarchy.from_matrices([], [], [])


def test_matrices_for_other_steps() -> None:
    with pytest.raises(ValueError, match="up: 2 levels have 1 steps between them, got 0 matrices"):
        Hierarchy.from_matrices([path(4), path(2)], [ones(2, 4)], [])


@pytest.mark.parametrize(("down", "up", "named"), [((4, 2), (4, 2), "down"), ((2, 4), (2, 4), "up")])
def test_matrix_of_another_shape(down: tuple[int, int], up: tuple[int, int], named: str) -> None:
    with pytest.raises(ValueError, match=rf"{named}\[0\]: expected shape"):
        Hierarchy.from_matrices([path(4), path(2)], [ones(*down)], [ones(*up)])


def test_parts_on_other_devices() -> None:
    graphs = [path(4), path(2)]
    with pytest.raises(ValueError, match=r"down\[0\]: is on meta, the levels on cpu"):
        Hierarchy.from_matrices(graphs, [ones(2, 4).to("meta")], [ones(4, 2)])
    with pytest.raises(ValueError, match=r"levels\[1\]: is on meta, levels\[0\] on cpu"):
        Hierarchy.from_matrices([graphs[0], graphs[1].to("meta")], [ones(2, 4)], [ones(4, 2)])
