"""The samples that the page shows: reconstructed meshes, matched bodies, classified digits; also as still pictures."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from geoskip.meshes import Mesh
from geoskip.records import CorrespondenceSamples, GraphSamples, MeshSamples, Samples
from geoskip.report.palette import colored, position_colors
from geoskip.report.pictures import png_bytes, sheet
from geoskip.report.sheets import PAPER_MM, PAPER_PCT, errors_mm, shape_pictures
from geoskip.report.summary import ResultRow, ResultTable, sampled
from geoskip.shapes import Float, Shaped

Kind = TypeVar("Kind", bound=Samples)
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


@dataclass(frozen=True, eq=False)
class Scene(Generic[Kind]):
    """Methods that were applied to the same items, each with the samples of one seed."""

    key: str
    title: str
    methods: tuple[ResultRow, ...]
    samples: tuple[Kind, ...]


def _scenes(
    tables: Sequence[ResultTable], prefix: str, kind: type[Kind], same: Callable[[Kind], Hashable]
) -> list[Scene[Kind]]:
    """One scene for each group of rows with samples of the same items, those with the most skips and seeds first."""
    groups = [_scene(table, members) for table in tables for members in sampled(table, kind, same)]
    # Operators are sorted by their results in the paper, the best last.
    groups.reverse()
    groups.sort(key=lambda g: (-len({row.skip for row in g.methods}), -min(len(row.runs) for row in g.methods)))
    return [replace(group, key=f"{prefix}{number}") for number, group in enumerate(groups)]


def _scene(table: ResultTable, members: list[tuple[ResultRow, Kind]]) -> Scene[Kind]:
    row = members[0][0]
    pseudo = table.pseudo(row)
    words = (row.family, row.size, f"by {pseudo}" if pseudo else "", *row.group.details, table.data)
    methods, samples = zip(*members, strict=True)
    return Scene("", ", ".join(filter(None, words)), methods, samples)


def mesh_scenes(tables: Sequence[ResultTable]) -> list[Scene[MeshSamples]]:
    def same(samples: MeshSamples) -> Hashable:
        """Equal for the same meshes, up to the rounding of float32."""
        low, high = samples.parts["input"].min(axis=(0, 1)), samples.parts["input"].max(axis=(0, 1))
        faces = samples.faces
        return samples.names, faces.shape, int(faces.astype(np.int64).sum()), np.round(high - low, 3).tobytes()

    return _scenes(tables, "s", MeshSamples, same)


def match_scenes(tables: Sequence[ResultTable]) -> list[Scene[CorrespondenceSamples]]:
    def same(samples: CorrespondenceSamples) -> Hashable:
        sizes = tuple((body.verts.shape, body.faces.shape) for body in samples.meshes)
        return samples.names, sizes, samples.target_verts.shape

    return _scenes(tables, "b", CorrespondenceSamples, same)


def graph_scenes(tables: Sequence[ResultTable]) -> list[Scene[GraphSamples]]:
    return _scenes(tables, "g", GraphSamples, lambda s: (s.pos.tobytes(), s.true.tobytes(), s.class_names))


def saturation_mm(scene: Scene[MeshSamples]) -> float:
    """The initial end of the color scale: 5 mm, as in the paper, or less if the errors are small."""
    worst = max(float(np.quantile(errors_mm(samples)[0], 0.98)) for samples in scene.samples)
    return min(PAPER_MM, nice(worst))


def nice(value: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(power * step for step in (1, 2, 5, 10) if power * step >= value * (1 - 1e-9)))


def embedded_meshes(scene: Scene[MeshSamples], blobs: Blobs, count: int) -> dict[str, Any]:
    """The first ``count`` reconstructions of a scene as data of the page.

    Outputs are stored as differences from the input, in steps of 1/65,534 of the size of the mesh: 3 µm for a face.
    """
    first = scene.samples[0]
    inputs = first.parts["input"][:count]
    center = (inputs.reshape(-1, 3).min(axis=0) + inputs.reshape(-1, 3).max(axis=0)) / 2
    step = float(np.abs(inputs - center).max()) / 32767

    def method(row: ResultRow, samples: MeshSamples) -> dict[str, Any]:
        parts = {name: part[:count] - samples.parts["input"][:count] for name, part in samples.parts.items()}
        del parts["input"]
        return {
            "name": row.method,
            "variant": row.larger or row.method.endswith("†"),
            "skip": row.look,
            "parts": {name: [blobs.steps(verts, step) for verts in part] for name, part in parts.items()},
        }

    return {
        "key": scene.key,
        "title": scene.title,
        "unit": first.unit_mm,
        "saturation": saturation_mm(scene),
        "faces": blobs.indices(first.faces),
        "levels": [{"kept": blobs.indices(x.kept), "faces": blobs.indices(x.faces)} for x in first.levels],
        "samples": list(first.names[:count]),
        "inputs": [blobs.steps(verts - center, step) for verts in inputs],
        "methods": [method(row, samples) for row, samples in zip(scene.methods, scene.samples, strict=True)],
    }


def embedded_matches(scene: Scene[CorrespondenceSamples], blobs: Blobs, count: int) -> dict[str, Any]:
    """The first ``count`` bodies of a scene as data of the page."""
    first = scene.samples[0]
    bodies = first.meshes[:count]
    colors = np.round(255 * position_colors(first.target_verts.astype(np.float64))).astype(np.uint8)

    def centered(verts: np.ndarray) -> np.ndarray:
        return verts - (verts.min(axis=0) + verts.max(axis=0)) / 2

    return {
        "key": scene.key,
        "title": scene.title,
        "saturation": PAPER_PCT,
        "samples": list(first.names[:count]),
        "faces": [blobs.indices(body.faces) for body in bodies],
        "verts": [blobs.steps(centered(body.verts)) for body in bodies],
        "unlabeled": any((body.labels < 0).any() for body in bodies),
        "target": {
            "faces": blobs.indices(first.target_faces),
            "verts": blobs.steps(centered(first.target_verts)),
            "colors": blobs.add(colors),
        },
        "methods": [
            {
                "name": row.method,
                "skip": row.look,
                "predicted": [blobs.indices(body.predicted) for body in matched],
                # -1 marks vertices without a label.
                "errors": [blobs.steps(np.nan_to_num(body.error_pct, nan=-1.0), 0.01) for body in matched],
                "right": [body.exact_pct for body in matched],
            }
            for row, matched in zip(scene.methods, (s.meshes[:count] for s in scene.samples), strict=True)
        ],
    }


def embedded_graphs(scene: Scene[GraphSamples], blobs: Blobs, count: int = 24) -> dict[str, Any]:
    """The first ``count`` graphs of a scene, with the prediction of every method."""
    graphs = scene.samples[0]
    chosen = range(min(count, len(graphs.true)))
    return {
        "title": scene.title,
        "classes": list(graphs.class_names),
        "graphs": [_graph(graphs, number, blobs) | {"true": int(graphs.true[number])} for number in chosen],
        "methods": [
            {"name": row.method, "skip": row.look, "predicted": [int(samples.predicted[n]) for n in chosen]}
            for row, samples in zip(scene.methods, scene.samples, strict=True)
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
    """A PNG file and its description."""

    png: bytes
    text: str


def mesh_still(scene: Scene[MeshSamples], size: int = 300) -> Still:
    """The input and the reconstruction of each method, colored by the error."""
    first, high = scene.samples[0], saturation_mm(scene)
    errors = [errors_mm(samples)[0] for samples in scene.samples]
    shapes = [(first.parts["input"][0], first.faces, colored(np.zeros(len(errors[0])), high))]
    shapes += [(s.parts["full"][0], first.faces, colored(e, high)) for s, e in zip(scene.samples, errors, strict=True)]
    means = ", ".join(f"{row.method} {e.mean():.2f} mm" for row, e in zip(scene.methods, errors, strict=True))
    text = f"{scene.title}: the mesh “{first.names[0]}” and its reconstruction by each method. Mean error: {means}."
    return Still(_png(shapes, size), text)


def match_still(scene: Scene[CorrespondenceSamples], size: int = 300) -> Still:
    """The target in its own colors, and the first body in the colors that each method transfers to it."""
    first = scene.samples[0]
    colors = position_colors(first.target_verts.astype(np.float64))
    bodies = [samples.meshes[0] for samples in scene.samples]
    shapes = [(first.target_verts, first.target_faces, colors)]
    shapes += [(body.verts, body.faces, colors[body.predicted]) for body in bodies]
    means = [
        f"{row.method} {body.mean_error_pct:.1f} %"
        for row, body in zip(scene.methods, bodies, strict=True)
        if body.mean_error_pct is not None
    ]
    error = (
        f"Mean geodesic error: {', '.join(means)} of the diameter; the color scale of the page ends at {PAPER_PCT:g} %."
        if means
        else "Its vertices have no labels, so the error is unknown."
    )
    shown = f"the target, and the body “{first.names[0]}” in the colors that each method transfers from it"
    return Still(_png(shapes, size), f"{scene.title}: {shown}. {error}")


def _png(shapes: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], size: int) -> bytes:
    """Vertices, faces and colors of meshes, side by side on a transparent background."""
    meshes = [(Mesh(verts.astype(np.float64), faces.astype(np.int64)), colors) for verts, faces, colors in shapes]
    return png_bytes(sheet(shape_pictures(meshes, size, transparent=True), columns=len(meshes)))
