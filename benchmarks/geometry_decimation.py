"""Time of decimation, hierarchies, closest points and spirals, for meshes of 7,000 and 200,000 vertices.

    OMP_NUM_THREADS=1 python benchmarks/geometry_decimation.py [--small]

The meshes are noisy tori, so that no two costs are equal. On a shared machine, the CPU time is more meaningful than the
wall-clock time.
"""

import argparse
from collections.abc import Callable
from functools import partial
from time import perf_counter, process_time

import numpy as np

from geoskip.meshes import Mesh, closest_points, decimate, mesh_hierarchy, spirals, torus


def noisy_torus(rings: int, sides: int) -> Mesh:
    mesh = torus(rings, sides)
    spacing = 2 * np.pi / rings
    noise = np.random.default_rng(0).standard_normal(mesh.verts.shape)
    return mesh.with_verts(mesh.verts + 0.05 * spacing * noise)


def report(name: str, work: Callable[[], object]) -> None:
    wall, cpu = perf_counter(), process_time()
    work()
    print(f"  {name:<34}{perf_counter() - wall:8.2f} s, CPU time {process_time() - cpu:.2f} s", flush=True)


def run(rings: int, sides: int) -> None:
    mesh = noisy_torus(rings, sides)
    coarse = -(-mesh.num_vertices // 4)
    print(f"{mesh.num_vertices} vertices, {mesh.num_faces} faces")
    report(f"decimate to {coarse}", lambda: decimate(mesh, coarse))
    report("hierarchy by 4, 4, 4, 4", lambda: mesh_hierarchy(mesh))
    rng = np.random.default_rng(1)
    queries = mesh.verts[:5000] + 0.01 * rng.standard_normal((min(5000, mesh.num_vertices), 3))
    report(f"closest points of {len(queries)} queries", lambda: closest_points(mesh, queries))
    for length in (14, 200):
        report(f"spirals of length {length}", partial(spirals, mesh, length))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="7,000 vertices only")
    small = parser.parse_args().small
    for rings, sides in [(140, 50)] if small else [(140, 50), (800, 250)]:
        run(rings, sides)
