"""The samples that the page shows: reconstructed meshes, matched bodies, classified digits; also as still pictures."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from geoskip.meshes import Mesh
from geoskip.records import CorrespondenceSamples, GraphSamples, MeshSamples
from geoskip.report.embed import Blobs
from geoskip.report.palette import colored, position_colors
from geoskip.report.pictures import AZIMUTH, ELEVATION, cutout, view_of
from geoskip.report.png import png_bytes
from geoskip.report.summary import ResultRow, ResultTable, sampled
from geoskip.shapes import Float, Shaped

# Where the paper's color scales end: vertex distance in mm, geodesic error in percent of the diameter.
PAPER_MM, PAPER_PCT = 5.0, 10.0


@dataclass(frozen=True, eq=False)
class Scene:
    """Methods that reconstructed the same meshes, each with the samples of one seed."""

    key: str
    title: str
    methods: tuple[ResultRow, ...]
    samples: tuple[MeshSamples, ...]

    @property
    def inputs(self) -> Float[np.ndarray, "samples vertices 3"]:
        return self.samples[0].parts["input"]


def scenes(tables: Sequence[ResultTable]) -> list[Scene]:
    """One scene for each group of rows with samples of the same meshes, those with the most skips and seeds first."""
    grouped = [_scene(table, members) for table in tables for members in sampled(table, MeshSamples, _same_meshes)]
    # Operators are sorted by their results in the paper, the best last.
    grouped.reverse()
    grouped.sort(
        key=lambda scene: (-len({row.skip for row in scene.methods}), -min(len(m.runs) for m in scene.methods))
    )
    return [Scene(f"s{number}", s.title, s.methods, s.samples) for number, s in enumerate(grouped)]


def errors_mm(samples: MeshSamples, part: str, sample: int) -> Float[np.ndarray, " vertices"]:
    """Distance of each vertex from the input."""
    return np.linalg.norm(samples.parts[part][sample] - samples.parts["input"][sample], axis=1) * samples.unit_mm


def saturation_mm(scene: Scene) -> float:
    """The initial end of the color scale: 5 mm, as in the paper, or less if the errors are small."""
    worst = max(float(np.quantile(errors_mm(samples, "full", 0), 0.98)) for samples in scene.samples)
    return min(PAPER_MM, nice(worst))


def nice(value: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(power * step for step in (1, 2, 5, 10) if power * step >= value * (1 - 1e-9)))


def embedded_scene(scene: Scene, blobs: Blobs, count: int) -> dict[str, Any]:
    """The first ``count`` samples of a scene as data of the page.

    Outputs are stored as differences from the input, in steps of 1/65,534 of the size of the mesh: 3 µm for a face.
    """
    first, inputs = scene.samples[0], scene.inputs[:count]
    center = (inputs.reshape(-1, 3).min(axis=0) + inputs.reshape(-1, 3).max(axis=0)) / 2
    step = float(np.abs(inputs - center).max()) / 32767
    return {
        "key": scene.key,
        "title": scene.title,
        "unit": first.unit_mm,
        "saturation": saturation_mm(scene),
        "faces": blobs.indices(first.faces),
        "levels": [{"kept": blobs.indices(x.kept), "faces": blobs.indices(x.faces)} for x in first.levels],
        "samples": list(first.names[:count]),
        "inputs": [blobs.steps(verts - center, step) for verts in inputs],
        "methods": [
            _mesh_method(row, samples, blobs, count, step)
            for row, samples in zip(scene.methods, scene.samples, strict=True)
        ],
    }


def _mesh_method(row: ResultRow, samples: MeshSamples, blobs: Blobs, count: int, step: float) -> dict[str, Any]:
    differences = {
        name: part[:count] - samples.parts["input"][:count] for name, part in samples.parts.items() if name != "input"
    }
    return {
        "name": row.method,
        "variant": row.larger or row.method.endswith("†"),
        "skip": row.look,
        "parts": {name: [blobs.steps(verts, step) for verts in part] for name, part in differences.items()},
    }


def _scene(table: ResultTable, members: list[tuple[ResultRow, MeshSamples]]) -> Scene:
    row = members[0][0]
    size = f", {row.column}" if row.column else ""
    details = "".join(f", {text}" for text in (*row.group[3:], table.data) if text)
    return Scene("", f"{row.family}{size}{details}", tuple(r for r, _ in members), tuple(s for _, s in members))


def _same_meshes(samples: MeshSamples) -> str:
    """A key that is equal for samples of the same meshes, up to the rounding of float32."""
    low, high = samples.parts["input"].min(axis=(0, 1)), samples.parts["input"].max(axis=(0, 1))
    return (
        f"{samples.names} {samples.faces.shape} {int(samples.faces.astype(np.int64).sum())} {np.round(high - low, 3)}"
    )


@dataclass(frozen=True, eq=False)
class Matching:
    """Methods that matched the same bodies to the same target, each with the samples of one seed."""

    key: str
    title: str
    methods: tuple[ResultRow, ...]
    samples: tuple[CorrespondenceSamples, ...]


def matchings(tables: Sequence[ResultTable]) -> list[Matching]:
    """One matching for each group of rows with samples of the same bodies, those with the most skips first."""
    grouped = [
        _matching(f"{table.key}-{n}", table, members)
        for table in tables
        for n, members in enumerate(sampled(table, CorrespondenceSamples, _same_bodies))
    ]
    return sorted(grouped, key=lambda matching: -len({row.skip for row in matching.methods}))


def embedded_matching(matching: Matching, blobs: Blobs, count: int) -> dict[str, Any]:
    """The first ``count`` bodies of a matching as data of the page."""
    first = matching.samples[0]
    bodies = first.meshes[:count]
    colors = np.round(255 * position_colors(first.target_verts.astype(np.float64))).astype(np.uint8)
    return {
        "key": matching.key,
        "title": matching.title,
        "saturation": PAPER_PCT,
        "samples": list(first.names[:count]),
        "faces": [blobs.indices(body.faces) for body in bodies],
        "verts": [blobs.steps(centerd(body.verts)) for body in bodies],
        "unlabeled": any((body.labels < 0).any() for body in bodies),
        "target": {
            "faces": blobs.indices(first.target_faces),
            "verts": blobs.steps(centerd(first.target_verts)),
            "colors": blobs.add(colors),
        },
        "methods": [
            _matching_method(row, s, blobs, count) for row, s in zip(matching.methods, matching.samples, strict=True)
        ],
    }


def centerd(verts: Float[np.ndarray, "vertices 3"]) -> Float[np.ndarray, "vertices 3"]:
    return verts - (verts.min(axis=0) + verts.max(axis=0)) / 2


def _matching_method(row: ResultRow, samples: CorrespondenceSamples, blobs: Blobs, count: int) -> dict[str, Any]:
    return {
        "name": row.method,
        "skip": row.look,
        "predicted": [blobs.indices(body.predicted) for body in samples.meshes[:count]],
        # -1 marks vertices without a label.
        "errors": [blobs.steps(np.nan_to_num(body.error_pct, nan=-1.0), 0.01) for body in samples.meshes[:count]],
        "right": [body.exact_pct for body in samples.meshes[:count]],
    }


def _same_bodies(samples: CorrespondenceSamples) -> str:
    sizes = [(body.verts.shape, body.faces.shape) for body in samples.meshes]
    return f"{samples.names} {sizes} {samples.target_verts.shape}"


def _matching(key: str, table: ResultTable, members: list[tuple[ResultRow, CorrespondenceSamples]]) -> Matching:
    row = members[0][0]
    details = "".join(f", {text}" for text in (*row.group[3:], table.data) if text)
    return Matching(key, f"{row.family}{details}", tuple(r for r, _ in members), tuple(s for _, s in members))


def galleries(tables: Sequence[ResultTable], blobs: Blobs, count: int = 24) -> list[dict[str, Any]]:
    """The first ``count`` graphs of each group of runs, with the prediction of every run."""
    grouped = []
    for table in tables:
        groups = sampled(table, GraphSamples, _same_graphs)
        grouped += [_gallery(table, members, blobs, count) for members in reversed(groups)]
    return sorted(grouped, key=lambda gallery: -len(gallery["methods"]))


def _same_graphs(samples: GraphSamples) -> Hashable:
    """A key that is equal for samples of the same graphs."""
    return samples.pos.tobytes(), samples.true.tobytes(), samples.class_names


def _gallery(
    table: ResultTable, members: list[tuple[ResultRow, GraphSamples]], blobs: Blobs, count: int
) -> dict[str, Any]:
    row, graphs = members[0]
    chosen = range(min(count, len(graphs.true)))
    return {
        "title": ", ".join(filter(None, (row.family, _coordinates(row), *row.group[3:], table.data))),
        "classes": list(graphs.class_names),
        "graphs": [_graph(graphs, number, blobs) | {"true": int(graphs.true[number])} for number in chosen],
        "methods": [
            {"name": row.method, "skip": row.look, "predicted": [int(samples.predicted[n]) for n in chosen]}
            for row, samples in members
        ],
    }


def _coordinates(row: ResultRow) -> str:
    """The pseudo-coordinates of operators that use them."""
    return f"by {row.group[2]}" if row.group[2] and row.operator in ("monet", "spline") else ""


def _graph(graphs: GraphSamples, number: int, blobs: Blobs) -> dict[str, Any]:
    """Positions and brightness scaled to the range of their type, and every edge once."""
    begin, end = int(graphs.offsets[number]), int(graphs.offsets[number + 1])
    low = graphs.pos.min(axis=0)
    side = float((graphs.pos.max(axis=0) - low).max()) or 1.0
    bright = graphs.x[begin:end, 0] if graphs.x.shape[1] else np.ones(end - begin)
    span = graphs.x[:, 0] if graphs.x.shape[1] else np.ones(1)
    bright = (bright - span.min()) / (float(span.max() - span.min()) or 1.0)
    senders, receivers = graphs.edges
    inside = (senders >= begin) & (senders < end) & (senders < receivers)
    return {
        "pos": blobs.add(np.round((graphs.pos[begin:end] - low) / side * 65535).astype(np.uint16)),
        "bright": blobs.add(np.round(255 * bright).astype(np.uint8)),
        "edges": blobs.indices(np.stack([senders[inside], receivers[inside]], axis=1) - begin),
    }


@dataclass(frozen=True, eq=False)
class Still:
    """A PNG file and its description."""

    png: bytes
    text: str


def scene_still(scene: Scene, size: int = 300) -> Still:
    """The input and the reconstruction of each method, colored by the error."""
    first, high = scene.samples[0], saturation_mm(scene)
    shapes = [first.parts["input"][0], *(samples.parts["full"][0] for samples in scene.samples)]
    errors = [np.zeros(len(shapes[0])), *(errors_mm(samples, "full", 0) for samples in scene.samples)]
    colors = [colored(values.astype(np.float64), high) for values in errors]
    means = ", ".join(f"{row.method} {e.mean():.2f} mm" for row, e in zip(scene.methods, errors[1:], strict=True))
    text = f"{scene.title}: the mesh “{first.names[0]}” and its reconstruction by each method. Mean error: {means}."
    return Still(png_bytes(_side_by_side(shapes, [first.faces] * len(shapes), colors, size)), text)


def matching_still(matching: Matching, size: int = 300) -> Still:
    """The target in its own colors, and the first body in the colors that each method transfers to it."""
    first = matching.samples[0]
    colors = position_colors(first.target_verts.astype(np.float64))
    bodies = [samples.meshes[0] for samples in matching.samples]
    shapes = [first.target_verts, *(body.verts for body in bodies)]
    faces = [first.target_faces, *(body.faces for body in bodies)]
    transferred = [colors, *(colors[body.predicted] for body in bodies)]
    text = (
        f"{matching.title}: the target, and the body “{first.names[0]}” in the colors that each method transfers "
        f"from it. {_mean_errors(matching)}"
    )
    return Still(png_bytes(_side_by_side(shapes, faces, transferred, size)), text)


def _mean_errors(matching: Matching) -> str:
    means = [samples.meshes[0].mean_error_pct for samples in matching.samples]
    texts = [
        f"{row.method} {mean:.1f} %" for row, mean in zip(matching.methods, means, strict=True) if mean is not None
    ]
    if not texts:
        return "Its vertices have no labels, so the error is unknown."
    return (
        f"Mean geodesic error: {', '.join(texts)} of the diameter; the color scale of the page ends at {PAPER_PCT:g} %."
    )


def _side_by_side(
    shapes: list[np.ndarray], faces: list[np.ndarray], colors: list[np.ndarray], size: int
) -> Shaped[np.ndarray, "rows cols 4"]:
    meshes = [Mesh(verts.astype(np.float64), f.astype(np.int64)) for verts, f in zip(shapes, faces, strict=True)]
    views = [view_of(mesh.verts, AZIMUTH, ELEVATION) for mesh in meshes]
    drawn = [cutout(mesh, view, c, size) for mesh, view, c in zip(meshes, views, colors, strict=True)]
    return np.concatenate(drawn, axis=1)
