"""Correspondences to be looked at: the target's colours carried over to each body, and where they are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from geoskip.records import CorrespondenceSamples
from geoskip.report.embed import Blobs
from geoskip.report.palette import place_colours
from geoskip.report.summary import Experiment, Row, sampled
from geoskip.shapes import Float

# Where the paper saturates its pictures of the geodesic error, in percent of the diameter.
PAPER_PCT = 10.0


@dataclass(frozen=True, eq=False)
class Matching:
    """Methods that matched the same bodies with the same target; the first seed of each is shown."""

    key: str
    title: str
    methods: tuple[Row, ...]
    samples: tuple[CorrespondenceSamples, ...]


def matchings(experiments: Sequence[Experiment]) -> list[Matching]:
    """Rows of one operator that have samples of the same bodies."""
    found = [
        _matching(f"{experiment.key}-{n}", experiment, members)
        for experiment in experiments
        for n, members in enumerate(sampled(experiment, CorrespondenceSamples, _bodies))
    ]
    return sorted(found, key=lambda matching: -len({row.skip for row in matching.methods}))


def embedded(matching: Matching, blobs: Blobs, count: int) -> dict[str, Any]:
    """The first ``count`` bodies of a matching as the page reads them."""
    first = matching.samples[0]
    bodies = first.meshes[:count]
    colours = np.round(255 * place_colours(first.target_verts.astype(np.float64))).astype(np.uint8)
    return {
        "key": matching.key,
        "title": matching.title,
        "saturation": PAPER_PCT,
        "samples": list(first.names[:count]),
        "faces": [blobs.indices(body.faces) for body in bodies],
        "verts": [blobs.steps(centred(body.verts)) for body in bodies],
        "unlabelled": any((body.labels < 0).any() for body in bodies),
        "target": {
            "faces": blobs.indices(first.target_faces),
            "verts": blobs.steps(centred(first.target_verts)),
            "colours": blobs.add(colours),
        },
        "methods": [_method(row, s, blobs, count) for row, s in zip(matching.methods, matching.samples, strict=True)],
    }


def centred(verts: Float[np.ndarray, "vertices 3"]) -> Float[np.ndarray, "vertices 3"]:
    return verts - (verts.min(axis=0) + verts.max(axis=0)) / 2


def _method(row: Row, samples: CorrespondenceSamples, blobs: Blobs, count: int) -> dict[str, Any]:
    return {
        "name": row.method,
        "skip": row.look,
        "predicted": [blobs.indices(body.predicted) for body in samples.meshes[:count]],
        # Below 0 where there is no label.
        "errors": [blobs.steps(np.nan_to_num(body.error_pct, nan=-1.0), 0.01) for body in samples.meshes[:count]],
        "right": [body.exact_pct for body in samples.meshes[:count]],
    }


def _bodies(samples: CorrespondenceSamples) -> str:
    sizes = [(body.verts.shape, body.faces.shape) for body in samples.meshes]
    return f"{samples.names} {sizes} {samples.target_verts.shape}"


def _matching(key: str, experiment: Experiment, members: list[tuple[Row, CorrespondenceSamples]]) -> Matching:
    row = members[0][0]
    further = "".join(f", {text}" for text in (*row.group[3:], experiment.data) if text)
    return Matching(key, f"{row.family}{further}", tuple(r for r, _ in members), tuple(s for _, s in members))
