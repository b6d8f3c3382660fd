"""Data sets of a few items, made in code in a moment: to see that a recipe runs, not what it is worth."""

from __future__ import annotations

import numpy as np
import torch

from geoskip.data.correspondence_set import CorrespondenceSet
from geoskip.data.graph_set import GraphLevel, GraphSet
from geoskip.data.levels import find_clusters, gaussian_weights, with_levels
from geoskip.data.mesh_set import MeshSet, StoredShapes
from geoskip.data.radius import radius_edges
from geoskip.data.split import Split
from geoskip.meshes import icosphere
from geoskip.paper.demo import deformed

NUM_TRAIN, NUM_TEST = 4, 2
NUM_ITEMS = NUM_TRAIN + NUM_TEST
NAMES = tuple(f"{item:03d}" for item in range(NUM_ITEMS))
DIGITS = tuple("0123456789")


def tiny_set(task: str) -> MeshSet | CorrespondenceSet | GraphSet:
    """Four items for training and two for the test; the same at each call."""
    if task == "reconstruction":
        return _meshes()
    return _bodies() if task == "correspondence" else _graphs()


def _split() -> Split:
    return Split.leading(NUM_ITEMS, NUM_TRAIN)


def _meshes() -> MeshSet:
    """Deformed spheres of 42 vertices, a unit of 100 mm."""
    sphere = icosphere(1)
    shapes = torch.from_numpy(deformed(sphere, NUM_ITEMS, seed=0)).float()
    return MeshSet(sphere, StoredShapes(shapes), NAMES, _split(), unit_mm=100.0)


def _bodies() -> CorrespondenceSet:
    """The same, matched with the sphere."""
    sphere = icosphere(1)
    meshes = tuple(sphere.with_verts(verts) for verts in deformed(sphere, NUM_ITEMS, seed=1))
    labels = (torch.arange(sphere.num_vertices),) * NUM_ITEMS
    return CorrespondenceSet(sphere, meshes, labels, NAMES, _split(), unit_mm=1000.0)


def _graphs() -> GraphSet:
    """Sixteen points in a square each, joined to those nearby, with two coarser levels."""
    rng = np.random.default_rng(0)
    pos, radius = rng.uniform(0, 28, (NUM_ITEMS, 16, 2)).astype(np.float32), 12.0
    edges, edge_offsets = radius_edges(pos, radius)
    offsets = torch.arange(NUM_ITEMS + 1) * pos.shape[1]
    finest = GraphLevel(
        torch.from_numpy(pos).flatten(0, 1), offsets, torch.from_numpy(edges), torch.from_numpy(edge_offsets)
    )
    clusters = find_clusters(finest, lambda level: gaussian_weights(level, radius / 2), 2)
    x = torch.from_numpy(rng.random((len(finest.pos), 1), dtype=np.float32))
    return GraphSet(x, with_levels(finest, clusters), torch.arange(NUM_ITEMS), DIGITS, _split())
