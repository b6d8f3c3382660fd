"""``geoskip demo``: Table 1 in small. Autoencoders of faces with and without skips, trained on the CPU in minutes.

Everything is small: a few hundred faces of 1,050 vertices, a narrow network, few epochs. It shows the program at work;
the evidence for the paper's claims is in its tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from geoskip.data import MeshSet, Split, StoredShapes
from geoskip.meshes import icosphere
from geoskip.paper.rows import SKIPS
from geoskip.paper.small_sets import deformed, reduced
from geoskip.records.samples import MeshSamples
from geoskip.report.picture_grids import errors_mm, reconstruction_grid
from geoskip.report.pictures import write_png
from geoskip.training.config import resolve
from geoskip.training.loop import train
from geoskip.training.progress import Progress
from geoskip.training.run import Run
from geoskip.training.tasks import make_task

NUM_TRAIN, NUM_TEST, NUM_VERTICES = 480, 60, 1050
# The percentile of all errors of all methods where colors saturate: a few outliers would leave the rest dark.
PERCENTILE = 99.0
# Pixels on a side of the picture of one mesh.
SIZE = 240


@dataclass(frozen=True)
class DemoSet:
    """The shapes to train on, a description of them, and a note if they are not faces."""

    shapes: MeshSet
    about: str
    note: str = ""


def demo_set(data: str = "auto") -> DemoSet:
    """``"faces"``, ``"spheres"``, or ``"auto"``: faces if they can be generated here."""
    note = ""
    if data != "spheres":
        from geoskip.data import faces

        try:
            about = f"{NUM_TRAIN} faces of {NUM_VERTICES:,} vertices"
            return DemoSet(reduced(faces(), NUM_VERTICES, NUM_TRAIN, NUM_TEST), about)
        except ImportError as error:
            if data == "faces":
                raise
            note = f"Faces cannot be generated here ({error}), so these are deformed spheres."
    sphere, count = icosphere(3), NUM_TRAIN + NUM_TEST
    verts = torch.from_numpy(deformed(sphere, count, seed=0)).float()
    names = tuple(f"{item:04d}" for item in range(count))
    shapes = MeshSet(sphere, StoredShapes(verts), names, Split.leading(count, NUM_TRAIN), unit_mm=100.0)
    about = f"{NUM_TRAIN} deformed spheres of {sphere.num_vertices} vertices and a radius of 10 cm"
    return DemoSet(shapes, about, note)


def demo_runs(
    shapes: MeshSet, folder: Path, seeds: int, epochs: int, progress: Callable[[], Progress] = Progress
) -> Iterator[Run]:
    """MoNet, Res-MoNet and Aff-MoNet with each seed: the paper's autoencoder with half the channels, three levels, and
    a higher rate for the few steps. A run that the folder already contains is not trained again."""
    for seed in range(seeds):
        for skip in SKIPS:
            config = resolve(
                "reconstruction",
                operator="monet",
                skip=skip,
                kernel_size=9,
                model={"channels": [16, 16, 32], "latent": 16},
                optim={"batch_size": 16, "epochs": epochs, "lr": 3e-3, "lr_decay": 0.8},
                seed=seed,
                device="cpu",
                checkpoint_every=0,
                keep=1,
            )
            name = f"{skip}-seed{seed}-epochs{epochs}-{shapes.template.num_vertices}"
            with one_thread():
                yield train(config, folder / name, task=make_task(config, shapes), progress=progress())


@contextmanager
def one_thread() -> Iterator[None]:
    """Tensors this small gain little from threads, which mostly wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def write_demo_pictures(folder: Path, samples: Mapping[str, MeshSamples]) -> tuple[list[Path], float]:
    """One picture per method, with the same view and colors; the paths, and the error in mm where colors saturate."""
    folder.mkdir(parents=True, exist_ok=True)
    errors = np.concatenate([errors_mm(of_method).ravel() for of_method in samples.values()])
    largest = float(np.percentile(errors, PERCENTILE))
    paths = []
    for method, of_method in samples.items():
        paths.append(folder / f"{method.lower()}.png")
        write_png(paths[-1], reconstruction_grid(of_method, SIZE, largest=largest))
    return paths, largest
