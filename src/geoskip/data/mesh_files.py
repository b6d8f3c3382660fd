"""Sets of meshes from files: CoMA, FAUST, and your own folders or archives.

CoMA: 20,466 registered faces of 12 people in 12 extreme expressions (Ranjan et al., ECCV 2018), in the owners'
``COMA_data.zip`` or the folder it unpacks to: ``<subject>/<expression>/<frame>.ply``, 5,023 vertices each, in meters.
Splits, over the listing sorted by name:
- interpolation: of every 100 consecutive frames the first 10 are the test, as in the code of Ranjan et al. and of Gong
  et al.; theirs lists files in the order of the file system, so that their test set differs between machines.
- an expression: its sequences of all people are the test, all others are for training (extrapolation).

FAUST: 100 registered bodies, 10 people in 10 poses (Bogo et al., CVPR 2014), in the owners' ``MPI-FAUST.zip`` or the
folder it unpacks to: ``tr_reg_000.ply`` to ``tr_reg_099.ply``, 6,890 vertices each, in meters, which correspond by
number. The first 80 are for training and the last 20 for the test, as in Monti et al. (CVPR 2017). The vertices of the
first one are the classes, and geodesic errors are measured on it (:func:`geoskip.data.geodesics`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from statistics import median

import numpy as np
import torch
from torch import Tensor

from geoskip.data.archives import ArchiveError, list_files, read_files
from geoskip.data.cache import CacheEntry, cached, fingerprint, fingerprint_files
from geoskip.data.catalog import COMA, FAUST
from geoskip.data.mesh_sets import CorrespondenceSet, MeshSet, Split, StoredShapes, check_rounding, check_size
from geoskip.data.people import EXPRESSIONS
from geoskip.data.progress_bar import progress_bar
from geoskip.meshes.formats import parse_mesh, read_mesh
from geoskip.meshes.mesh import Mesh, MeshError
from geoskip.records.reading import read_npy, read_text

log = logging.getLogger(__name__)

# Part of the cache key: raise it when the same files give other arrays.
VERSION = 2
UNIT_MM = 1000.0
COMA_FRAMES = 20_466
COMA_FRAME = re.compile(rf"(?:.*/)?([^/]+/(?:{'|'.join(EXPRESSIONS)})/[^/.][^/]*\.ply)")
FAUST_MESHES, FAUST_TRAIN = 100, 80
FAUST_MESH = re.compile(r"(?:.*/)?(tr_reg_\d{3}\.ply)")
ANY_MESH = re.compile(r"((?:[^/.][^/]*/)*[^/.][^/]*\.(?:ply|obj|off|stl|gltf|glb))", re.IGNORECASE)
OWN, TARGET = "meshes", "target"


def coma(path: str | Path | None = None, split: str = "interpolation", *, cache: Path | None = None) -> MeshSet:
    """CoMA, split by ``"interpolation"`` or with one of its expressions as the test.

    ``path`` is the archive or the folder; by default it is looked for in the data folder. The template is the first
    frame of the sorted listing: the beginning of a sequence, and so nearly a neutral face.
    """
    if split != "interpolation" and split not in EXPRESSIONS:
        raise ValueError(f"split: expected interpolation or one of {', '.join(EXPRESSIONS)}, got {split!r}")
    frames = read_meshes(COMA.find(path), COMA_FRAME, "coma", UNIT_MM, cache)
    if len(frames) != COMA_FRAMES:
        log.warning("coma: %s of %s frames, so errors are not those of other papers", len(frames), COMA_FRAMES)
    return replace(frames, split=Split.coma(frames.names, split))


def faust(path: str | Path | None = None, *, cache: Path | None = None) -> CorrespondenceSet:
    """FAUST; ``path`` is the archive or the folder, by default it is looked for in the data folder."""
    path = FAUST.find(path)
    bodies = read_meshes(path, FAUST_MESH, "faust", UNIT_MM, cache)
    names = tuple(f"tr_reg_{number:03d}.ply" for number in range(FAUST_MESHES))
    if missing := sorted(set(names) - set(bodies.names)):
        raise ArchiveError(
            f"{path}: {len(missing)} of {FAUST_MESHES} registrations are missing, the first {missing[0]}"
        )
    meshes = tuple(bodies.mesh(item) for item in range(FAUST_MESHES))
    labels = (torch.arange(meshes[0].num_vertices),) * FAUST_MESHES
    split = Split.leading(FAUST_MESHES, FAUST_TRAIN)
    return CorrespondenceSet(meshes[0], meshes, labels, names, split, UNIT_MM, bodies.content)


def mesh_folder(
    path: str | Path,
    *,
    unit_mm: float,
    test: str | Sequence[str] | None = None,
    template: str | Path | None = None,
    cache: Path | None = None,
) -> MeshSet:
    """Meshes of one connectivity, in a folder (and its subfolders), zip or tar, as a reconstruction set.

    unit_mm: millimeters per unit of the files: 1000 for meters, 1 for millimeters.
    test: the items for the test: names (paths in the folder), subfolders, or patterns such as ``"*_s03_*"``; by default
        the first of every ten, in sorted order.
    template: a mesh of the same connectivity at rest, outside ``path``; by default the first item.
    """
    meshes = read_meshes(Path(path), ANY_MESH, OWN, unit_mm, cache)
    rest = meshes.template if template is None else read_mesh(template)
    if rest.topology_hash() != meshes.template.topology_hash():
        raise MeshError(
            f"{template}: another connectivity than the meshes of {path}: {rest.compared_with(meshes.template)}; "
            "its faces and vertex order must be theirs"
        )
    content = fingerprint(np.array(meshes.content), rest.verts)
    return replace(meshes, template=rest, split=_split(meshes.names, test), content=content)


def correspondence_folder(
    folder: str | Path, *, unit_mm: float, test: str | Sequence[str] | None = None
) -> CorrespondenceSet:
    """Meshes of any connectivity in a folder, each with a file of its correspondences, as a correspondence set.

    ``target.ply`` (or another mesh format) is the mesh whose vertices are the classes. Next to each other mesh, such as
    ``a.ply``, there is ``a.txt`` or ``a.npy``: for each vertex of the mesh, in order, the number (from 0) of the
    target's vertex that it corresponds to, or -1. ``unit_mm`` and ``test`` as in :func:`mesh_folder`.
    """
    files = list_files(Path(folder), ANY_MESH)
    targets = [path for name, path in files.items() if PurePosixPath(name).stem == TARGET]
    items = {name: path for name, path in files.items() if path not in targets}
    if len(targets) != 1 or not items:
        raise MeshError(f"{folder}: needs one {TARGET}.ply and at least one other mesh")
    target, meshes = read_mesh(targets[0]), tuple(map(read_mesh, items.values()))
    labels = tuple(_read_labels(path, mesh) for path, mesh in zip(items.values(), meshes, strict=True))
    names = tuple(items)
    for path, mesh in zip([*targets, *items.values()], [target, *meshes], strict=True):
        check_rounding(str(path), mesh)
        check_size(str(path), mesh.radius(), target.radius(), targets[0].name)
    arrays = [array for mesh in (target, *meshes) for array in (mesh.verts, mesh.faces)]
    content = fingerprint(*arrays, *(numbers.numpy() for numbers in labels), np.array(names))
    return CorrespondenceSet(target, meshes, labels, names, _split(names, test), unit_mm, content)


def _split(names: tuple[str, ...], test: str | Sequence[str] | None) -> Split:
    if test is None:
        return Split.blocks(len(names), 10, 1)
    chosen: set[str] = set()
    for wanted in [test] if isinstance(test, str) else test:
        matching = {name for name in names if name.startswith(f"{wanted.rstrip('/')}/") or fnmatchcase(name, wanted)}
        matching |= {wanted} & set(names)  # a name may contain brackets
        if not matching:
            raise ValueError(f"test: {wanted} is not a file or folder of the set; names are such as {names[0]}")
        chosen |= matching
    return Split.by_mask(torch.tensor([name in chosen for name in names], dtype=torch.bool))


def _read_labels(path: Path, mesh: Mesh) -> Tensor:
    text, binary = path.with_suffix(".txt"), path.with_suffix(".npy")
    chosen = text if text.is_file() else binary
    if not chosen.is_file():
        raise MeshError(f"{path}: its file of correspondences, {text.name} or {binary.name}, is missing")
    try:
        numbers = np.array(read_text(text).split(), dtype=np.float64) if chosen is text else read_npy(binary)
    except (OSError, ValueError) as error:
        raise MeshError(f"{chosen}: not a list of whole numbers: {error!s:.100}") from error
    if numbers.shape != (mesh.num_vertices,):
        raise MeshError(f"{chosen}: {mesh.num_vertices} whole numbers are needed, one per vertex, not {numbers.shape}")
    if not ((np.trunc(numbers) == numbers) & (np.abs(numbers) < 2**53)).all():
        raise MeshError(f"{chosen}: not a list of whole numbers, one per vertex")
    return torch.from_numpy(numbers.astype(np.int64))


def read_meshes(source: Path, pattern: re.Pattern[str], kind: str, unit_mm: float, cache: Path | None) -> MeshSet:
    """The meshes in a folder, zip or tar whose path matches ``pattern``, sorted by name, all for training.

    The first group of ``pattern`` is the name of a mesh. All must have the same faces in the same order; the first mesh
    is the template. Reading thousands of files takes minutes, so the result is cached under ``kind`` and a hash of the
    files' contents, which takes seconds. ``content`` is the same wherever the files are.
    """
    files = _hash_files(source, pattern)
    key = {"version": VERSION, "wanted": pattern.pattern, "files": files}
    stored = cached(kind, key, lambda: _build_meshes(source, pattern, kind, files), root=cache)
    verts, names = torch.from_numpy(stored.arrays["verts"]), tuple(stored.meta["names"])
    template = Mesh(verts[0].double().numpy(), stored.arrays["faces"])
    everything = Split.leading(len(names), len(names))
    return MeshSet(template, StoredShapes(verts), names, everything, unit_mm, stored.meta["content"])


def _hash_files(source: Path, pattern: re.Pattern[str]) -> str:
    if not source.is_dir():
        return fingerprint_files([source], source.parent)
    return fingerprint_files(list_files(source, pattern).values(), source)


def _build_meshes(source: Path, pattern: re.Pattern[str], kind: str, files: str) -> CacheEntry:
    verts_by_name: dict[str, np.ndarray] = {}
    radii: dict[str, float] = {}
    first: tuple[str, Mesh] | None = None
    with progress_bar(f"meshes of {source.name}", None) as advance:
        for name, data in read_files(source, pattern):
            try:
                mesh = parse_mesh(data, PurePosixPath(name).suffix, log_polygons=first is None)
            except MeshError as error:
                raise MeshError(f"{source}: {name}: {error}") from error
            check_rounding(f"{source}: {name}", mesh)
            first = first or (name, mesh)
            same_faces = np.array_equal(mesh.faces, first[1].faces)
            if mesh.num_vertices != first[1].num_vertices or not same_faces:
                difference = mesh.compared_with(first[1])
                raise MeshError(f"{source}: {name} has another connectivity than {first[0]}: {difference}")
            verts_by_name[name], radii[name] = mesh.verts.astype(np.float32), mesh.radius()
            advance(1)
    if first is None:
        expected = "in .ply, .obj, .off, .stl, .gltf or .glb files" if kind == OWN else f"laid out as in {kind}"
        raise ArchiveError(f"{source}: has no meshes {expected}")
    names, faces = sorted(verts_by_name), first[1].faces
    stems: dict[PurePosixPath, str] = {}
    for name in names:
        if (other := stems.setdefault(PurePosixPath(name).with_suffix(""), name)) != name:
            raise MeshError(f"{source}: {other} and {name} are one mesh in two formats; keep one of them")
    usual = median(radii.values())
    for name in names:
        check_size(f"{source}: {name}", radii[name], usual, "most meshes of the set")
    verts = np.empty((len(names), *first[1].verts.shape), dtype=np.float32)
    for item, name in enumerate(names):
        verts[item] = verts_by_name.pop(name)
    if _hash_files(source, pattern) != files:
        raise ArchiveError(f"{source}: its files changed while they were read; try again when they are complete")
    content = fingerprint(verts, faces, np.array(names))
    return CacheEntry({"verts": verts, "faces": faces}, {"names": names, "content": content})
