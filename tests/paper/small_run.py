"""A run of an autoencoder of deformed spheres, written as training would, without training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from geoskip.data import MeshSet, Split, StoredShapes
from geoskip.meshes import icosphere
from geoskip.training.checkpoint import State, save_checkpoint
from geoskip.training.config import resolve
from geoskip.training.run import Run
from geoskip.training.tasks import Task, make_task

CHANNELS, FACTORS = (4, 6), (2, 2)


def spheres(count: int = 12) -> MeshSet:
    """Stretched spheres of 42 vertices, every third for the test."""
    sphere = icosphere(1)
    stretch = np.exp(0.3 * np.random.default_rng(0).standard_normal((count, 1, 3)))
    verts = torch.from_numpy(stretch * sphere.verts).float()
    names = tuple(f"{k:02d}" for k in range(count))
    split = Split.by_mask(torch.arange(count) % 3 == 0)
    return MeshSet(sphere, StoredShapes(verts), names, split, unit_mm=10.0)


def small_run(folder: Path, seed: int = 0, steps: tuple[int, ...] = (), **chosen: Any) -> tuple[Run, Task]:
    """Initial values of ``seed`` as step 0; each further step doubles the skips' matrices. The last is the end."""
    given = {"operator": "monet", "kernel_size": 3, "skip": "affine", "data": "faces", **chosen}
    model = {"channels": list(CHANNELS), "latent": 5, "factors": list(FACTORS)}
    config = resolve("reconstruction", seed=seed, device="cpu", model=model, **given)
    run, task = Run.create(folder, config), make_task(config, data=None if "data" in chosen else spheres())
    network: Any = task.make_model()
    run.write_context(task)
    for step in steps:
        for block in [*network.encoder, *network.decoder, network.output]:
            with torch.no_grad():
                block.weight.mul_(2)
        save_checkpoint(run.checkpoints, State(step, network.state_dict()), keep=9)
    run.write_model(network, steps[-1] if steps else 0)
    return run, task
