"""Reconstructions to be looked at side by side: one scene for each operator and kernel size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from geoskip.records import MeshSamples
from geoskip.report.embed import Blobs
from geoskip.report.summary import Experiment, Row, sampled
from geoskip.shapes import Float

# Where the paper saturates its pictures of the error.
PAPER_MM = 5.0


@dataclass(frozen=True, eq=False)
class Scene:
    """Methods that rebuilt the same meshes; the first seed of each is shown."""

    key: str
    title: str
    methods: tuple[Row, ...]
    samples: tuple[MeshSamples, ...]

    @property
    def inputs(self) -> Float[np.ndarray, "samples vertices 3"]:
        return self.samples[0].parts["input"]


def scenes(experiments: Sequence[Experiment]) -> list[Scene]:
    """Rows of one group that have samples of the same meshes; scenes of more skips come first, then of more seeds."""
    found = [_scene(e, members) for e in experiments for members in sampled(e, MeshSamples, _fingerprint)]
    # The operators are in order of what they reach in the paper: the last ones are seen first.
    found.reverse()
    found.sort(key=lambda scene: (-len({row.skip for row in scene.methods}), -min(len(m.runs) for m in scene.methods)))
    return [Scene(f"s{number}", s.title, s.methods, s.samples) for number, s in enumerate(found)]


def errors_mm(samples: MeshSamples, part: str, sample: int) -> Float[np.ndarray, " vertices"]:
    """Distance of each vertex from where it should be."""
    return np.linalg.norm(samples.parts[part][sample] - samples.parts["input"][sample], axis=1) * samples.unit_mm


def saturation_mm(scene: Scene) -> float:
    """Where the scale of a scene ends at first: 5 mm as in the paper, or less where that would show nothing."""
    worst = max(float(np.quantile(errors_mm(samples, "full", 0), 0.98)) for samples in scene.samples)
    return min(PAPER_MM, nice(worst))


def nice(value: float) -> float:
    """1, 2 or 5 times a power of ten, the least that is not below ``value``."""
    if value <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(power * step for step in (1, 2, 5, 10) if power * step >= value * (1 - 1e-9)))


def embedded(scene: Scene, blobs: Blobs, count: int) -> dict[str, Any]:
    """The first ``count`` samples of a scene as the page reads them. Outputs are stored as differences from the input,
    in its own steps of 1/65,534 of the mesh's size: 3 µm for a face."""
    first, inputs = scene.samples[0], scene.inputs[:count]
    centre = (inputs.reshape(-1, 3).min(axis=0) + inputs.reshape(-1, 3).max(axis=0)) / 2
    step = float(np.abs(inputs - centre).max()) / 32767
    return {
        "key": scene.key,
        "title": scene.title,
        "unit": first.unit_mm,
        "saturation": saturation_mm(scene),
        "faces": blobs.indices(first.faces),
        "levels": [{"kept": blobs.indices(x.kept), "faces": blobs.indices(x.faces)} for x in first.levels],
        "samples": list(first.names[:count]),
        "inputs": [blobs.steps(verts - centre, step) for verts in inputs],
        "methods": [
            _method(row, samples, blobs, count, step) for row, samples in zip(scene.methods, scene.samples, strict=True)
        ],
    }


def _method(row: Row, samples: MeshSamples, blobs: Blobs, count: int, step: float) -> dict[str, Any]:
    moved = {
        name: part[:count] - samples.parts["input"][:count] for name, part in samples.parts.items() if name != "input"
    }
    return {
        "name": row.method,
        "aside": row.larger or row.method.endswith("†"),
        "skip": row.look,
        "parts": {name: [blobs.steps(verts, step) for verts in part] for name, part in moved.items()},
    }


def _scene(experiment: Experiment, members: list[tuple[Row, MeshSamples]]) -> Scene:
    row = members[0][0]
    size = f", {row.column}" if row.column else ""
    further = "".join(f", {text}" for text in (*row.group[3:], experiment.data) if text)
    return Scene("", f"{row.family}{size}{further}", tuple(r for r, _ in members), tuple(s for _, s in members))


def _fingerprint(samples: MeshSamples) -> str:
    """The same for runs that show the same meshes, up to the rounding of float32."""
    low, high = samples.parts["input"].min(axis=(0, 1)), samples.parts["input"].max(axis=(0, 1))
    return (
        f"{samples.names} {samples.faces.shape} {int(samples.faces.astype(np.int64).sum())} {np.round(high - low, 3)}"
    )
