"""What ``geoskip apply`` can do, as functions of files: all inputs are checked before the first output is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from geoskip.shapes import Float
from geoskip.training.inference.classifying import ImageClassifier
from geoskip.training.inference.coding import MeshCoder, interpolated, verts_of
from geoskip.training.inference.files import (
    Outputs,
    array_bytes,
    code_bytes,
    is_mesh,
    mesh_bytes,
    mesh_suffix,
    read_codes,
    read_images,
    read_meshes,
    read_values,
)
from geoskip.training.inference.matching import Matcher
from geoskip.training.pretrained import Trained


@dataclass(frozen=True)
class Applied:
    """Files that were written, and a line on each input: its name and what there is to say about it."""

    written: list[Path]
    told: list[tuple[str, str]]


def reconstruct(trained: Trained, paths: Sequence[Path], outputs: Outputs, suffix: str | None = None) -> Applied:
    """Each mesh through the autoencoder and back, with its mean error in millimetres."""
    coder = MeshCoder(trained)
    true = _verts(coder, paths)
    places = [outputs.claim(path.stem + mesh_suffix(path, suffix), str(path)) for path in paths]
    found = coder.reconstruct(true)
    errors = (found - true).norm(dim=-1).mean(-1) * coder.unit_mm
    files = ((place, mesh_bytes(mesh, place.suffix)) for place, mesh in zip(places, coder.meshes(found), strict=True))
    told = [(str(path), f"mean error {error:.3f} mm") for path, error in zip(paths, errors.tolist(), strict=True)]
    return Applied(outputs.write(files), told)


def encode(trained: Trained, paths: Sequence[Path], outputs: Outputs, suffix: str = ".npy") -> Applied:
    """Each mesh to a file with its latent code."""
    coder = MeshCoder(trained)
    true = _verts(coder, paths)
    places = [outputs.claim(path.stem + suffix, str(path)) for path in paths]
    codes = coder.encode(true)
    items = zip(places, codes, paths, strict=True)
    written = outputs.write((place, code_bytes(code, suffix, {"mesh": path.name})) for place, code, path in items)
    return Applied(written, [(str(path), f"{coder.latent} numbers") for path in paths])


def decode(trained: Trained, paths: Sequence[Path], outputs: Outputs, suffix: str | None = None) -> Applied:
    """Each file of latent codes to a mesh, or a numbered mesh for each of its codes."""
    coder = MeshCoder(trained)
    codes = [read_codes(path, coder.latent) for path in paths]
    ending = mesh_suffix(Path("mesh.ply"), suffix)
    places = []
    for path, some in zip(paths, codes, strict=True):
        names = [path.stem] if len(some) == 1 else [f"{path.stem}-{number:03d}" for number in range(len(some))]
        places += [outputs.claim(name + ending, str(path)) for name in names]
    meshes = coder.meshes(coder.decode(torch.cat(codes)))
    written = outputs.write((place, mesh_bytes(mesh, ending)) for place, mesh in zip(places, meshes, strict=True))
    counts = ["1 code" if len(some) == 1 else f"{len(some)} codes" for some in codes]
    return Applied(written, [(str(path), count) for path, count in zip(paths, counts, strict=True)])


def interpolate(
    trained: Trained, paths: Sequence[Path], outputs: Outputs, steps: int = 8, suffix: str | None = None
) -> Applied:
    """Meshes on the straight line between the codes of two meshes, or between two codes."""
    if len(paths) != 2:
        raise ValueError(f"interpolation is between two files, meshes or latent codes, got {len(paths)}")
    coder = MeshCoder(trained)
    first, last = (_code(coder, path) for path in paths)
    ending, stem = mesh_suffix(paths[0], suffix), f"{paths[0].stem}-to-{paths[1].stem}"
    codes = interpolated(first, last, steps)
    places = [outputs.claim(f"{stem}-{number:03d}{ending}", str(paths[0])) for number in range(steps)]
    meshes = coder.meshes(coder.decode(codes))
    written = outputs.write((place, mesh_bytes(mesh, ending)) for place, mesh in zip(places, meshes, strict=True))
    return Applied(written, [(f"{paths[0]} to {paths[1]}", f"{steps} meshes")])


def transfer(trained: Trained, paths: Sequence[Path], outputs: Outputs, labels: Path | None = None) -> Applied:
    """The target vertex of each vertex of each mesh, and, given ``labels`` of the target's vertices, the mesh's."""
    matcher = Matcher(trained)
    values = None if labels is None else read_values(labels)
    if values is not None:
        matcher.check_values(values, str(labels))
    meshes = read_meshes(paths)
    matches = [outputs.claim(f"{path.stem}.matches.npy", str(path)) for path in paths]
    carried = [outputs.claim(f"{path.stem}.labels.npy", str(path)) for path in paths if values is not None]
    written = []
    for number, mesh in enumerate(meshes):
        matched = matcher.match(mesh)
        written += outputs.write([(matches[number], array_bytes(matched))])
        if values is not None:
            written += outputs.write([(carried[number], array_bytes(values[matched]))])
    told = [(str(p), f"{mesh.num_verts} vertices matched") for p, mesh in zip(paths, meshes, strict=True)]
    return Applied(written, told)


def classify(trained: Trained, paths: Sequence[Path], outputs: Outputs, size: tuple[int, int] | None = None) -> Applied:
    """The class of each image and the probability of each class.

    Images are scaled to ``size`` (height, width), or to that of the training images where the configuration tells it.
    """
    classifier = ImageClassifier(trained)
    images = read_images(paths, size or classifier.image_size, colour=classifier.in_channels == 3)
    places = [outputs.claim(f"{path.stem}.classes.json", str(path)) for path in paths]
    likely = classifier.classify(images)
    best = [classifier.class_names[int(row.argmax())] for row in likely]
    entries = (
        {
            "image": path.name,
            "class": name,
            "probabilities": dict(zip(classifier.class_names, row.tolist(), strict=True)),
        }
        for path, name, row in zip(paths, best, likely, strict=True)
    )
    files = (
        (place, (json.dumps(entry, indent=1) + "\n").encode()) for place, entry in zip(places, entries, strict=True)
    )
    written = outputs.write(files)
    told = [f"{name} ({100 * float(row.max()):.0f} %)" for name, row in zip(best, likely, strict=True)]
    return Applied(written, list(zip(map(str, paths), told, strict=True)))


def _verts(coder: MeshCoder, paths: Sequence[Path]) -> Float[Tensor, "meshes vertices 3"]:
    meshes = read_meshes(paths)
    for path, mesh in zip(paths, meshes, strict=True):
        coder.check(mesh, str(path))
    return verts_of(meshes)


def _code(coder: MeshCoder, path: Path) -> Float[Tensor, " latent"]:
    if is_mesh(path):
        return coder.encode(_verts(coder, [path]))[0]
    codes = read_codes(path, coder.latent)
    if len(codes) > 1:
        raise ValueError(f"{path}: {len(codes)} codes; interpolation is between one and another")
    return codes[0]
