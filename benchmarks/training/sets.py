"""Data of the sizes that the paper trains on, made here and always the same, so that nothing has to be fetched.

What the numbers say does not matter to a step's time; how many vertices, edges and classes there are does.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from benchmarks.surfaces import sphere, superpixel_points
from geoskip.data import CorrespondenceSet, GraphLevel, GraphSet, MeshSet, Split, StoredShapes
from geoskip.data.graph_sets import find_clusters, local_dtype, with_levels
from geoskip.meshes import Mesh
from geoskip.shapes import Float


def mesh_set(num_vertices: int, num_items: int, seed: int = 0) -> MeshSet:
    """Deformed spheres of one connectivity, all for training."""
    template = sphere(num_vertices)
    shapes = StoredShapes(torch.from_numpy(_deformed(template, num_items, seed)).float())
    return MeshSet(template, shapes, _names(num_items), Split.leading(num_items, num_items), unit_mm=1.0)


def correspondence_set(num_vertices: int, num_items: int, seed: int = 0) -> CorrespondenceSet:
    """Deformed spheres whose vertices are those of the round one."""
    target = sphere(num_vertices)
    meshes = tuple(target.with_verts(verts) for verts in _deformed(target, num_items, seed))
    labels = (torch.arange(num_vertices),) * num_items
    return CorrespondenceSet(target, meshes, labels, _names(num_items), Split.leading(num_items, num_items), 1.0)


def remeshed_set(num_vertices: int, num_items: int, seed: int = 0) -> CorrespondenceSet:
    """The same with the vertices of each mesh in an order of its own, so that no two share a graph."""
    shared, rng = correspondence_set(num_vertices, num_items, seed), np.random.default_rng(seed)
    orders = [rng.permutation(num_vertices) for _ in range(num_items)]
    meshes = tuple(
        Mesh(mesh.verts[order], np.argsort(order)[mesh.faces])
        for mesh, order in zip(shared.meshes, orders, strict=True)
    )
    return replace(shared, meshes=meshes, labels=tuple(map(torch.from_numpy, orders)))


def graph_set(
    num_graphs: int, num_vertices: int, num_pairs: int, num_coarsenings: int = 2, classes: int = 10, seed: int = 0
) -> GraphSet:
    """Points in a square, the nearest pairs of them neighbours, with Graclus coarsenings; labels in turn."""
    rng = np.random.default_rng(seed)
    samples = [superpixel_points(rng, num_vertices, num_pairs) for _ in range(num_graphs)]
    points, pairs = np.concatenate([points for points, _ in samples]), np.concatenate([p for _, p in samples], axis=1)
    both = np.concatenate([pairs.reshape(2, num_graphs, -1), pairs[::-1].reshape(2, num_graphs, -1)], axis=2)
    finest = GraphLevel(
        torch.from_numpy(points).float(),
        torch.arange(num_graphs + 1) * num_vertices,
        torch.from_numpy(both.reshape(2, -1)).to(local_dtype(num_vertices)),
        torch.arange(num_graphs + 1) * 2 * num_pairs,
    )
    clusters = find_clusters(finest, 0.1, num_coarsenings, seed=seed)
    x = torch.from_numpy(rng.random((len(points), 1))).float()
    labels = torch.arange(num_graphs) % classes
    names = tuple(str(number) for number in range(classes))
    return GraphSet(x, with_levels(finest, clusters), labels, names, Split.leading(num_graphs, num_graphs))


def _deformed(mesh: Mesh, count: int, seed: int) -> Float[np.ndarray, "shapes vertices 3"]:
    """Stretched along the axes, and swollen around a random point."""
    rng = np.random.default_rng(seed)
    stretch, centres = np.exp(0.2 * rng.standard_normal((count, 1, 3))), rng.standard_normal((count, 1, 3))
    centres /= np.linalg.norm(centres, axis=2, keepdims=True)
    swelling = 0.4 * np.exp(-2 * ((mesh.verts - centres) ** 2).sum(axis=2, keepdims=True))
    return stretch * (1 + swelling) * mesh.verts


def _names(count: int) -> tuple[str, ...]:
    return tuple(f"{item:05d}" for item in range(count))
