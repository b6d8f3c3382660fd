"""All pairs of geodesic distances, computed once and kept in a file that is mapped into memory."""

import hashlib
import os
import secrets
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np

from geoskip.meshes.geodesics import DistanceSolver, Method
from geoskip.meshes.mesh import Mesh, MeshError
from geoskip.shapes import Float

VERSION = 1
DIGEST_BYTES = 32
BLOCK_BYTES = 1 << 24


def geodesic_matrix(
    mesh: Mesh,
    folder: str | Path,
    method: Method = "heat",
    progress: Callable[[int, int], None] | None = None,
) -> Float[np.ndarray, "vertices vertices"]:
    """Row i: the distances from vertex i, as a read-only float32 memory map of a file in ``folder``.

    The file's name holds a hash of vertices, faces and method, so that another mesh never finds it. It is a plain
    ``.npy`` followed by the sha256 of all before it; one that is missing, truncated or altered is computed anew. It
    is built aside and renamed into place whole. ``progress(done, total)`` is called after each row.
    """
    if mesh.num_verts == 0:
        raise MeshError("a mesh without vertices has no distances")
    path = Path(folder) / f"geodesics-{method}-{_key(mesh)}.npy"
    header = _npy_header(mesh.num_verts)
    if not _intact(path, header, 4 * mesh.num_verts**2):
        _build(path, header, mesh, method, progress)
    return np.memmap(path, dtype="<f4", mode="r", offset=len(header), shape=(mesh.num_verts, mesh.num_verts))


def _key(mesh: Mesh) -> str:
    digest = hashlib.sha256(f"{VERSION} {mesh.topology_hash()}".encode())
    digest.update(mesh.verts.astype("<f8").tobytes())
    return digest.hexdigest()[:32]


def _npy_header(num_verts: int) -> bytes:
    description = {"descr": "<f4", "fortran_order": False, "shape": (num_verts, num_verts)}
    header = BytesIO()
    np.lib.format.write_array_header_1_0(header, description)
    return header.getvalue()


def _intact(path: Path, header: bytes, num_bytes: int) -> bool:
    if not path.is_file() or path.stat().st_size != len(header) + num_bytes + DIGEST_BYTES:
        return False
    digest = hashlib.sha256(header)
    with path.open("rb") as file:
        if file.read(len(header)) != header:
            return False
        for start in range(0, num_bytes, BLOCK_BYTES):
            digest.update(file.read(min(BLOCK_BYTES, num_bytes - start)))
        return file.read() == digest.digest()


def _build(path: Path, header: bytes, mesh: Mesh, method: Method, progress: Callable[[int, int], None] | None) -> None:
    """Rows are written one after another, not through a memory map: there a full disk would kill the process."""
    solver, digest = DistanceSolver(mesh, method), hashlib.sha256(header)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with aside.open("xb") as file:
            file.write(header)
            for i in range(mesh.num_verts):
                data = solver.row(i).astype("<f4").tobytes()
                digest.update(data)
                file.write(data)
                if progress is not None:
                    progress(i + 1, mesh.num_verts)
            file.write(digest.digest())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
