"""A mesh in numbers, by hand and by Euler."""

import numpy as np
import pytest

from geoskip.meshes import Mesh, MeshSummary, grid, icosphere, summary, torus


def test_two_triangles_by_hand() -> None:
    told = summary(grid(2, 2, spacing=3.0))
    assert told.mean_edge == pytest.approx((4 * 3 + 3 * 2**0.5) / 5)
    assert told == MeshSummary(4, 2, 5, told.mean_edge, 4, 0, 1, 3)


@pytest.mark.parametrize(("mesh", "euler"), [(icosphere(2), 2), (torus(9, 7), 0), (grid(4, 6), 1)])
def test_counts_obey_euler(mesh: Mesh, euler: int) -> None:
    told = summary(mesh)
    assert told.vertices - told.edges + told.faces == euler
    assert 2 * told.edges - told.boundary_edges == 3 * told.faces


def test_isolated_vertices_are_parts_and_a_book_has_a_spine() -> None:
    pages = Mesh(np.eye(7, 3), np.array([[0, 1, 2], [0, 1, 3], [0, 1, 4]]))
    told = summary(pages)
    assert (told.nonmanifold_edges, told.boundary_edges, told.parts, told.max_degree) == (1, 6, 3, 4)


def test_nothing_is_summed_to_nothing() -> None:
    empty = summary(Mesh(np.zeros((0, 3)), np.zeros((0, 3), dtype=np.int64)))
    assert empty == MeshSummary(0, 0, 0, 0.0, 0, 0, 0, 0)
