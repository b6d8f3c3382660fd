"""Small data sets for tests, the demo and studies: made in code, or thinned from a larger set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from geoskip.data import CorrespondenceSet, GraphSet, MeshSet, Split, StoredShapes, data_set
from geoskip.data.graph_sets import find_clusters, with_levels
from geoskip.data.superpixels import radius_graphs
from geoskip.meshes import Mesh, decimate, icosphere, mesh_hierarchy
from geoskip.shapes import Float

NUM_TRAIN, NUM_ITEMS = 4, 6
NAMES = tuple(f"{item:03d}" for item in range(NUM_ITEMS))
DIGITS = tuple("0123456789")
CHUNK = 1024


def tiny_set(task: str) -> MeshSet | CorrespondenceSet | GraphSet:
    """Four training and two test items, the same in every call: enough to see that a row runs.

    Deformed spheres of 42 vertices; graphs of 16 points in a square, joined to points nearby, with two coarser levels.
    """
    split, sphere = Split.leading(NUM_ITEMS, NUM_TRAIN), icosphere(1)
    if task == "reconstruction":
        shapes = torch.from_numpy(deformed(sphere, NUM_ITEMS, seed=0)).float()
        return MeshSet(sphere, StoredShapes(shapes), NAMES, split, unit_mm=100.0)
    if task == "correspondence":
        meshes = tuple(sphere.with_verts(verts) for verts in deformed(sphere, NUM_ITEMS, seed=1))
        labels = (torch.arange(sphere.num_vertices),) * NUM_ITEMS
        return CorrespondenceSet(sphere, meshes, labels, NAMES, split, unit_mm=1000.0)
    rng = np.random.default_rng(0)
    pos, radius = rng.uniform(0, 28, (NUM_ITEMS, 16, 2)).astype(np.float32), 12.0
    finest = radius_graphs(pos, radius)
    clusters = find_clusters(finest, radius / 2, 2)
    x = torch.from_numpy(rng.random((len(finest.pos), 1), dtype=np.float32))
    return GraphSet(x, with_levels(finest, clusters), torch.arange(NUM_ITEMS), DIGITS, split)


def deformed(mesh: Mesh, count: int, seed: int) -> Float[np.ndarray, "shapes vertices 3"]:
    """The mesh, randomly stretched along its axes, inflated around a point, and twisted about the z axis."""
    rng = np.random.default_rng(seed)
    stretch = np.exp(0.2 * rng.standard_normal((count, 1, 3)))
    centers = rng.standard_normal((count, 1, 3))
    centers /= np.linalg.norm(centers, axis=2, keepdims=True)
    heights, turns = 0.4 * rng.random((count, 1, 1)), rng.standard_normal((count, 1))
    swelling = heights * np.exp(-2 * ((mesh.verts - centers) ** 2).sum(axis=2, keepdims=True))
    x, y, z = np.moveaxis(stretch * (1 + swelling) * mesh.verts, 2, 0)
    cos, sin = np.cos(turns * z), np.sin(turns * z)
    return np.stack([cos * x - sin * y, sin * x + cos * y, z], axis=2)


def reduced(data: MeshSet, num_vertices: int, num_train: int, num_test: int) -> MeshSet:
    """Random items of a set, with the vertices that remain after decimating its template."""
    random = torch.Generator().manual_seed(0)
    chosen = [
        items[torch.randperm(len(items), generator=random)[:count]]
        for items, count in ((data.split.train, num_train), (data.split.test, num_test))
    ]
    step, items = decimate(data.template, num_vertices), torch.cat(chosen)
    verts = data.verts(items)[:, torch.from_numpy(step.kept)]
    names = tuple(data.names[item] for item in items.tolist())
    return MeshSet(step.mesh, StoredShapes(verts), names, Split.leading(len(items), num_train), data.unit_mm)


@data_set(task="reconstruction", title="Mixed faces with fewer vertices", extra="people")
def coarse_faces(factors: list[int]) -> MeshSet:
    """The mixed faces, with the vertices that remain after decimating the template by each of the factors."""
    from geoskip.data import mixed_faces

    return coarsened(mixed_faces(), factors) if factors else mixed_faces()


def coarsened(data: MeshSet, factors: Sequence[int]) -> MeshSet:
    """All shapes of a set in memory, with the vertices that remain after decimating the template by ``factors``."""
    meshes = mesh_hierarchy(data.template, factors=tuple(factors))
    kept = torch.arange(data.template.num_vertices)
    for step in meshes.kept:
        kept = kept[torch.from_numpy(step)]
    verts = [data.verts(items)[:, kept] for items in torch.arange(len(data)).split(CHUNK)]
    return replace(data, template=meshes.levels[-1], shapes=StoredShapes(torch.cat(verts)))
