"""Mesh files of one connectivity, out of an archive or a folder, as one array of positions."""

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from torch import Tensor

from geoskip.data.archives import ArchiveError, read_files
from geoskip.data.cache import cached, fingerprint, fingerprint_files
from geoskip.data.entries import Stored
from geoskip.data.progress import ProgressBar
from geoskip.meshes.formats import parse_mesh
from geoskip.meshes.mesh import Mesh, MeshError
from geoskip.shapes import Float, Int

VERSION = 2


@dataclass(frozen=True, eq=False)
class MeshFamily:
    """Positions of meshes that share their faces, in the sorted order of their names.

    content: a hash of the positions, faces and names, the same wherever the files lie.
    """

    faces: Int[np.ndarray, "faces 3"]
    verts: Float[Tensor, "items vertices 3"]
    names: tuple[str, ...]
    content: str = ""

    def mesh(self, item: int) -> Mesh:
        return Mesh(self.verts[item].double().numpy(), self.faces)


def read_family(place: Path, wanted: re.Pattern[str], kind: str, cache: Path | None = None) -> MeshFamily:
    """The meshes in a folder, zip or tar whose path matches ``wanted``; its first group is the name of the mesh.

    The faces must be the same, in the same order, in all of them. Reading thousands of files takes minutes, so the
    result is kept in the cache under ``kind`` and a hash of the files' contents, which takes seconds.
    """
    files = _fingerprint(place, wanted)
    key = {"version": VERSION, "wanted": wanted.pattern, "files": files}
    stored = cached(kind, key, lambda: _read(place, wanted, files), root=cache)
    verts = torch.from_numpy(stored.arrays["verts"])
    return MeshFamily(stored.arrays["faces"], verts, tuple(stored.meta["names"]), stored.meta["content"])


def _fingerprint(place: Path, wanted: re.Pattern[str]) -> str:
    if not place.is_dir():
        return fingerprint_files([place], place.parent)
    files = [path for path in place.rglob("*") if wanted.fullmatch(path.relative_to(place).as_posix())]
    return fingerprint_files(files, place)


def _read(place: Path, wanted: re.Pattern[str], files: str) -> Stored:
    found: dict[str, np.ndarray] = {}
    first, faces = "", np.zeros((0, 3), dtype=np.int64)
    with ProgressBar(f"meshes of {place.name}", None) as progress:
        for name, data in read_files(place, wanted):
            mesh = parse_named(place, name, data)
            if not found:
                first, faces = name, mesh.faces
            if len(mesh.verts) != len(next(iter(found.values()), mesh.verts)) or not np.array_equal(mesh.faces, faces):
                raise MeshError(f"{place}: {name} has another connectivity than {first}")
            found[name] = mesh.verts.astype(np.float32)
            progress.advance()
    if not found:
        raise ArchiveError(f"{place}: holds no meshes of the expected names ({wanted.pattern})")
    names = sorted(found)
    verts = np.empty((len(names), *found[first].shape), dtype=np.float32)
    for item, name in enumerate(names):
        verts[item] = found.pop(name)
    if _fingerprint(place, wanted) != files:
        raise ArchiveError(f"{place}: its files changed while they were read; start again when they are complete")
    return Stored({"verts": verts, "faces": faces}, {"names": names, "content": _content(verts, faces, names)})


def _content(verts: np.ndarray, faces: np.ndarray, names: list[str]) -> str:
    return fingerprint(verts, faces, np.array(names))


def parse_named(place: Path, name: str, data: bytes) -> Mesh:
    """The mesh in a file of ``place``; MeshError names both."""
    try:
        return parse_mesh(data, PurePosixPath(name).suffix)
    except MeshError as error:
        raise MeshError(f"{place}: {name}: {error}") from error
