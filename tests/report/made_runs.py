"""Runs that were never trained: records with plausible figures and samples of made-up errors, for the page to show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from geoskip.meshes import Mesh, icosphere, mesh_hierarchy
from geoskip.paper.claims import published_tables
from geoskip.paper.experiments import EXPERIMENTS
from geoskip.paper.rows import PaperRow
from geoskip.records import (
    CorrespondenceSamples,
    GraphSamples,
    MatchedMesh,
    MeshLevel,
    MeshSamples,
    RunRecord,
    Samples,
    write_record,
    write_samples,
)
from geoskip.report.runs import ReportRun
from geoskip.report.summary import ResultTable
from geoskip.report.summary import result_tables as summarized

HARM = {"none": 1.0, "residual": 0.55, "affine": 0.35}


@dataclass(frozen=True, eq=False)
class Shapes:
    """What the made-up runs rebuild: meshes of one connectivity, their names, and coarser levels of the first."""

    verts: np.ndarray
    faces: np.ndarray
    names: tuple[str, ...]
    levels: tuple[MeshLevel, ...] = ()
    unit_mm: float = 1.0


def spheres(subdivisions: int = 2, count: int = 2) -> Shapes:
    """Dented spheres of 100 mm."""
    mesh = icosphere(subdivisions, 100.0)
    turns = np.arange(count)[:, None]
    dents = 1 + 0.2 * np.sin(3 * mesh.verts[None, :, 0] / 100 + turns) * np.cos(2 * mesh.verts[None, :, 1] / 100)
    levels = levels_of(mesh, (4,) if subdivisions < 3 else (4, 4))
    return Shapes(mesh.verts * dents[:, :, None], mesh.faces, tuple(f"sphere {n}" for n in range(count)), levels)


def levels_of(mesh: Mesh, factors: tuple[int, ...]) -> tuple[MeshLevel, ...]:
    hierarchy = mesh_hierarchy(mesh, factors)
    kept = np.arange(mesh.num_vertices)
    found = []
    for step, level in zip(hierarchy.kept, hierarchy.levels[1:], strict=True):
        kept = kept[step]
        found.append(MeshLevel(kept, level.faces))
    return tuple(found)


def rough(shapes: Shapes, seed: int, size: float) -> np.ndarray:
    """A smooth displacement of each sample with a mean length of ``size``."""
    rng = np.random.default_rng(seed)
    unit = shapes.verts / np.abs(shapes.verts).max()
    waves = [np.sin(unit @ rng.normal(0, 6, 3) + rng.uniform(0, 6))[..., None] * rng.normal(size=3) for _ in range(6)]
    field = np.sum(waves, axis=0) ** 3
    return field * size / np.linalg.norm(field, axis=2).mean()


def mesh_samples(shapes: Shapes, skip: str, seed: int, mean: float) -> MeshSamples:
    given = shapes.verts
    parts = {"input": given, "full": given + rough(shapes, seed, mean / shapes.unit_mm)}
    if skip != "none":
        average = given.mean(axis=0, keepdims=True)
        parts["affine"] = 0.9 * average + 0.1 * given
        parts["convolution"] = 3 * given + rough(shapes, seed + 7, 8 / shapes.unit_mm)
    return MeshSamples(shapes.names, shapes.faces, shapes.unit_mm, parts, shapes.levels)


def matched(shapes: Shapes, wrong: float, seed: int) -> CorrespondenceSamples:
    """Matches with the first shape, a part of them with some vertex elsewhere."""
    rng = np.random.default_rng(seed)
    count, num_vertices = shapes.verts.shape[:2]
    labels = np.tile(np.arange(num_vertices), (count, 1))
    place = rough(shapes, seed, 1.0)[..., 0]
    off = place > np.quantile(place, 1 - wrong)
    predicted = np.where(off, rng.permutation(num_vertices)[labels], labels)
    target = shapes.verts[0]
    far = np.linalg.norm(target[predicted] - target[labels], axis=2)
    error = 100 * far / np.linalg.norm(np.ptp(target, axis=0))
    meshes = tuple(
        MatchedMesh(name, verts, shapes.faces, *arrays)
        for name, verts, *arrays in zip(shapes.names, shapes.verts, predicted, labels, error, strict=True)
    )
    return CorrespondenceSamples(meshes, target, shapes.faces)


def digit_samples(right: float, seed: int, count: int = 12) -> GraphSamples:
    """Rings and bars of 75 dots."""
    rng, drawn = np.random.default_rng(5), np.random.default_rng(seed)
    pos = rng.random((count, 75, 2)) * 28
    true = np.arange(count) % 10
    radius = np.linalg.norm(pos - 14, axis=2)
    bright = np.where(true[:, None] % 2 == 0, np.exp(-((radius - 7) ** 2) / 6), np.exp(-((pos[..., 0] - 14) ** 2) / 6))
    apart = np.linalg.norm(pos[:, :, None] - pos[:, None], axis=3)
    graph, senders, receivers = np.nonzero((apart < 5) & (apart > 0))
    predicted = np.where(drawn.random(count) < right, true, (true + 1) % 10)
    return GraphSamples(
        pos.reshape(-1, 2),
        bright.reshape(-1, 1),
        np.stack([75 * graph + senders, 75 * graph + receivers]),
        75 * np.arange(count + 1),
        true,
        predicted,
        tuple(map(str, range(10))),
    )


def result_tables(runs: Sequence[ReportRun]) -> list[ResultTable]:
    """As ``geoskip report`` sums runs up: compared with the paper's tables."""
    return summarized(runs, published_tables())


def made_run(row: PaperRow, /, data: str, seed: int, samples: Samples | None = None, **changes: Any) -> ReportRun:
    """A run of a row of the paper, with figures near the paper's own."""
    rng = np.random.default_rng([seed, *row.label.encode()])
    metrics = {name: float(value * (1 + 0.02 * rng.normal())) for name, value in row.paper.items()}
    accuracy = min(metrics.get("accuracy_pct", 0.0), 99.0)
    curves: dict[str, list[tuple[float, float]]] = {
        "loss": [
            (float(e), float(0.3 * np.exp(-e / 6) + 0.1 * HARM[row.skip] + 0.01 * rng.random())) for e in range(1, 41)
        ]
    }
    if row.task == "correspondence":
        metrics["geodesic_mean_pct"] = (100 - accuracy) / 8
        curves["geodesic"] = [(x / 5, 100 - (100 - accuracy) * float(np.exp(-x / 12))) for x in range(51)]
    config = {
        "task": row.task, "data": data, "operator": row.operator, "skip": row.skip, "kernel_size": row.kernel_size,
        "pseudo": row.pseudo, "options": dict(row.options), "seed": seed,
    }  # fmt: skip
    entries: dict[str, Any] = {
        "name": row.method, "config": config, "seed": seed, "parameters": int(row.figures.get("params", 1000)),
        "steps": 1000, "epochs": 40.0, "seconds": 600.0, "device": "a made-up device", "versions": {"geoskip": "0"},
        "metrics": metrics, "curves": curves, "experiment": row.home, "row": row.label, "schedule": "short",
        "paper": dict(row.paper),
    }  # fmt: skip
    return ReportRun(RunRecord(**(entries | changes)), samples)


def made_runs(shapes: Shapes, bodies: Shapes, seeds: int = 3, patterns: tuple[str, ...] = ()) -> list[ReportRun]:
    """Every row of Table 1, of the correspondence and of the superpixels; the first seed of each has samples."""
    runs = []
    for number, row in enumerate(EXPERIMENTS["table1"].select(patterns)):
        error = row.paper["mean_mm"]
        sampled = mesh_samples(shapes, row.skip, number, error) if row.column != 14 else None
        runs += [made_run(row, "faces", seed, sampled if seed == 0 else None) for seed in range(seeds)]
    for number, row in enumerate(EXPERIMENTS["correspondence"].rows):
        wrong = 1 - row.paper.get("accuracy_pct", 50.0) / 100
        runs += [made_run(row, "bodies", s, matched(bodies, wrong, number) if s == 0 else None) for s in range(seeds)]
    for number, row in enumerate(EXPERIMENTS["table2"].rows):
        right = row.paper["accuracy_pct"] / 100
        runs += [
            made_run(row, "superpixels", s, digit_samples(right, number) if s == 0 else None) for s in range(seeds)
        ]
    return runs


def write_runs(folder: Path, runs: list[ReportRun]) -> None:
    for number, run in enumerate(runs):
        write_record(folder / f"run-{number:03d}" / "record.json", run.record)
        if run.samples is not None:
            write_samples(folder / f"run-{number:03d}" / "samples.safetensors", run.samples)
