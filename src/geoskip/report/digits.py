"""Classified graphs to be looked at: each drawn once, with what every method took it for."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from geoskip.records import GraphSamples
from geoskip.report.embed import Blobs
from geoskip.report.summary import Experiment, Row, sampled


def galleries(experiments: Sequence[Experiment], blobs: Blobs, count: int = 24) -> list[dict[str, Any]]:
    """The first ``count`` graphs that runs of a group show, and what each run took them for."""
    found = []
    for experiment in experiments:
        groups = sampled(experiment, GraphSamples, _fingerprint)
        found += [_gallery(experiment, members, blobs, count) for members in reversed(groups)]
    return sorted(found, key=lambda gallery: -len(gallery["methods"]))


def _fingerprint(samples: GraphSamples) -> Hashable:
    """The same for runs that show the same graphs."""
    return samples.pos.tobytes(), samples.true.tobytes(), samples.class_names


def _gallery(
    experiment: Experiment, members: list[tuple[Row, GraphSamples]], blobs: Blobs, count: int
) -> dict[str, Any]:
    row, graphs = members[0]
    chosen = range(min(count, len(graphs.true)))
    return {
        "title": ", ".join(filter(None, (row.family, _coordinates(row), *row.group[3:], experiment.data))),
        "classes": list(graphs.class_names),
        "graphs": [_graph(graphs, number, blobs) | {"true": int(graphs.true[number])} for number in chosen],
        "methods": [
            {"name": row.method, "skip": row.look, "predicted": [int(samples.predicted[n]) for n in chosen]}
            for row, samples in members
        ],
    }


def _coordinates(row: Row) -> str:
    """What pseudo-coordinates are made of, for operators that look at them."""
    return f"by {row.group[2]}" if row.group[2] and row.operator in ("monet", "spline") else ""


def _graph(graphs: GraphSamples, number: int, blobs: Blobs) -> dict[str, Any]:
    """Positions in a square of side 1, brightness from 0 to 1, and every edge once."""
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
