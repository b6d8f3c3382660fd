"""Scenes as data of the page, and as still pictures for readers without WebGL."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from geoskip.records import CorrespondenceSamples, GraphSamples, MeshSamples
from geoskip.report.palette import colored, position_colors
from geoskip.report.picture_grids import PAPER_PCT, Shape, errors_mm, shape_pictures
from geoskip.report.pictures import image_grid, png_bytes
from geoskip.report.runs import TASK_DESCRIPTIONS
from geoskip.report.scenes import Kind, Scene, describe_item, saturation_mm
from geoskip.shapes import Float, Shaped

ACCURACY = TASK_DESCRIPTIONS["classification"].metrics[0]
TYPES = {"uint8": "u8", "int16": "i16", "uint16": "u16", "uint32": "u32"}


class Blobs:
    """The arrays of a page, deflated and in base64; equal arrays are stored once."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._numbers: dict[str, int] = {}

    @property
    def num_bytes(self) -> int:
        return sum(map(len, self._texts.values()))

    def add(self, array: Shaped[np.ndarray, ...]) -> dict[str, Any]:
        """Store an array; the result refers to it in the data of the page.

        The first bytes of all numbers come first, then the second bytes, and so on: the high bytes of small numbers
        are equal and deflate to almost nothing.
        """
        kind = TYPES[array.dtype.name]
        plain = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"))
        planes = plain.reshape(-1).view(np.uint8).reshape(-1, array.dtype.itemsize).T.tobytes()
        digest = hashlib.sha256(kind.encode() + planes).hexdigest()
        if digest not in self._texts:
            self._numbers[digest] = len(self._texts)
            self._texts[digest] = base64.b64encode(zlib.compress(planes, 9)).decode("ascii")
        return {"blob": self._numbers[digest], "type": kind}

    def indices(self, array: Shaped[np.ndarray, ...]) -> dict[str, Any]:
        """Store indices in 16 or 32 bits; -1 becomes the largest number."""
        small = array.size == 0 or array.max() < 2**16 - 1
        return self.add(array.astype(np.int64).astype(np.uint16 if small else np.uint32))

    def steps(self, array: Float[np.ndarray, ...], step: float = 0.0) -> dict[str, Any]:
        """Store numbers as 16-bit multiples of a step: the given step, or a larger one if they would not fit."""
        largest = float(np.abs(array).max()) if array.size else 0.0
        step = max(step, largest / 32767, 1e-30)
        return self.add(np.round(array / step).astype(np.int16)) | {"step": step}

    def html(self) -> str:
        return "\n".join(
            f'<script type="text/plain" id="blob-{number}">{text}</script>'
            for number, text in enumerate(self._texts.values())
        )


def embedded_meshes(scene: Scene[MeshSamples], blobs: Blobs, count: int) -> dict[str, Any]:
    """The first ``count`` reconstructions of a scene as data of the page.

    Outputs are stored as differences from the input, in steps of 1/65,534 of the size of the mesh: 3 µm for a face.
    """
    first = scene.first
    inputs = first.parts["input"][:count]
    center = (inputs.reshape(-1, 3).min(axis=0) + inputs.reshape(-1, 3).max(axis=0)) / 2
    step = float(np.abs(inputs - center).max()) / 32767

    def moves(samples: MeshSamples) -> dict[str, Any]:
        return {
            name: [blobs.steps(moved, step) for moved in part[:count] - samples.parts["input"][:count]]
            for name, part in samples.parts.items()
            if name != "input"
        }

    parts = {part for _, samples in scene.shown for part in samples.parts} - {"input"}
    return _described(scene, count) | {
        "unit": first.unit_mm,
        "paper": scene.in_paper,
        "saturation": {part: scene.high if part == "full" else saturation_mm(scene, part) for part in sorted(parts)},
        "faces": blobs.indices(first.faces),
        "levels": [{"kept": blobs.indices(x.kept), "faces": blobs.indices(x.faces)} for x in first.levels],
        "inputs": [blobs.steps(verts - center, step) for verts in inputs],
        "methods": _methods(scene, lambda samples: {"parts": moves(samples) if samples else {}}),
    }


def _described(scene: Scene[Any], count: int) -> dict[str, Any]:
    return {
        "key": scene.key,
        "title": scene.title,
        "samples": [", ".join(describe_item(name)) for name in scene.first.names[:count]],
        "changes": list(scene.changes[:count]),
    }


def _methods(scene: Scene[Kind], results: Callable[[Kind | None], dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"name": row.method, "variant": row.larger or row.method.endswith("†"), "skip": row.look, "test": test}
        | results(samples)
        for row, samples, test in zip(scene.methods, scene.samples, scene.tests, strict=True)
    ]


def embedded_matches(scene: Scene[CorrespondenceSamples], blobs: Blobs, count: int) -> dict[str, Any]:
    """The first ``count`` bodies of a scene as data of the page."""
    first = scene.first
    bodies = first.meshes[:count]
    colors = np.round(255 * position_colors(first.target_verts.astype(np.float64))).astype(np.uint8)

    def centered(verts: np.ndarray) -> np.ndarray:
        return verts - (verts.min(axis=0) + verts.max(axis=0)) / 2

    def results(samples: CorrespondenceSamples | None) -> dict[str, Any]:
        matched = samples.meshes[:count] if samples else ()
        return {
            "predicted": [blobs.indices(body.predicted) for body in matched],
            # -1 marks vertices without a label.
            "errors": [blobs.steps(np.nan_to_num(body.error_pct, nan=-1.0), 0.01) for body in matched],
            "right": [body.exact_pct for body in matched],
        }

    return _described(scene, count) | {
        "saturation": PAPER_PCT,
        "faces": [blobs.indices(body.faces) for body in bodies],
        "verts": [blobs.steps(centered(body.verts)) for body in bodies],
        "unlabeled": any((body.labels < 0).any() for body in bodies),
        "target": {
            "faces": blobs.indices(first.target_faces),
            "verts": blobs.steps(centered(first.target_verts)),
            "colors": blobs.add(colors),
        },
        "methods": _methods(scene, results),
    }


def embedded_graphs(scene: Scene[GraphSamples], blobs: Blobs, count: int = 24) -> dict[str, Any]:
    """The first ``count`` graphs of a scene, with the prediction of every method."""
    graphs = scene.first
    chosen = range(min(count, len(graphs.true)))
    return {
        "title": scene.title,
        "classes": list(graphs.class_names),
        "graphs": [
            _graph(graphs, number, blobs)
            | {"true": int(graphs.true[number])}
            | ({"name": graphs.names[number]} if graphs.names else {})
            for number in chosen
        ],
        "methods": [
            {"name": row.method, "skip": row.look, "predicted": [int(samples.predicted[n]) for n in chosen]}
            | {"test": f"{ACCURACY.shown_summary(row.metrics[ACCURACY.key])} %" if ACCURACY.key in row.metrics else ""}
            for row, samples in scene.shown
        ],
    }


def _graph(graphs: GraphSamples, number: int, blobs: Blobs) -> dict[str, Any]:
    """Positions and brightness scaled to the range of their type, and every edge once."""
    begin, end = int(graphs.offsets[number]), int(graphs.offsets[number + 1])
    low = graphs.pos.min(axis=0)
    side = float((graphs.pos.max(axis=0) - low).max()) or 1.0
    bright = graphs.x[:, 0] if graphs.x.shape[1] else np.ones(len(graphs.pos))
    bright = (bright - bright.min()) / (float(np.ptp(bright)) or 1.0)
    senders, receivers = graphs.edges
    inside = (senders >= begin) & (senders < end) & (senders < receivers)
    return {
        "pos": blobs.add(np.round((graphs.pos[begin:end] - low) / side * 65535).astype(np.uint16)),
        "bright": blobs.add(np.round(255 * bright[begin:end]).astype(np.uint8)),
        "edges": blobs.indices(np.stack([senders[inside], receivers[inside]], axis=1) - begin),
    }


@dataclass(frozen=True, eq=False)
class Still:
    """The first item of a scene: the meshes, their names, and in words what they show."""

    shapes: list[Shape]
    names: list[str]
    text: str

    def png(self, size: int) -> bytes:
        return shapes_png(self.shapes, size)


def shapes_png(shapes: list[Shape], size: int) -> bytes:
    """Meshes side by side on a transparent background."""
    return png_bytes(image_grid(shape_pictures(shapes, size, transparent=True), columns=len(shapes)))


def mesh_still(scene: Scene[MeshSamples]) -> Still:
    """The input and the reconstruction of each method, colored by the error."""
    first, high = scene.first, scene.high
    results = [(row, samples, errors_mm(samples)[0]) for row, samples in scene.shown]
    shapes: list[Shape] = [(first.parts["input"][0], first.faces, colored(np.zeros_like(results[0][2]), high))]
    shapes += [(samples.parts["full"][0], first.faces, colored(errors, high)) for _, samples, errors in results]
    means = ", ".join(f"{row.method} {errors.mean():.2f} mm" for row, _, errors in results)
    shown = f"the mesh “{', '.join(describe_item(first.names[0]))}” and its reconstruction by each method"
    names = ["Input", *(row.method for row, _, _ in results)]
    return Still(shapes, names, f"{scene.title}: {shown}. Mean error: {means}; the color scale ends at {high:g} mm.")


def match_still(scene: Scene[CorrespondenceSamples]) -> Still:
    """The target, and the geodesic error of each method on the first body."""
    first = scene.first
    bodies = [(row, samples.meshes[0]) for row, samples in scene.shown]
    shapes: list[Shape] = [
        (first.target_verts, first.target_faces, colored(np.zeros(len(first.target_verts)), PAPER_PCT))
    ]
    shapes += [(body.verts, body.faces, colored(body.error_pct, PAPER_PCT)) for _, body in bodies]
    means = [f"{row.method} {body.mean_error_pct:.1f} %" for row, body in bodies if body.mean_error_pct is not None]
    error = "Its vertices have no labels, so the error is unknown."
    if means:
        error = f"Mean geodesic error: {', '.join(means)} of the diameter; the color scale ends at {PAPER_PCT:g} %."
    shown = (
        f"the target, and the geodesic error of each method on the body “{', '.join(describe_item(first.names[0]))}”"
    )
    return Still(shapes, ["Target", *(row.method for row, _ in bodies)], f"{scene.title}: {shown}. {error}")
