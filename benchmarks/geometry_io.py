"""Time to read a mesh of CoMA's size, compared with trimesh, and to compute geodesics on 6,890 vertices.

    OMP_NUM_THREADS=1 python benchmarks/geometry_io.py

Prints the fastest of repeated runs on one core, in milliseconds. Our time includes all checks of the file and the mesh;
trimesh's, with ``process=False, maintain_order=True``, includes none.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
import trimesh

from geoskip.meshes import Mesh, geodesic_distances, read_mesh, torus, write_mesh
from geoskip.meshes.geodesics import Method


def milliseconds(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = perf_counter()
        work()
        times.append(1e3 * (perf_counter() - start))
    return min(times)


def coma_size() -> Mesh:
    """5,023 vertices and 9,976 faces."""
    mesh = torus(62, 81)
    return Mesh(np.concatenate([mesh.verts, mesh.verts[:1]]), mesh.faces[:9976])


def float32_ply(mesh: Mesh) -> bytes:
    """The PLY variant of the CoMA data: binary, little endian, float32."""
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {mesh.num_vertices}"]
    header += [f"property float {axis}" for axis in "xyz"]
    header += [f"element face {mesh.num_faces}", "property list uchar int vertex_indices", "end_header", ""]
    faces = np.empty(mesh.num_faces, dtype=[("size", "u1"), ("corners", "<i4", 3)])
    faces["size"], faces["corners"] = 3, mesh.faces
    return "\n".join(header).encode() + mesh.verts.astype("<f4").tobytes() + faces.tobytes()


def reading(folder: Path) -> None:
    mesh = coma_size()
    (folder / "binary.ply").write_bytes(float32_ply(mesh))
    trimesh.Trimesh(mesh.verts, mesh.faces, process=False).export(folder / "ascii.ply", encoding="ascii")
    for suffix in ("obj", "off", "stl", "gltf", "glb"):
        write_mesh(mesh, folder / f"mesh.{suffix}")
    print(f"reading {mesh.num_vertices} vertices, {mesh.num_faces} faces [ms]{'geoskip':>11}{'trimesh':>10}")
    for name in ["binary.ply", "ascii.ply", *(f"mesh.{suffix}" for suffix in ("obj", "off", "stl", "gltf", "glb"))]:
        repeats = 300 if name in ("binary.ply", "mesh.glb") else 15
        ours = milliseconds(partial(read_mesh, folder / name), repeats)
        other = partial(trimesh.load_mesh, folder / name, process=False, maintain_order=True)
        print(f"  {name:<37}{ours:11.2f}{milliseconds(other, repeats):10.2f}")


def geodesics() -> None:
    mesh = torus(106, 65)
    print(f"geodesics, {mesh.num_vertices} vertices{'per source':>21} [ms]{'all pairs':>15} [s]")
    cases: list[tuple[Method, int]] = [("heat", 40), ("exact", 4)]
    for method, num_sources in cases:
        sources = np.arange(1 + num_sources) * 100 % mesh.num_vertices
        first = milliseconds(partial(geodesic_distances, mesh, sources[:1], method), 3)
        batch = milliseconds(partial(geodesic_distances, mesh, sources, method), 3)
        source = (batch - first) / num_sources
        print(f"  {method:<37}{source:10.1f}{source * mesh.num_vertices / 1e3:20.0f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        reading(Path(temporary))
    geodesics()
