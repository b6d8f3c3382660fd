"""A user's own meshes: a folder becomes a reconstruction set or a correspondence set.

(Images become graphs by :mod:`geoskip.data.images`, a PyTorch Geometric dataset by :mod:`geoskip.data.graph_list`.)
"""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from geoskip.data.cache import fingerprint
from geoskip.data.correspondence_set import CorrespondenceSet
from geoskip.data.mesh_family import read_family
from geoskip.data.mesh_set import MeshSet, StoredShapes
from geoskip.data.split import Split
from geoskip.meshes.formats import PARSERS, read_mesh
from geoskip.meshes.mesh import Mesh, MeshError
from geoskip.records.reading import read_npy, read_text

MESH = re.compile(r"((?:[^/.][^/]*/)*[^/.][^/]*\.(?:ply|obj|off|stl|gltf|glb))", re.IGNORECASE)
TARGET = "target"


def mesh_folder(
    place: str | Path,
    *,
    unit_mm: float,
    test: Sequence[str] | None = None,
    template: str | Path | None = None,
    cache: Path | None = None,
) -> MeshSet:
    """Meshes of one connectivity, in a folder (and its subfolders), zip or tar, as a reconstruction set.

    unit_mm: millimetres per unit of the files: 1000 for metres, 1 for millimetres.
    test: names (paths in the folder) of the items for the test; otherwise the first of every ten, in sorted order.
    template: a mesh of the same connectivity at rest, outside ``place``; otherwise the first item.
    """
    family = read_family(Path(place), MESH, "meshes", cache)
    rest = family.mesh(0) if template is None else read_mesh(template)
    if rest.topology_hash() != family.mesh(0).topology_hash():
        raise MeshError(f"{template}: another connectivity than the meshes of {place}")
    split = Split.blocks(len(family.names), 10, 1) if test is None else Split.of_names(family.names, test)
    content = fingerprint(np.array(family.content), rest.verts)
    return MeshSet(rest, StoredShapes(family.verts), family.names, split, unit_mm, content)


def correspondence_folder(
    folder: str | Path, *, unit_mm: float, test: Sequence[str] | None = None
) -> CorrespondenceSet:
    """Meshes of any connectivity in a folder, each with the file of its correspondences, as a correspondence set.

    ``target.ply`` (or another mesh format) is the mesh whose vertices are the classes. Beside each other mesh, say
    ``a.ply``, lies ``a.txt``, or ``a.npy``: for each vertex of the mesh, in order, the number (from 0) of the target's
    vertex that it corresponds to, or -1. ``unit_mm`` and ``test`` as for :func:`mesh_folder`.
    """
    folder = Path(folder)
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in PARSERS)
    targets = [path for path in paths if path.stem == TARGET]
    items = [path for path in paths if path.stem != TARGET]
    if len(targets) != 1 or not items:
        raise MeshError(f"{folder}: needs one {TARGET}.ply and at least one other mesh")
    meshes = tuple(read_mesh(path) for path in items)
    labels = tuple(_labels(path, mesh) for path, mesh in zip(items, meshes, strict=True))
    names = tuple(path.name for path in items)
    split = Split.blocks(len(names), 10, 1) if test is None else Split.of_names(names, test)
    target = read_mesh(targets[0])
    arrays = [array for mesh in (target, *meshes) for array in (mesh.verts, mesh.faces)]
    content = fingerprint(*arrays, *(numbers.numpy() for numbers in labels), np.array(names))
    return CorrespondenceSet(target, meshes, labels, names, split, unit_mm, content)


def _labels(path: Path, mesh: Mesh) -> Tensor:
    text, binary = path.with_suffix(".txt"), path.with_suffix(".npy")
    chosen = text if text.is_file() else binary
    if not chosen.is_file():
        raise MeshError(f"{path}: its correspondences, {text.name} or {binary.name}, are not there")
    try:
        numbers = np.array(read_text(text).split(), dtype=np.int64) if chosen is text else read_npy(binary)
    except (OSError, ValueError, OverflowError) as error:
        raise MeshError(f"{chosen}: not a list of whole numbers: {error}") from error
    if numbers.shape != (mesh.num_vertices,) or numbers.dtype.kind not in "iu":
        raise MeshError(f"{chosen}: {mesh.num_vertices} whole numbers are needed, not {numbers.dtype} {numbers.shape}")
    return torch.from_numpy(numbers.astype(np.int64))
