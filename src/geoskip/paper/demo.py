"""Table 1 in small, through the program itself: autoencoders of faces with and without skips, trained on the CPU.

Everything is shrunk until it takes minutes: faces of 1,050 vertices, some hundreds of them, a narrow network, a few
epochs. It shows the program at work; the paper's claims rest on its own tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from geoskip.data.mesh_set import MeshSet, StoredShapes
from geoskip.data.split import Split
from geoskip.meshes import Mesh, decimate, icosphere
from geoskip.records.samples import MeshSamples, read_samples
from geoskip.shapes import Float
from geoskip.training.config import Config, resolve
from geoskip.training.loop import train
from geoskip.training.progress import Progress
from geoskip.training.run import SAMPLES
from geoskip.training.tasks import make_task

SKIPS = ("none", "residual", "affine")
NUM_TRAIN, NUM_TEST, NUM_VERTS = 480, 60, 1050
SPHERE_MM = 100.0


@dataclass(frozen=True)
class DemoSet:
    """Shapes to train on; ``about`` says what they are, ``note`` why they are not faces, if they are not."""

    shapes: MeshSet
    about: str
    note: str | None = None


@dataclass(frozen=True)
class DemoRun:
    """One model, trained and tested: ``error_mm`` is the mean distance of a vertex from where it should be,
    ``seconds`` the time of training."""

    name: str
    skip: str
    seed: int
    params: int
    error_mm: float
    seconds: float
    folder: Path

    def samples(self) -> MeshSamples:
        """Test shapes and their reconstructions."""
        samples = read_samples(self.folder / SAMPLES)
        assert isinstance(samples, MeshSamples)
        return samples


def demo_set(data: str = "auto") -> DemoSet:
    """``"faces"``, ``"spheres"``, or ``"auto"``: faces where they can be had."""
    if data not in ("auto", "faces", "spheres"):
        raise ValueError(f"data: the demo has faces and spheres, or auto; got {data!r}")
    if data == "spheres":
        return _spheres()
    try:
        return _faces()
    except ImportError as error:
        if data == "faces":
            raise
        return _spheres(f"Faces cannot be made here ({error}), so these are deformed spheres.")


def demo_runs(
    data: DemoSet,
    folder: Path,
    seeds: int = 1,
    epochs: int = 10,
    progress: Callable[[], Progress] | None = None,
) -> Iterator[DemoRun]:
    """MoNet, Res-MoNet and Aff-MoNet, ``seeds`` times each; seeds change initial values and the order of the shapes.

    A run that is in the folder already is not trained again. ``progress`` makes what is told of each run.
    """
    for name, value in (("seeds", seeds), ("epochs", epochs)):
        if value < 1:
            raise ValueError(f"{name}: need at least 1, got {value}")
    for seed in range(seeds):
        for skip in SKIPS:
            config = demo_config(skip, seed, epochs)
            place = folder / f"{skip}-seed{seed}-epochs{epochs}-{data.shapes.template.num_vertices}"
            with one_thread():
                told = None if progress is None else progress()
                record = train(config, place, task=make_task(config, data.shapes), progress=told).record
            error = record.metrics["mean_mm"]
            yield DemoRun(record.name, skip, seed, record.parameters, error, record.seconds, place)


def demo_config(skip: str, seed: int, epochs: int) -> Config:
    """The paper's autoencoder with half the channels and three levels, its rate raised for the few steps there are."""
    return resolve(
        "reconstruction",
        operator="monet",
        skip=skip,
        kernel_size=9,
        model={"channels": [16, 16, 32], "latent": 16},
        optim={"batch": 16, "epochs": epochs, "lr": 3e-3, "lr_decay": 0.8},
        seed=seed,
        device="cpu",
        checkpoint_every=0,
        keep=1,
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Tensors as small as these gain little from threads, which on a busy machine mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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


def _faces() -> DemoSet:
    """Some of the generated faces, at a quarter of their vertices."""
    from geoskip.data.faces import faces

    return DemoSet(coarser(faces(), NUM_VERTS, NUM_TRAIN, NUM_TEST), f"{NUM_TRAIN} faces of {NUM_VERTS:,} vertices")


def coarser(data: MeshSet, num_vertices: int, num_train: int, num_test: int, seed: int = 0) -> MeshSet:
    """Some items of a set, drawn evenly at random, with the vertices that are left when its template is decimated."""
    draw = torch.Generator().manual_seed(seed)
    chosen = [
        items[torch.randperm(len(items), generator=draw)[:count]]
        for items, count in ((data.split.train, num_train), (data.split.test, num_test))
    ]
    step, items = decimate(data.template, num_vertices), torch.cat(chosen)
    verts = data.verts(items)[:, torch.from_numpy(step.kept)]
    names = tuple(data.names[item] for item in items.tolist())
    return MeshSet(step.mesh, StoredShapes(verts), names, Split.leading(len(items), num_train), data.unit_mm)


def _spheres(note: str | None = None) -> DemoSet:
    """A radius of 10 cm, so that millimetres mean something."""
    sphere, count = icosphere(3), NUM_TRAIN + NUM_TEST
    verts = torch.from_numpy(deformed(sphere, count, seed=0)).float()
    names = tuple(f"{item:04d}" for item in range(count))
    shapes = MeshSet(sphere, StoredShapes(verts), names, Split.leading(count, NUM_TRAIN), SPHERE_MM)
    return DemoSet(
        shapes, f"{NUM_TRAIN} deformed spheres of {sphere.num_vertices} vertices and a radius of 10 cm", note
    )
