"""The samples that the page shows: reconstructed meshes, matched bodies, classified digits; also as still pictures."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

import numpy as np

from geoskip.meshes import Mesh
from geoskip.records import CorrespondenceSamples, GraphSamples, MeshSamples, Samples
from geoskip.report.palette import colored, position_colors
from geoskip.report.pictures import png_bytes, sheet
from geoskip.report.runs import Metric
from geoskip.report.sheets import PAPER_MM, PAPER_PCT, errors_mm, shape_pictures
from geoskip.report.summary import ResultRow, ResultTable, RowGroup
from geoskip.report.tables import Headline, headlines
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
    """Methods that were applied to the same items, each with the samples of one seed.

    samples: None for a plain or affine method whose runs kept no samples of these items.
    tests: the result of each method on the whole test set, in words.
    changes: for each item, how it and the test set change from plain to affine, in words; empty if one is missing.
    distance: how far the change of the first item is from the headline's.
    """

    key: str
    title: str
    methods: tuple[ResultRow, ...]
    samples: tuple[Kind | None, ...]
    tests: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    distance: float = float("inf")

    @property
    def shown(self) -> list[tuple[ResultRow, Kind]]:
        """The methods that have samples."""
        return [(row, samples) for row, samples in zip(self.methods, self.samples, strict=True) if samples is not None]

    @property
    def first(self) -> Kind:
        return self.shown[0][1]


@dataclass(frozen=True)
class Measure(Generic[Kind]):
    """What samples are compared by.

    metric: the key of the same figure of the whole test set.
    of_items: its value for each sample; NaN if it is not known.
    tests: how to say the results on the test set, by metric.
    take: the samples of the given numbers, in this order.
    """

    metric: str
    of_items: Callable[[Kind], Sequence[float]]
    tests: Mapping[str, str]
    take: Callable[[Kind, Sequence[int]], Kind]


def _scenes(
    tables: Sequence[ResultTable],
    prefix: str,
    kind: type[Kind],
    same: Callable[[Kind], Hashable],
    measure: Measure[Kind] | None = None,
) -> list[Scene[Kind]]:
    """One scene for each group of rows with samples of the same items.

    The first has the most skips, then the most seeds, then the first item whose change from plain to affine is nearest
    to the headline's.
    """
    goals = headlines(tables)
    scenes = []
    for table in tables:
        headline = goals.get((table.task, table.data, table.schedule))
        for members in _sampled(table, kind, same):
            scene = _scene(table, members)
            scenes.append(_arranged(scene, table, measure, headline) if measure else scene)
    # Operators are sorted by their results in the paper, the best last.
    scenes.reverse()
    scenes.sort(key=lambda s: (-len({r.skip for r, _ in s.shown}), -min(len(r.runs) for r, _ in s.shown), s.distance))
    titles = [scene.title for scene in scenes]
    return [
        replace(
            scene, key=f"{prefix}{n}", title=f"{scene.title}, other items" if scene.title in titles[:n] else scene.title
        )
        for n, scene in enumerate(scenes)
    ]


def _sampled(
    table: ResultTable, kind: type[Kind], same: Callable[[Kind], Hashable]
) -> list[dict[ResultRow, Kind | None]]:
    """Groups of rows with the samples of their first seed that has any. Rows of one group share the key ``same``.

    Plain and affine rows always come together, one of them without samples if need be.
    """
    groups: dict[tuple[RowGroup, Hashable], dict[ResultRow, Kind | None]] = {}
    for row in table.own:
        samples = next((run.samples for run in row.runs if isinstance(run.samples, kind)), None)
        if samples is not None and samples.count:
            groups.setdefault((row.group, same(samples)), {})[row] = samples
    for (group, _), members in groups.items():
        compared = [row for row in table.own if row.group == group and (row.is_plain or row.skip == "affine")]
        members |= {row: None for row in compared if row not in members}
    return list(groups.values())


def _scene(table: ResultTable, members: Mapping[ResultRow, Kind | None]) -> Scene[Kind]:
    methods = tuple(row for row in table.own if row in members)
    row = methods[0]
    pseudo = table.pseudo(row)
    words = (row.family, row.size, f"by {pseudo}" if pseudo else "", *row.group.details, table.data)
    return Scene("", ", ".join(filter(None, words)), methods, tuple(members[row] for row in methods))


def _arranged(scene: Scene[Kind], table: ResultTable, measure: Measure[Kind], headline: Headline | None) -> Scene[Kind]:
    """The scene with its items in the order of :func:`arrangement`, and what its captions say."""
    metrics = {metric.key: metric for metric in table.description.metrics}
    tests = tuple(_tested(row, metrics, measure.tests) for row in scene.methods)
    names: tuple[str, ...] = cast(Any, scene.first).names
    metric = metrics.get(measure.metric)
    plain = next((pair for pair in scene.shown if pair[0].is_plain), None)
    affine = next((pair for pair in scene.shown if pair[0].skip == "affine"), None)
    changes, distances, goal = [""] * len(names), [0.0] * len(names), None
    if plain and affine and metric and all(metric.key in row.metrics for row, _ in (plain, affine)):
        goal = metric.change(*(row.metrics[metric.key].mean for row, _ in (plain, affine)))
        values = zip(*(measure.of_items(samples) for _, samples in (plain, affine)), strict=True)
        of_items = [metric.change(*pair) for pair in values]
        said, distances = metric.shown_change, [abs(change - goal) for change in of_items]
        changes = [f"{said(change)} on this sample, {said(goal)} on the test set" for change in of_items]
    order = arrangement(names, distances)
    taken = tuple(samples and measure.take(samples, order) for samples in scene.samples)
    distance = abs(of_items[order[0]] - headline.change) if goal is not None and headline else float("inf")
    return replace(scene, samples=taken, tests=tests, changes=tuple(changes[i] for i in order), distance=distance)


def _tested(row: ResultRow, metrics: Mapping[str, Metric], words: Mapping[str, str]) -> str:
    """The results on the test set: ``test set: mean 0.749 ± 0.010 mm``."""
    said = [
        text.format(metrics[key].shown_summary(row.metrics[key]))
        for key, text in words.items()
        if key in row.metrics and key in metrics
    ]
    return f"test set: {', '.join(said)}" if said else ""


def arrangement(names: Sequence[str], distances: Sequence[float]) -> list[int]:
    """The order in which items are shown: the nearest first, then other people and expressions, the nearest first.

    Of several items of one person with one expression, the nearest is shown and the others are left out.
    """
    items = [described(name) for name in names]
    left = sorted(range(len(names)), key=lambda i: (math.isnan(distances[i]), distances[i]))
    order: list[int] = []
    seen: Counter[str] = Counter()
    while left:
        order.append(min(left, key=lambda i: sum(seen[word] for word in items[i])))
        seen.update(items[order[-1]])
        left = [i for i in left if items[i] != items[order[-1]]]
    return order


def described(name: str) -> tuple[str, ...]:
    """Who and what an item of a data set of people shows; any other name as it is.

    >>> described("003/bareteeth/00027"), described("008/005-bend_forward"), described("scan 7")
    (('Person 3', 'bared teeth'), ('Person 8', 'bend forward'), ('scan 7',))
    """
    pose = re.fullmatch(r"(\d+)/(\d+)", name)
    if pose:
        return f"Person {int(pose[1])}", f"pose {int(pose[2])}"
    found = re.fullmatch(r"(\d+|FaceTalk_\w+)/(?:\d+/)?(?:\d+-)?(\w*[a-z]\w*)(?:[/.].*)?", name)
    if not found:
        return (name,)
    person = f"Person {int(found[1])}" if found[1].isdigit() else found[1]
    return person, found[2].replace("bareteeth", "bared teeth").replace("_", " ")


def mesh_scenes(tables: Sequence[ResultTable]) -> list[Scene[MeshSamples]]:
    def same(samples: MeshSamples) -> Hashable:
        """Equal for the same meshes, up to the rounding of float32."""
        low, high = samples.parts["input"].min(axis=(0, 1)), samples.parts["input"].max(axis=(0, 1))
        faces = samples.faces
        return samples.names, faces.shape, int(faces.astype(np.int64).sum()), np.round(high - low, 3).tobytes()

    def take(samples: MeshSamples, order: Sequence[int]) -> MeshSamples:
        parts = {name: part[list(order)] for name, part in samples.parts.items()}
        return replace(samples, names=tuple(samples.names[i] for i in order), parts=parts)

    measure = Measure("mean_mm", lambda s: errors_mm(s).mean(axis=1).tolist(), {"mean_mm": "mean {} mm"}, take)
    return _scenes(tables, "s", MeshSamples, same, measure)


def match_scenes(tables: Sequence[ResultTable]) -> list[Scene[CorrespondenceSamples]]:
    def same(samples: CorrespondenceSamples) -> Hashable:
        sizes = tuple((body.verts.shape, body.faces.shape) for body in samples.meshes)
        return samples.names, sizes, samples.target_verts.shape

    def exact(samples: CorrespondenceSamples) -> list[float]:
        return [math.nan if body.exact_pct is None else body.exact_pct for body in samples.meshes]

    def take(samples: CorrespondenceSamples, order: Sequence[int]) -> CorrespondenceSamples:
        return replace(samples, meshes=tuple(samples.meshes[i] for i in order))

    words = {"geodesic_mean_pct": "mean error {} %", "accuracy_pct": "{} % exact"}
    return _scenes(tables, "b", CorrespondenceSamples, same, Measure("accuracy_pct", exact, words, take))


def graph_scenes(tables: Sequence[ResultTable]) -> list[Scene[GraphSamples]]:
    return _scenes(tables, "g", GraphSamples, lambda s: (s.pos.tobytes(), s.true.tobytes(), s.class_names))


def saturation_mm(scene: Scene[MeshSamples], part: str = "full") -> float:
    """The initial end of the color scale: 5 mm, as in the paper, or less if the errors are small.

    What skips or convolutions decode alone is farther away, and has a scale of its own.
    """
    worst = max(float(np.quantile(errors_mm(s, part)[0], 0.98)) for _, s in scene.shown if part in s.parts)
    return min(PAPER_MM, nice(worst)) if part == "full" else nice(worst)


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
        "saturation": {part: saturation_mm(scene, part) for part in sorted(parts)},
        "faces": blobs.indices(first.faces),
        "levels": [{"kept": blobs.indices(x.kept), "faces": blobs.indices(x.faces)} for x in first.levels],
        "inputs": [blobs.steps(verts - center, step) for verts in inputs],
        "methods": _methods(scene, lambda samples: {"parts": moves(samples) if samples else {}}),
    }


def _described(scene: Scene[Any], count: int) -> dict[str, Any]:
    return {
        "key": scene.key,
        "title": scene.title,
        "samples": [", ".join(described(name)) for name in scene.first.names[:count]],
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
        "graphs": [_graph(graphs, number, blobs) | {"true": int(graphs.true[number])} for number in chosen],
        "methods": [
            {"name": row.method, "skip": row.look, "predicted": [int(samples.predicted[n]) for n in chosen]}
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
    """A PNG file and its description."""

    png: bytes
    text: str


def mesh_still(scene: Scene[MeshSamples], size: int = 300) -> Still:
    """The input and the reconstruction of each method, colored by the error."""
    first, high = scene.first, saturation_mm(scene)
    results = [(row, samples, errors_mm(samples)[0]) for row, samples in scene.shown]
    shapes = [(first.parts["input"][0], first.faces, colored(np.zeros(first.parts["input"].shape[1]), high))]
    shapes += [(samples.parts["full"][0], first.faces, colored(errors, high)) for _, samples, errors in results]
    means = ", ".join(f"{row.method} {errors.mean():.2f} mm" for row, _, errors in results)
    shown = f"the mesh “{', '.join(described(first.names[0]))}” and its reconstruction by each method"
    return Still(_png(shapes, size), f"{scene.title}: {shown}. Mean error: {means}.")


def match_still(scene: Scene[CorrespondenceSamples], size: int = 300) -> Still:
    """The target, and the geodesic error of each method on the first body."""
    first = scene.first
    bodies = [(row, samples.meshes[0]) for row, samples in scene.shown]
    shapes = [(first.target_verts, first.target_faces, colored(np.zeros(len(first.target_verts)), PAPER_PCT))]
    shapes += [(b.verts, b.faces, colored(b.error_pct.astype(np.float64), PAPER_PCT)) for _, b in bodies]
    means = [f"{row.method} {b.mean_error_pct:.1f} %" for row, b in bodies if b.mean_error_pct is not None]
    error = (
        f"Mean geodesic error: {', '.join(means)} of the diameter; the color scale ends at {PAPER_PCT:g} %."
        if means
        else "Its vertices have no labels, so the error is unknown."
    )
    shown = f"the target, and the geodesic error of each method on the body “{', '.join(described(first.names[0]))}”"
    return Still(_png(shapes, size), f"{scene.title}: {shown}. {error}")


def _png(shapes: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], size: int) -> bytes:
    """Vertices, faces and colors of meshes, side by side on a transparent background."""
    meshes = [(Mesh(verts.astype(np.float64), faces.astype(np.int64)), colors) for verts, faces, colors in shapes]
    return png_bytes(sheet(shape_pictures(meshes, size, transparent=True), columns=len(meshes)))
