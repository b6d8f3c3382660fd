"""Generated faces and bodies: seconds to make and to load them, bytes on disk, faces decoded a second, pictures.

    OMP_NUM_THREADS=1 python benchmarks/generated_people.py [--root FOLDER]

With a folder that holds a copy of the cache it runs without anny, and measures no making.
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

import torch

from geoskip.data import MeshSet, SkinnedShapes, bodies, faces
from geoskip.report.pictures import picture


def timed(name: str, work: Callable[[], object]) -> None:
    start = perf_counter()
    work()
    print(f"{name:<44}{perf_counter() - start:8.2f} s", flush=True)


def decoding(mesh_set: MeshSet, device: str, batch: int = 256, repeats: int = 20) -> None:
    """The rate after one batch for warming up, with the items' numbers already on the device."""
    moved = mesh_set.to(device)
    chunks = torch.randint(len(mesh_set), (repeats + 1, batch), generator=torch.Generator().manual_seed(0)).to(device)
    for number, chunk in enumerate(chunks):
        if number == 1:
            _finish(device)
            start = perf_counter()
        moved.verts(chunk)
    _finish(device)
    print(f"decoding on {device:<32}{repeats * batch / (perf_counter() - start):12.0f} faces/s", flush=True)


def accuracy(mesh_set: MeshSet, device: str) -> None:
    """Against the same sum in float64."""
    shapes, items = mesh_set.shapes, torch.arange(0, len(mesh_set), 97)
    assert isinstance(shapes, SkinnedShapes)
    moved = torch.einsum("ta,avc->tvc", shapes.coefficients[items].double(), shapes.displacements.double())
    exact = shapes.rests[shapes.subject[items]].double() + moved
    for tf32 in (False, True) if device == "cuda" else (False,):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        error = (mesh_set.to(device).verts(items).cpu().double() - exact).abs().max()
        print(f"largest error on {device}{' with TF32' if tf32 else '':<20}{float(error):12.2e} mm", flush=True)


def _finish(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def run(root: Path) -> None:
    timed("faces, first call", lambda: faces(cache=root))
    timed("faces, second call", lambda: faces(cache=root))
    timed("bodies, first call", lambda: bodies(cache=root))
    timed("bodies, second call", lambda: bodies(cache=root))
    for entry in sorted(root.glob("*-*")):
        print(f"{entry.name.split('-')[0]:<44}{sum(f.stat().st_size for f in entry.iterdir()) / 1e6:8.2f} MB")
    mesh_set = faces(cache=root)
    for device in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
        decoding(mesh_set, device)
        accuracy(mesh_set, device)
    for size in (256, 512, 1024):
        timed(f"picture of a face, {size}²", partial(picture, mesh_set.template, size=size))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, help="the cache; a temporary folder where not given")
    if root := parser.parse_args().root:
        run(root)
    else:
        with tempfile.TemporaryDirectory() as folder:
            run(Path(folder))
