"""Graphs to measure on, made here and always the same: spheres, superpixels, sheets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from scipy.spatial import ConvexHull
from torch import Tensor

from geoskip.graphs import Graph, attach, cartesian, pack
from geoskip.meshes import Mesh, spirals
from geoskip.shapes import Float, Int

# Side of the patch that a sheet repeats, and the neighbours of a vertex of it, counter-clockwise.
PATCH = 32
AROUND = ((0, 1), (1, 1), (1, 0), (0, -1), (-1, -1), (-1, 0))
FURTHER = ((0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, -1), (0, -2), (-1, -2), (-2, -2), (-2, -1), (-2, 0), (-1, 1))


def sphere(num_vertices: int) -> Mesh:
    """A closed mesh with any number of vertices: points along a Fibonacci spiral, and their convex hull."""
    if num_vertices < 4:
        raise ValueError(f"num_vertices: a closed mesh has at least 4 vertices, got {num_vertices}")
    index = np.arange(num_vertices) + 0.5
    height, turn = 1 - 2 * index / num_vertices, np.pi * (1 + 5**0.5) * index
    radius = np.sqrt(1 - height**2)
    verts = np.stack([radius * np.cos(turn), radius * np.sin(turn), height], axis=1)
    faces = ConvexHull(verts).simplices.astype(np.int64)
    a, b, c = np.moveaxis(verts[faces], 1, 0)
    inward = (np.cross(b - a, c - a) * a).sum(axis=1) < 0
    faces[inward] = faces[inward][:, ::-1]
    return Mesh(verts, faces[np.lexsort(faces.T)])


def sphere_graph(num_vertices: int, spiral_length: int) -> Graph:
    """The sphere as an operator sees it: relative Cartesian pseudo-coordinates, spirals."""
    mesh = sphere(num_vertices)
    graph = Graph.from_faces(torch.tensor(mesh.faces), num_vertices)
    graph = attach(graph, cartesian(graph, torch.tensor(mesh.verts)).float())
    return graph.with_spirals(torch.tensor(spirals(mesh, spiral_length)))


def superpixel_graphs(num_graphs: int, num_vertices: int, num_pairs: int, seed: int = 0) -> Graph:
    """Packed random geometric graphs: of points in a square, the nearest ``num_pairs`` pairs are neighbours."""
    rng = np.random.default_rng(seed)
    graphs = []
    for _ in range(num_graphs):
        points, nearest = superpixel_points(rng, num_vertices, num_pairs)
        pairs = torch.tensor(nearest)
        graph = Graph.from_edge_index(torch.cat([pairs, pairs.flip(0)], dim=1), num_vertices)
        graphs.append(attach(graph, cartesian(graph, torch.tensor(points)).float()))
    return pack(graphs)


def superpixel_points(
    rng: np.random.Generator, num_vertices: int, num_pairs: int
) -> tuple[Float[np.ndarray, "vertices 2"], Int[np.ndarray, "2 pairs"]]:
    """Random points in the unit square, and the nearest ``num_pairs`` pairs of them."""
    i, j = np.triu_indices(num_vertices, 1)
    points = rng.random((num_vertices, 2))
    nearest = np.argsort(((points[i] - points[j]) ** 2).sum(axis=1), kind="stable")[:num_pairs]
    return points, np.stack([i[nearest], j[nearest]])


def sheet_graph(num_vertices: int, device: torch.device | str = "cpu") -> Graph:
    """A closed sheet of triangles, six around each vertex, for any power of two from 1024 vertices up.

    A patch of 32 × 32 vertices with heights of its own is laid out again and again, and the borders are joined. So
    what an operator does to a signal that repeats in the same way is known at every size from one patch alone.
    """
    rows, cols = sheet_shape(num_vertices)
    vertex = torch.arange(num_vertices, device=device)
    r, c = vertex // cols, vertex % cols
    heights = torch.rand(PATCH, PATCH, generator=torch.Generator().manual_seed(0)).to(device)
    senders, pseudo = [], []
    for dr, dc in AROUND:
        nr, nc = (r + dr) % rows, (c + dc) % cols
        rise = heights[nr % PATCH, nc % PATCH] - heights[r % PATCH, c % PATCH]
        senders.append(nr * cols + nc)
        pseudo.append(torch.stack([torch.full_like(rise, dr), torch.full_like(rise, dc), rise], dim=1) / 2 + 0.5)
    edge_index = torch.stack([torch.cat(senders), vertex.repeat(len(AROUND))])
    return Graph.from_edge_index(edge_index, num_vertices, torch.cat(pseudo))


def with_sheet_spirals(graph: Graph, length: int) -> Graph:
    """A sheet with the first two rings around each vertex as its spiral."""
    steps = ((0, 0), *AROUND, *FURTHER)
    if length > len(steps):
        raise ValueError(f"length: spirals of a sheet have at most {len(steps)} vertices, got {length}")
    rows, cols = sheet_shape(graph.num_vertices)
    vertex = torch.arange(graph.num_vertices, device=graph.device)
    r, c = vertex // cols, vertex % cols
    table = [((r + dr) % rows) * cols + (c + dc) % cols for dr, dc in steps[:length]]
    return replace(graph, spirals=torch.stack(table, dim=1))


def sheet_shape(num_vertices: int) -> tuple[int, int]:
    """Rows and columns of a sheet, each a multiple of the patch's side."""
    bits = num_vertices.bit_length() - 1
    if num_vertices != 1 << bits or num_vertices < PATCH**2:
        raise ValueError(f"num_vertices: a sheet has a power of two from {PATCH**2} up, got {num_vertices}")
    return 1 << (bits // 2), 1 << (bits - bits // 2)


def tiled(patch: Float[Tensor, "patch channels"], num_vertices: int) -> Float[Tensor, "vertices channels"]:
    """Features of the patch, repeated all over a sheet."""
    rows, cols = sheet_shape(num_vertices)
    square = patch.unflatten(0, (PATCH, PATCH))
    return square.repeat(rows // PATCH, cols // PATCH, 1).flatten(0, 1)
