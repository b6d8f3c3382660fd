"""What ``geoskip apply`` can do, as functions of files.

All inputs are checked before the first output is written. Files that cannot be used raise
:class:`~geoskip.inference.user_files.BadFiles` together; with ``skip_bad`` they are left out instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from geoskip.data.image_sets import read_image
from geoskip.inference.predictors import ImageClassifier, Matcher, MeshCoder, verts_of
from geoskip.inference.user_files import (
    Inputs,
    Outputs,
    array_bytes,
    is_mesh,
    json_bytes,
    mesh_suffix,
    output_stems,
    read_codes,
    read_user_mesh,
    read_values,
)
from geoskip.meshes import Mesh
from geoskip.meshes.formats import WRITERS
from geoskip.registry import import_object, unknown_name
from geoskip.shapes import Float, Shaped
from geoskip.training.tasks import find_task
from geoskip.training.trained import Trained


@dataclass(frozen=True)
class ActionResult:
    """What an action did.

    written: the files.
    messages: for each input, its name and a message.
    skipped: what is wrong with the inputs that were skipped.
    """

    written: list[Path]
    messages: list[tuple[str, str]]
    skipped: Sequence[str] = ()


def find_action(trained: Trained, name: str | None = None) -> Callable[..., ActionResult]:
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
) -> ActionResult:
    """Each mesh through the autoencoder and back, with its mean error in millimeters."""
    coder, inputs = MeshCoder(trained), Inputs(paths, skip_bad)
    true, paths = _verts(coder, inputs), inputs.paths
    stems = output_stems(paths)
    targets = [outputs.claim(stems[path] + mesh_suffix(path, mesh_format), str(path)) for path in paths]
    reconstructed = coder.reconstruct(true)
    errors = (reconstructed - true).norm(dim=-1).mean(-1) * coder.unit_mm
    messages = [(str(path), f"mean error {error:.3f} mm") for path, error in zip(paths, errors.tolist(), strict=True)]
    return ActionResult(_write_meshes(outputs, targets, coder.meshes(reconstructed)), messages, inputs.skipped)


def encode(
    trained: Trained, paths: Sequence[Path], outputs: Outputs, code_format: str = ".npy", skip_bad: bool = False
) -> ActionResult:
    """Each mesh to a file with its latent code."""
    coder, inputs = MeshCoder(trained), Inputs(paths, skip_bad)
    true, paths = _verts(coder, inputs), inputs.paths
    stems = output_stems(paths)
    targets = [outputs.claim(stems[path] + code_format, str(path)) for path in paths]

    def contents(path: Path, code: Tensor) -> bytes:
        if code_format == ".json":
            return json_bytes({"mesh": path.name, "latent": code.tolist()})
        return array_bytes(code.numpy())

    items = zip(targets, paths, coder.encode(true), strict=True)
    written = outputs.write((target, contents(path, code)) for target, path, code in items)
    return ActionResult(written, [(str(path), f"{coder.latent} numbers") for path in paths], inputs.skipped)


def decode(
    trained: Trained, paths: Sequence[Path], outputs: Outputs, mesh_format: str | None = None, skip_bad: bool = False
) -> ActionResult:
    """Each file of latent codes to a mesh, or a numbered mesh for each of its codes."""
    coder, inputs = MeshCoder(trained), Inputs(paths, skip_bad)
    codes = inputs.each(lambda path: read_codes(path, coder.latent))
    suffix = mesh_suffix(Path("mesh.ply"), mesh_format)
    targets, messages = [], []
    stems = output_stems(inputs.paths)
    for path, batch in zip(inputs.paths, codes, strict=True):
        stem = stems[path]
        names = [stem] if len(batch) == 1 else [f"{stem}-{number:03d}" for number in range(len(batch))]
        targets += [outputs.claim(name + suffix, str(path)) for name in names]
        messages.append((str(path), "1 code" if len(batch) == 1 else f"{len(batch)} codes"))
    meshes = coder.meshes(coder.decode(torch.cat(codes)))
    return ActionResult(_write_meshes(outputs, targets, meshes), messages, inputs.skipped)


def interpolate(
    trained: Trained, paths: Sequence[Path], outputs: Outputs, steps: int = 8, mesh_format: str | None = None
) -> ActionResult:
    """Meshes on the straight line between the codes of two meshes, or between two codes."""
    if len(paths) != 2:
        raise ValueError(f"interpolate: expected two files, meshes or latent codes, got {len(paths)}")
    if steps < 2:
        raise ValueError(f"steps: expected 2 or more, since both ends count, got {steps}")
    coder = MeshCoder(trained)
    first, last = Inputs(paths).each(lambda path: _code(coder, path))
    codes = torch.stack([first.lerp(last, number / (steps - 1)) for number in range(steps)])
    suffix, stem = mesh_suffix(paths[0], mesh_format), f"{paths[0].stem}-to-{paths[1].stem}"
    targets = [outputs.claim(f"{stem}-{number:03d}{suffix}", str(paths[0])) for number in range(steps)]
    written = _write_meshes(outputs, targets, coder.meshes(coder.decode(codes)))
    return ActionResult(written, [(f"{paths[0]} to {paths[1]}", f"{steps} meshes")])


def transfer(
    trained: Trained, paths: Sequence[Path], outputs: Outputs, labels: Path | None = None, skip_bad: bool = False
) -> ActionResult:
    """The target vertex of each vertex of each mesh, and, given ``labels`` of the target's vertices, the mesh's."""
    matcher, inputs = Matcher(trained), Inputs(paths, skip_bad)
    values = None if labels is None else read_values(labels)
    if values is not None:
        matcher.check_values(values, str(labels))
    meshes = inputs.each(lambda path: _checked(matcher, path))
    paths = inputs.paths
    stems = output_stems(paths)
    matches = [outputs.claim(f"{stems[path]}.matches.npy", str(path)) for path in paths]
    carried = [outputs.claim(f"{stems[path]}.labels.npy", str(path)) for path in paths if values is not None]
    written = []
    for number, mesh in enumerate(meshes):
        matched = matcher.match(mesh)
        written += outputs.write([(matches[number], array_bytes(matched))])
        if values is not None:
            written += outputs.write([(carried[number], array_bytes(values[matched]))])
    messages = [(str(p), f"{mesh.num_vertices} vertices matched") for p, mesh in zip(paths, meshes, strict=True)]
    return ActionResult(written, messages, inputs.skipped)


def classify(
    trained: Trained,
    paths: Sequence[Path],
    outputs: Outputs,
    size: tuple[int, int] | None = None,
    skip_bad: bool = False,
) -> ActionResult:
    """The class of each image and the probability of each class.

    Images are scaled to ``size`` (height, width), or to that of the training images where the configuration tells it.
    """
    classifier, inputs = ImageClassifier(trained), Inputs(paths, skip_bad)
    images = _images(inputs, size or classifier.image_size, color=classifier.in_channels == 3)
    paths = inputs.paths
    stems = output_stems(paths)
    targets = [outputs.claim(f"{stems[path]}.classes.json", str(path)) for path in paths]
    files, messages = [], []
    for path, target, row in zip(paths, targets, classifier.classify(images), strict=True):
        probabilities = dict(zip(classifier.class_names, row.tolist(), strict=True))
        name = classifier.class_names[int(row.argmax())]
        files.append((target, json_bytes({"image": path.name, "class": name, "probabilities": probabilities})))
        messages.append((str(path), f"{name} ({100 * float(row.max()):.0f} %)"))
    return ActionResult(outputs.write(files), messages, inputs.skipped)


def _write_meshes(outputs: Outputs, targets: Sequence[Path], meshes: Sequence[Mesh]) -> list[Path]:
    return outputs.write((path, WRITERS[path.suffix](mesh)) for path, mesh in zip(targets, meshes, strict=True))


def _verts(coder: MeshCoder, inputs: Inputs) -> Float[Tensor, "meshes vertices 3"]:
    return verts_of(inputs.each(lambda path: _checked(coder, path)))


def _checked(model: MeshCoder | Matcher, path: Path) -> Mesh:
    mesh = read_user_mesh(path)
    model.check(mesh, str(path))
    return mesh


def _images(
    inputs: Inputs, size: tuple[int, int] | None, color: bool
) -> Shaped[np.ndarray, "images height width *channels"]:
    """Images of one size: that of most of them, where none is given."""
    images = dict(zip(inputs.paths, inputs.each(lambda path: read_image(path, size, color)), strict=True))
    usual = Counter(image.shape for image in images.values()).most_common(1)[0][0]
    like = next(path for path, image in images.items() if image.shape == usual)

    def checked(path: Path) -> np.ndarray:
        if images[path].shape != usual:
            raise ValueError(
                f"{path}: {images[path].shape[:2]} pixels, but {like} has {usual[:2]}; scale them with --size"
            )
        return images[path]

    return np.stack(inputs.each(checked))


def _code(coder: MeshCoder, path: Path) -> Float[Tensor, " latent"]:
    if is_mesh(path):
        return coder.encode(_verts(coder, Inputs([path])))[0]
    codes = read_codes(path, coder.latent)
    if len(codes) > 1:
        raise ValueError(f"{path}: {len(codes)} codes; interpolation needs one per file")
    return codes[0]
