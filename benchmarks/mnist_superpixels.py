"""MNIST as superpixel graphs: seconds to build, coarsen and load, size on disk, edges and vertices per level.

    OMP_NUM_THREADS=1 python benchmarks/mnist_superpixels.py FOLDER [--images N] [--workers N]

FOLDER holds the four IDX files of MNIST; --images takes that many of them. Where others use the machine too, the
time on the cores (of this process and the workers) says more than the time on the wall.
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import numpy as np

from geoskip.data import GraphSet, Split, superpixel_set
from geoskip.data.cache import entries
from geoskip.data.graph_sets import find_clusters
from geoskip.data.idx import CLASSES, read_images

T = TypeVar("T")


def timed(name: str, work: Callable[[], T]) -> T:
    wall, cores = perf_counter(), _on_the_cores()
    result = work()
    print(f"{name:<34}{perf_counter() - wall:8.1f} s, {_on_the_cores() - cores:.1f} s on the cores", flush=True)
    return result


def _on_the_cores() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def levels(graphs: GraphSet) -> None:
    for depth, level in enumerate(graphs.levels):
        vertices, edges = len(level.pos) / len(graphs), level.edges.shape[1] / len(graphs)
        print(f"level {depth}: {vertices:.2f} vertices and {edges:.1f} directed edges a graph")


def main(folder: Path, count: int | None, workers: int | None) -> None:
    images, labels, split = read_images(folder)
    if count is not None:
        chosen = np.linspace(0, len(images) - 1, count).astype(int)
        images, labels, split = images[chosen], labels[chosen], Split.leading(count, count * 6 // 7)
    print(f"{len(images):,} images, {workers or os.cpu_count()} workers")
    with tempfile.TemporaryDirectory() as cache:

        def build() -> GraphSet:
            return superpixel_set(images, labels, CLASSES["mnist"], split, workers=workers, cache=Path(cache))

        graphs = timed("whole set, nothing cached", build)
        timed("whole set, out of the cache", build)
        timed("coarsening alone", lambda: find_clusters(graphs.levels[0], 4.6, 2))
        print(f"on disk {sum(entry.num_bytes for entry in entries(Path(cache))) / 2**20:.2f} MiB")
    levels(graphs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=None)
    parser.add_argument("--workers", type=int, default=None)
    args = parser.parse_args()
    main(args.folder, args.images, args.workers)
