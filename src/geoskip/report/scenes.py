"""The samples that the page shows: which methods and items, in which order."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

import numpy as np

from geoskip.records import CorrespondenceSamples, GraphSamples, MeshSamples, Samples
from geoskip.report.html_tables import Headline, headlines
from geoskip.report.picture_grids import PAPER_MM, errors_mm
from geoskip.report.runs import Metric
from geoskip.report.summary import ResultRow, ResultTable, RowGroup

Kind = TypeVar("Kind", bound=Samples)


@dataclass(frozen=True, eq=False)
class Scene(Generic[Kind]):
    """Methods that were applied to the same items, each with the samples of one seed.

    samples: None for a plain or affine method whose runs kept no samples of these items.
    tests: the result of each method on the whole test set, in words.
    changes: for each item, how it and the test set change from plain to affine, in words; empty if one is missing.
    distance: how far the change of the first item is from the headline's.
    high: the initial end of the color scale of errors in mm: one for all scenes of a data set; 0 without such a scale.
    """

    key: str
    title: str
    methods: tuple[ResultRow, ...]
    samples: tuple[Kind | None, ...]
    tests: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    distance: float = float("inf")
    high: float = 0.0

    @property
    def shown(self) -> list[tuple[ResultRow, Kind]]:
        """The methods that have samples."""
        return [(row, samples) for row, samples in zip(self.methods, self.samples, strict=True) if samples is not None]

    @property
    def first(self) -> Kind:
        return self.shown[0][1]

    @property
    def in_paper(self) -> bool:
        """Whether the paper has results to compare with."""
        return any(row.paper for row in self.methods)


@dataclass(frozen=True)
class Measure(Generic[Kind]):
    """What samples are compared by.

    metric: the key of the same figure of the whole test set.
    of_items: its value for each sample; NaN if it is not known.
    item: what a sample is.
    tests: how to say the results on the test set, by metric.
    take: the samples of the given numbers, in this order.
    """

    metric: str
    item: str
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
    words = (row.family, row.size, f"by {pseudo}" if pseudo else "", *row.group.details, table.data, table.training)
    return Scene("", ", ".join(filter(None, words)), methods, tuple(members[row] for row in methods))


def _arranged(scene: Scene[Kind], table: ResultTable, measure: Measure[Kind], headline: Headline | None) -> Scene[Kind]:
    """The scene with its items in the order of :func:`arrangement`, and what its captions say."""
    metrics = {metric.key: metric for metric in table.description.metrics}
    tests = tuple(_tested(row, metrics, measure.tests) for row in scene.methods)
    names: tuple[str, ...] = cast(Any, scene.first).names
    metric = metrics.get(measure.metric)
    plain = next((pair for pair in scene.shown if pair[0].is_plain), None)
    affine = next((pair for pair in scene.shown if pair[0].skip == "affine"), None)
    of_items, goal = [math.nan] * len(names), 0.0
    if plain and affine and metric and all(metric.key in row.metrics for row, _ in (plain, affine)):
        goal = metric.change(*(row.metrics[metric.key].mean for row, _ in (plain, affine)))
        values = zip(*(measure.of_items(samples) for _, samples in (plain, affine)), strict=True)
        of_items = [metric.change(*pair) for pair in values]
    order = arrangement(names, [abs(change - goal) for change in of_items])
    changes = [
        f"{metric.shown_change(of_items[i])} on this {measure.item}, {metric.shown_change(goal)} on the test set"
        if metric and not math.isnan(of_items[i])
        else ""
        for i in order
    ]
    reordered = tuple(samples and measure.take(samples, order) for samples in scene.samples)
    first = of_items[order[0]]
    distance = abs(first - headline.change) if headline and not math.isnan(first) else float("inf")
    return replace(scene, samples=reordered, tests=tests, changes=tuple(changes), distance=distance)


def _tested(row: ResultRow, metrics: Mapping[str, Metric], words: Mapping[str, str]) -> str:
    """The results on the test set: ``test set: mean 0.749 ± 0.010 mm``."""
    figures = [
        text.format(metrics[key].shown_summary(row.metrics[key]))
        for key, text in words.items()
        if key in row.metrics and key in metrics
    ]
    return f"test set: {', '.join(figures)}" if figures else ""


def arrangement(names: Sequence[str], distances: Sequence[float]) -> list[int]:
    """The order in which items are shown: the nearest first, then other people and expressions, the nearest first.

    Of several items of one person with one expression, the nearest is shown and the others are left out.
    """
    items = [describe_item(name) for name in names]
    left = sorted(range(len(names)), key=lambda i: (math.isnan(distances[i]), distances[i]))
    order: list[int] = []
    seen: Counter[str] = Counter()
    while left:
        order.append(min(left, key=lambda i: sum(seen[word] for word in items[i])))
        seen.update(items[order[-1]])
        left = [i for i in left if items[i] != items[order[-1]]]
    return order


def describe_item(name: str) -> tuple[str, ...]:
    """Who and what an item of a data set of people shows; any other name as it is.

    >>> describe_item("003/bareteeth/00027"), describe_item("008/005-bend_forward"), describe_item("scan 7")
    (('Person 3', 'bared teeth'), ('Person 8', 'bend forward'), ('scan 7',))
    """
    pose = re.fullmatch(r"(\d+)/(\d+)", name)
    if pose:
        return f"Person {int(pose[1])}", f"pose {int(pose[2])}"
    match = re.fullmatch(r"(\d+|FaceTalk_\w+)/(?:\d+/)?(?:\d+-)?(\w*[a-z]\w*)(?:[/.].*)?", name)
    if not match:
        return (name,)
    person = f"Person {int(match[1])}" if match[1].isdigit() else match[1]
    return person, match[2].replace("bareteeth", "bared teeth").replace("_", " ")


def mesh_scenes(tables: Sequence[ResultTable]) -> list[Scene[MeshSamples]]:
    def same(samples: MeshSamples) -> Hashable:
        """Equal for the same meshes, up to the rounding of float32."""
        low, high = samples.parts["input"].min(axis=(0, 1)), samples.parts["input"].max(axis=(0, 1))
        faces = samples.faces
        return samples.names, faces.shape, int(faces.astype(np.int64).sum()), np.round(high - low, 3).tobytes()

    def take(samples: MeshSamples, order: Sequence[int]) -> MeshSamples:
        parts = {name: part[list(order)] for name, part in samples.parts.items()}
        return replace(samples, names=tuple(samples.names[i] for i in order), parts=parts)

    def errors(samples: MeshSamples) -> list[float]:
        return cast(list[float], errors_mm(samples).mean(axis=1).tolist())

    measure = Measure("mean_mm", "sample", errors, {"mean_mm": "mean {} mm"}, take)
    scenes = _scenes(tables, "s", MeshSamples, same, measure)
    # Equal colors are equal errors, also when the reader switches to another operator.
    data = [scene.methods[0].runs[0].record.config.get("data") for scene in scenes]
    highs = [saturation_mm(scene) for scene in scenes]
    return [
        replace(scene, high=max(high for other, high in zip(data, highs, strict=True) if other == own))
        for scene, own in zip(scenes, data, strict=True)
    ]


def match_scenes(tables: Sequence[ResultTable]) -> list[Scene[CorrespondenceSamples]]:
    def same(samples: CorrespondenceSamples) -> Hashable:
        sizes = tuple((body.verts.shape, body.faces.shape) for body in samples.meshes)
        return samples.names, sizes, samples.target_verts.shape

    def exact(samples: CorrespondenceSamples) -> list[float]:
        return [math.nan if body.exact_pct is None else body.exact_pct for body in samples.meshes]

    def take(samples: CorrespondenceSamples, order: Sequence[int]) -> CorrespondenceSamples:
        return replace(samples, meshes=tuple(samples.meshes[i] for i in order))

    words = {"geodesic_mean_pct": "mean error {} %", "accuracy_pct": "{}\u00a0% exact"}
    return _scenes(tables, "b", CorrespondenceSamples, same, Measure("accuracy_pct", "body", exact, words, take))


def graph_scenes(tables: Sequence[ResultTable]) -> list[Scene[GraphSamples]]:
    return _scenes(tables, "g", GraphSamples, lambda s: (s.pos.tobytes(), s.true.tobytes(), s.class_names))


def saturation_mm(scene: Scene[MeshSamples], part: str = "full") -> float:
    """The initial end of the color scale: 5 mm, as in the paper, or less if the errors are small.

    Data that the paper does not have, and what skips or convolutions decode alone, have a scale of their own.
    """
    worst = max(float(np.quantile(errors_mm(s, part)[0], 0.98)) for _, s in scene.shown if part in s.parts)
    return min(PAPER_MM, nice(worst)) if part == "full" and scene.in_paper else nice(worst)


def nice(value: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(power * step for step in (1, 2, 5, 10) if power * step >= value * (1 - 1e-9)))
