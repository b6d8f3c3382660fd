"""Tiny sets for every task, and configurations that train on them in a moment."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from geoskip.data import CorrespondenceSet, GraphLevel, GraphSet, MeshSet, Split, StoredShapes
from geoskip.data.graph_sets import find_clusters, local_dtype, with_levels
from geoskip.meshes import Mesh, icosphere
from geoskip.operators import operator_info
from geoskip.training.config import Config, resolve

SMALL: dict[str, dict[str, Any]] = {
    "reconstruction": {"kernel_size": 2, "model": {"channels": [4, 6], "latent": 3}},
    "correspondence": {"kernel_size": 2, "model": {"lift": 4, "channels": [5, 6], "head": 7}},
    "classification": {"kernel_size": 2, "model": {"channels": [4, 5, 6], "head": 7}},
}


TASKS = tuple(SMALL)


def config(task: str = "reconstruction", **given: Any) -> Config:
    """A small configuration; ``optim`` and ``model`` add to what is small about it."""
    small = {**SMALL[task], "data": "tiny", "device": "cpu", "checkpoint_every": 0}
    if not operator_info(given.get("operator", "monet")).has_kernel_size:
        del small["kernel_size"]
    model = {**small["model"], **given.pop("model", {})}
    optim = {"epochs": 3, "batch_size": 4, **given.pop("optim", {})}
    return resolve(task, **{**small, **given, "model": model, "optim": optim})


def meshes(count: int = 14, subdivisions: int = 1, seed: int = 0, num_test: int = 4) -> MeshSet:
    """Spheres, stretched, swollen around a point each, and bent."""
    sphere, random = icosphere(subdivisions), np.random.default_rng(seed)
    stretch = np.exp(0.2 * random.standard_normal((count, 1, 3)))
    bend = 0.3 * random.standard_normal((count, 1))
    centres = random.standard_normal((count, 1, 3))
    centres /= np.linalg.norm(centres, axis=2, keepdims=True)
    swelling = 0.5 * random.random((count, 1, 1)) * np.exp(-2 * ((sphere.verts - centres) ** 2).sum(2, keepdims=True))
    verts = stretch * (1 + swelling) * sphere.verts
    verts[..., 0] += bend * verts[..., 2] ** 2
    names = tuple(f"sphere {item:03d}" for item in range(count))
    shapes = StoredShapes(torch.from_numpy(verts).float())
    return MeshSet(sphere, shapes, names, Split.leading(count, count - num_test), unit_mm=100.0)


def correspondences(count: int = 6, mixed: bool = False) -> CorrespondenceSet:
    """Stretched spheres whose vertices correspond by number; ``mixed``, some are finer and have unlabelled vertices."""
    coarse, fine = icosphere(1), icosphere(2)
    random = np.random.default_rng(0)
    items: list[Mesh] = []
    labels = []
    for item in range(count):
        base = fine if mixed and item % 2 else coarse
        items.append(base.with_verts(base.verts * np.exp(0.1 * random.standard_normal(3))))
        known = torch.full((base.num_vertices,), -1)
        known[: coarse.num_vertices] = torch.arange(coarse.num_vertices)
        labels.append(known)
    names = tuple(f"body {item}" for item in range(count))
    return CorrespondenceSet(coarse, tuple(items), tuple(labels), names, Split.leading(count, count - 2), 1000.0)


def graphs(count: int = 14, seed: int = 0, num_test: int = 4, uneven: bool = True) -> GraphSet:
    """Random points joined to those near them, of two classes that differ in their features.

    Sizes differ; one graph has a self-loop, one an isolated vertex, and one no edges at all.
    """
    random = torch.Generator().manual_seed(seed)
    pos, edges, sizes, edge_sizes = [], [], [], []
    for item in range(count):
        size = int(torch.randint(24, 40, (), generator=random)) if uneven else 30
        points = torch.rand(size, 2, generator=random)
        near = torch.cdist(points, points) < 0.35
        near.fill_diagonal_(False)
        if item == 1:
            near[0, 0] = True
        if item == 2:
            near[0, :], near[:, 0] = False, False
        if item == 3:
            near[:] = False
        pairs = near.nonzero().t()
        # In no particular order, as the edges of a user's graphs.
        edges.append(pairs[:, torch.randperm(pairs.shape[1], generator=random)])
        pos.append(points)
        sizes.append(size)
        edge_sizes.append(pairs.shape[1])
    offsets = torch.tensor([0, *sizes]).cumsum(0)
    finest = GraphLevel(
        torch.cat(pos), offsets, torch.cat(edges, 1).to(local_dtype(64)), torch.tensor([0, *edge_sizes]).cumsum(0)
    )
    clusters = find_clusters(finest, 0.3, 2)
    labels = torch.arange(count) % 2
    x = torch.rand(len(finest.pos), 1, generator=random) + labels.repeat_interleave(torch.tensor(sizes))[:, None]
    return GraphSet(x, with_levels(finest, clusters), labels, ("low", "high"), Split.leading(count, count - num_test))


def data(task: str) -> Any:
    makers: dict[str, Any] = {"reconstruction": meshes, "correspondence": correspondences, "classification": graphs}
    return makers[task]()
