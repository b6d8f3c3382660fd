"""What ``geoskip apply`` can do, as functions of files.

All inputs are checked before the first output is written. Files that cannot be used raise
:class:`~geoskip.inference.files.BadFiles` together; with ``skip_bad`` they are left out instead.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from geoskip.data.image_sets import read_image
from geoskip.inference.files import (
    Inputs,
    Outputs,
    array_bytes,
    code_bytes,
    is_mesh,
    mesh_bytes,
    mesh_suffix,
    read_codes,
    read_user_mesh,
    read_values,
)
from geoskip.inference.predictors import ImageClassifier, Matcher, MeshCoder, interpolated, verts_of
from geoskip.meshes import Mesh
from geoskip.registry import import_object, unknown_name
from geoskip.shapes import Float, Shaped
from geoskip.training.tasks import find_task
from geoskip.training.trained import Trained


@dataclass(frozen=True)
class Applied:
    """Files that were written, a line on each input (its name and what there is to say about it), and what is wrong
    with those that were left out."""

    written: list[Path]
    messages: list[tuple[str, str]]
    skipped: Sequence[str] = ()


def find_action(trained: Trained, name: str | None = None) -> Callable[..., Applied]:
    """What ``geoskip apply --do NAME`` does with a model: an action of its task, by default the first one."""
    task = trained.config.task
    actions = find_task(task).actions
    if not actions:
        raise ValueError(f"{trained.folder}: models of {task} cannot be applied to files")
    if name is not None and name not in actions:
        raise ValueError(f"--do: {unknown_name(name, list(actions))} for a model of {task}")
    action = actions[name or next(iter(actions))]
    return import_object(action) if isinstance(action, str) else action


def reconstruct(
    trained: Trained, paths: Sequence[Path], outputs: Outputs, mesh_format: str | None = None, skip_bad: bool = False
) -> Applied:
    """Each mesh through the autoencoder and back, with its mean error in millimetres."""
    coder, inputs = MeshCoder(trained), Inputs(paths, skip_bad)
    true = _verts(coder, inputs)
    paths = inputs.paths
    targets = [outputs.claim(path.stem + mesh_suffix(path, mesh_format), str(path)) for path in paths]
    reconstructed = coder.reconstruct(true)
    errors = (reconstructed - true).norm(dim=-1).mean(-1) * coder.unit_mm
    files = (
        (target, mesh_bytes(mesh, target.suffix))
        for target, mesh in zip(targets, coder.meshes(reconstructed), strict=True)
    )
    messages = [(str(path), f"mean error {error:.3f} mm") for path, error in zip(paths, errors.tolist(), strict=True)]
    return Applied(outputs.write(files), messages, inputs.skipped)


def encode(
    trained: Trained, paths: Sequence[Path], outputs: Outputs, code_format: str = ".npy", skip_bad: bool = False
) -> Applied:
    """Each mesh to a file with its latent code."""
    coder, inputs = MeshCoder(trained), Inputs(paths, skip_bad)
    true = _verts(coder, inputs)
    paths = inputs.paths
    targets = [outputs.claim(path.stem + code_format, str(path)) for path in paths]
    codes = coder.encode(true)
    items = zip(targets, codes, paths, strict=True)
    written = outputs.write(
        (target, code_bytes(code, code_format, {"mesh": path.name})) for target, code, path in items
    )
    return Applied(written, [(str(path), f"{coder.latent} numbers") for path in paths], inputs.skipped)


def decode(
    trained: Trained, paths: Sequence[Path], outputs: Outputs, mesh_format: str | None = None, skip_bad: bool = False
) -> Applied:
    """Each file of latent codes to a mesh, or a numbered mesh for each of its codes."""
    coder, inputs = MeshCoder(trained), Inputs(paths, skip_bad)
    codes = inputs.each(lambda path: read_codes(path, coder.latent))
    paths = inputs.paths
    ending = mesh_suffix(Path("mesh.ply"), mesh_format)
    targets = []
    for path, batch in zip(paths, codes, strict=True):
        names = [path.stem] if len(batch) == 1 else [f"{path.stem}-{number:03d}" for number in range(len(batch))]
        targets += [outputs.claim(name + ending, str(path)) for name in names]
    meshes = coder.meshes(coder.decode(torch.cat(codes)))
    written = outputs.write((target, mesh_bytes(mesh, ending)) for target, mesh in zip(targets, meshes, strict=True))
    counts = ["1 code" if len(batch) == 1 else f"{len(batch)} codes" for batch in codes]
    messages = [(str(path), count) for path, count in zip(paths, counts, strict=True)]
    return Applied(written, messages, inputs.skipped)


def interpolate(
    trained: Trained, paths: Sequence[Path], outputs: Outputs, steps: int = 8, mesh_format: str | None = None
) -> Applied:
    """Meshes on the straight line between the codes of two meshes, or between two codes."""
    if len(paths) != 2:
        raise ValueError(f"interpolation is between two files, meshes or latent codes, got {len(paths)}")
    coder = MeshCoder(trained)
    first, last = Inputs(paths).each(lambda path: _code(coder, path))
    ending, stem = mesh_suffix(paths[0], mesh_format), f"{paths[0].stem}-to-{paths[1].stem}"
    codes = interpolated(first, last, steps)
    targets = [outputs.claim(f"{stem}-{number:03d}{ending}", str(paths[0])) for number in range(steps)]
    meshes = coder.meshes(coder.decode(codes))
    written = outputs.write((target, mesh_bytes(mesh, ending)) for target, mesh in zip(targets, meshes, strict=True))
    return Applied(written, [(f"{paths[0]} to {paths[1]}", f"{steps} meshes")])


def transfer(
    trained: Trained, paths: Sequence[Path], outputs: Outputs, labels: Path | None = None, skip_bad: bool = False
) -> Applied:
    """The target vertex of each vertex of each mesh, and, given ``labels`` of the target's vertices, the mesh's."""
    matcher, inputs = Matcher(trained), Inputs(paths, skip_bad)
    values = None if labels is None else read_values(labels)
    if values is not None:
        matcher.check_values(values, str(labels))
    meshes = inputs.each(read_user_mesh)
    paths = inputs.paths
    matches = [outputs.claim(f"{path.stem}.matches.npy", str(path)) for path in paths]
    carried = [outputs.claim(f"{path.stem}.labels.npy", str(path)) for path in paths if values is not None]
    written = []
    for number, mesh in enumerate(meshes):
        matched = matcher.match(mesh)
        written += outputs.write([(matches[number], array_bytes(matched))])
        if values is not None:
            written += outputs.write([(carried[number], array_bytes(values[matched]))])
    messages = [(str(p), f"{mesh.num_vertices} vertices matched") for p, mesh in zip(paths, meshes, strict=True)]
    return Applied(written, messages, inputs.skipped)


def classify(
    trained: Trained,
    paths: Sequence[Path],
    outputs: Outputs,
    size: tuple[int, int] | None = None,
    skip_bad: bool = False,
) -> Applied:
    """The class of each image and the probability of each class.

    Images are scaled to ``size`` (height, width), or to that of the training images where the configuration tells it.
    """
    classifier, inputs = ImageClassifier(trained), Inputs(paths, skip_bad)
    images = _images(inputs, size or classifier.image_size, colour=classifier.in_channels == 3)
    paths = inputs.paths
    targets = [outputs.claim(f"{path.stem}.classes.json", str(path)) for path in paths]
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
        (target, (json.dumps(entry, indent=1) + "\n").encode()) for target, entry in zip(targets, entries, strict=True)
    )
    written = outputs.write(files)
    messages = [f"{name} ({100 * float(row.max()):.0f} %)" for name, row in zip(best, likely, strict=True)]
    return Applied(written, list(zip(map(str, paths), messages, strict=True)), inputs.skipped)


def _verts(coder: MeshCoder, inputs: Inputs) -> Float[Tensor, "meshes vertices 3"]:
    def read(path: Path) -> Mesh:
        mesh = read_user_mesh(path)
        coder.check(mesh, str(path))
        return mesh

    return verts_of(inputs.each(read))


def _images(
    inputs: Inputs, size: tuple[int, int] | None, colour: bool
) -> Shaped[np.ndarray, "images height width *channels"]:
    """Images of one size: that of most of them, where none is given."""
    images = dict(zip(inputs.paths, inputs.each(lambda path: read_image(path, size, colour)), strict=True))
    usual = Counter(image.shape for image in images.values()).most_common(1)[0][0]
    like = next(path for path, image in images.items() if image.shape == usual)

    def checked(path: Path) -> np.ndarray:
        if images[path].shape != usual:
            raise ValueError(f"{path}: {images[path].shape[:2]} pixels, and {like} has {usual[:2]}; give --size")
        return images[path]

    return np.stack(inputs.each(checked))


def _code(coder: MeshCoder, path: Path) -> Float[Tensor, " latent"]:
    if is_mesh(path):
        return coder.encode(_verts(coder, Inputs([path])))[0]
    codes = read_codes(path, coder.latent)
    if len(codes) > 1:
        raise ValueError(f"{path}: {len(codes)} codes; interpolation is between one and another")
    return codes[0]
