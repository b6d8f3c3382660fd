"""A comparison in small that runs anywhere: autoencoders of deformed spheres, with and without skips.

It is Table 1 with everything shrunk, meant to show the program at work; the paper's claims rest on its own tables.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from torch import Tensor, nn

from geoskip.experiments.skeletons import num_parameters
from geoskip.graphs.hierarchy import Hierarchy
from geoskip.meshes import Mesh, icosphere
from geoskip.meshes.hierarchy import mesh_hierarchy
from geoskip.models import MeshAutoencoder
from geoskip.shapes import Float

OPERATORS: tuple[tuple[str, int | None], ...] = (("gcn", None), ("monet", 4))
SKIPS = ("none", "residual", "affine")
NUM_TRAIN, NUM_TEST, BATCH, RATE = 192, 64, 16, 5e-3


@dataclass(frozen=True)
class DemoRun:
    """One model, trained and tested. ``error`` is the mean distance of a vertex from where it should be, with the
    sphere's radius as 1; ``seconds`` is the time of training."""

    operator: str
    skip: str
    seed: int
    params: int
    error: float
    seconds: float


def demo_runs(seeds: int = 3, epochs: int = 12) -> Iterator[DemoRun]:
    """Every operator with every skip, ``seeds`` times each; seeds change initial values and the order of the data."""
    for name, value in (("seeds", seeds), ("epochs", epochs)):
        if value < 1:
            raise ValueError(f"{name}: need at least 1, got {value}")
    sphere = icosphere(2)
    hierarchy = Hierarchy.from_meshes(mesh_hierarchy(sphere, factors=(4, 4)))
    shapes = torch.from_numpy(deformed(sphere, NUM_TRAIN + NUM_TEST, seed=0)).float()
    for (operator, kernel_size), skip, seed in product(OPERATORS, SKIPS, range(seeds)):
        torch.manual_seed(seed)
        model = MeshAutoencoder(
            hierarchy, operator=operator, skip=skip, kernel_size=kernel_size, channels=(16, 32), latent=8
        )
        started = time.perf_counter()
        with one_thread():
            error = fit(model, shapes[:NUM_TRAIN], shapes[NUM_TRAIN:], epochs)
        yield DemoRun(operator, skip, seed, num_parameters(model), error, time.perf_counter() - started)


@contextmanager
def one_thread() -> Iterator[None]:
    """Tensors as small as these gain little from threads, which on a busy machine mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fit(
    model: nn.Module,
    train: Float[Tensor, "shapes vertices 3"],
    test: Float[Tensor, "others vertices 3"],
    epochs: int,
) -> float:
    """Train on the L1 loss of standardised positions; the mean Euclidean error on ``test`` after the last epoch."""
    mean = train.mean(0)
    scale = (train - mean).std()
    data = (train - mean) / scale
    optimiser = torch.optim.Adam(model.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        for batch in torch.randperm(len(data)).split(BATCH):
            optimiser.zero_grad()
            (model(data[batch]) - data[batch]).abs().mean().backward()
            optimiser.step()
        schedule.step()
    with torch.no_grad():
        found = model((test - mean) / scale) * scale + mean
    return float((found - test).norm(dim=-1).mean())


def deformed(mesh: Mesh, count: int, seed: int) -> Float[np.ndarray, "shapes vertices 3"]:
    """The mesh stretched along its axes, swollen around a random point, and twisted about the z axis."""
    rng = np.random.default_rng(seed)
    stretch = np.exp(0.2 * rng.standard_normal((count, 1, 3)))
    centres = rng.standard_normal((count, 1, 3))
    centres /= np.linalg.norm(centres, axis=2, keepdims=True)
    heights, turns = 0.4 * rng.random((count, 1, 1)), rng.standard_normal((count, 1))
    swelling = heights * np.exp(-2 * ((mesh.verts - centres) ** 2).sum(axis=2, keepdims=True))
    x, y, z = np.moveaxis(stretch * (1 + swelling) * mesh.verts, 2, 0)
    cos, sin = np.cos(turns * z), np.sin(turns * z)
    return np.stack([cos * x - sin * y, sin * x + cos * y, z], axis=2)
