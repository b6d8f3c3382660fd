"""Generated graphs have the sizes and the shape that the workloads promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from benchmarks.surfaces import (
    AROUND,
    FURTHER,
    sheet_graph,
    sheet_shape,
    sphere,
    superpixel_graphs,
    tiled,
    with_sheet_spirals,
)

from geoskip.graphs import Graph, separate


@pytest.mark.parametrize("num_vertices", [4, 5, 100, 777])
def test_sphere_is_a_closed_surface_wound_outwards(num_vertices: int) -> None:
    mesh = sphere(num_vertices)
    assert mesh.num_vertices == num_vertices
    assert mesh.num_faces == 2 * num_vertices - 4
    assert len(mesh.edges()) == 3 * num_vertices - 6
    assert len(mesh.boundary_edges()) == 0
    a, b, c = np.moveaxis(mesh.verts[mesh.faces], 1, 0)
    assert ((np.cross(b - a, c - a) * (a + b + c)).sum(axis=1) > 0).all()


def test_sphere_has_the_degrees_of_a_mesh() -> None:
    degrees = np.bincount(sphere(1000).edges().ravel())
    assert degrees.min() >= 4
    assert degrees.max() <= 8
    assert np.mean(degrees == 6) > 0.8


def test_superpixels_are_separate_graphs_of_nearest_pairs() -> None:
    packed = superpixel_graphs(4, 75, 696)
    assert packed.num_vertices == 4 * 75
    parts = separate(packed)
    assert [part.num_edges for part in parts] == [2 * 696] * 4
    assert all(_is_symmetric(part) for part in parts)
    assert not torch.equal(parts[0].edge_index, parts[1].edge_index)
    assert packed.pseudo is not None
    assert packed.pseudo.shape == (4 * 2 * 696, 2)
    again = superpixel_graphs(4, 75, 696)
    assert torch.equal(packed.edge_index, again.edge_index)


@pytest.mark.parametrize("size", [1024, 2048, 4096])
def test_sheet_has_six_neighbours_everywhere(size: int) -> None:
    graph = sheet_graph(size)
    assert (graph.num_vertices, graph.num_edges) == (size, 6 * size)
    assert (graph.degrees == 6).all()
    assert _is_symmetric(graph)
    assert (graph.edge_index[0] != graph.edge_index[1]).all()
    assert graph.pseudo is not None
    assert 0 <= float(graph.pseudo.min()) < float(graph.pseudo.max()) <= 1


def test_sheet_spirals_are_the_vertex_and_its_two_rings() -> None:
    graph = with_sheet_spirals(sheet_graph(1024), 19)
    assert graph.spirals is not None
    ring: list[set[int]] = [set() for _ in range(1024)]
    for j, i in graph.edge_index.t().tolist():
        ring[i].add(j)
    for vertex, *walk in graph.spirals.tolist():
        first, second = walk[: len(AROUND)], walk[len(AROUND) :]
        assert set(first) == ring[vertex]
        assert set(second) == set().union(*(ring[w] for w in first)) - ring[vertex] - {vertex}
        assert len(second) == len(FURTHER)
    assert torch.equal(graph.spirals[:, 0], torch.arange(1024))


def test_tiles_follow_each_other() -> None:
    patch = torch.arange(1024.0).unsqueeze(1)
    rows, cols = sheet_shape(2048)
    whole = tiled(patch, 2048).view(rows, cols)
    assert (rows, cols) == (32, 64)
    assert torch.equal(whole[:, :32], whole[:, 32:])
    assert torch.equal(whole[:, :32].reshape(-1, 1), patch)


def test_what_cannot_be_made_is_said() -> None:
    with pytest.raises(ValueError, match="num_vertices: a closed mesh has at least 4 vertices, got 3"):
        sphere(3)
    for size in (1000, 512):
        with pytest.raises(ValueError, match="num_vertices: a sheet has a power of two from 1024 up"):
            sheet_shape(size)
    with pytest.raises(ValueError, match="length: spirals of a sheet have at most 19 vertices, got 20"):
        with_sheet_spirals(sheet_graph(1024), 20)


def _is_symmetric(graph: Graph) -> bool:
    pairs = set(map(tuple, graph.edge_index.t().tolist()))
    return pairs == {(j, i) for i, j in pairs}
