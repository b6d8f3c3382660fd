"""Pictures of the experiments that show meshes: a row for each method, a column for each sample of the test set."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from geoskip.meshes import Mesh
from geoskip.paper.jobs import Job
from geoskip.paper.recipe import Experiment
from geoskip.records import CorrespondenceSamples, MeshSamples, RunRecord, read_samples
from geoskip.records.atomic import write_whole
from geoskip.records.samples import Samples
from geoskip.report.palette import color_scale, colored
from geoskip.report.pictures import picture, sheet
from geoskip.report.png import png_bytes

# Errors are saturated, as in the paper.
LARGEST_MM, LARGEST_PCT = 5.0, 10.0
SIZE = 240
Picture = np.ndarray


def draw(experiment: Experiment, done: Mapping[Job, RunRecord], out: Path, size: int = SIZE) -> list[Path]:
    """Draw the figure from the samples of its runs, those with the smallest seed; the files made.

    ``figures/NAME-DATA-SCHEDULE.png``, and beside it a JSON file that says what each of its rows is.
    """
    first = min(job.seed for job in done)
    jobs = [job for job in done if job.seed == first]
    paths = [(job, job.folder(out) / "samples.safetensors") for job in jobs]
    found = [(job, read_samples(path)) for job, path in paths if path.is_file()]
    if not found:
        raise ValueError(f"figure: no samples of {experiment.name} in {out / 'work'}; records alone cannot be drawn")
    rows = [
        row
        for number, (job, samples) in enumerate(found)
        for row in _rows(experiment.figure, job, samples, size, inputs=number == 0)
    ]
    pictures = [one for _, row in rows for one in row]
    place = out / "figures" / f"{experiment.name}-{jobs[0].data}-{jobs[0].schedule}.png"
    write_whole(place, png_bytes(sheet(pictures, len(rows[0][1]))))
    legend = {"title": experiment.title, "seed": first, "rows": [name for name, _ in rows]}
    if isinstance(found[0][1], CorrespondenceSamples):
        legend["blue-grey"] = "no label"
    write_whole(place.with_suffix(".json"), json.dumps(legend, indent=1, ensure_ascii=False).encode())
    return [place, place.with_suffix(".json")]


def _rows(figure: str, job: Job, samples: Samples, size: int, inputs: bool) -> list[tuple[str, list[Picture]]]:
    """What is drawn of one run, with a name for each row; ``inputs``: where methods share one row of inputs."""
    if isinstance(samples, CorrespondenceSamples):
        return [(job.recipe.label, _matched(samples, size))]
    assert isinstance(samples, MeshSamples)
    if figure == "errors":
        return [(job.recipe.label, _errors(samples, size))]
    if figure == "reconstructions":
        given = [("input", _part(samples, "input", size))] if inputs else []
        return [*given, (job.recipe.label, _part(samples, "full", size))]
    return [(f"{job.recipe.label}: {part}", _part(samples, part, size)) for part in ("input", "full", "affine")]


def _part(samples: MeshSamples, part: str, size: int) -> list[Picture]:
    return [picture(Mesh(verts.astype(float), samples.faces), size=size) for verts in samples.parts[part]]


def _errors(samples: MeshSamples, size: int) -> list[Picture]:
    """Reconstructions, coloured by how far each vertex is from where it should be."""
    full, true = (samples.parts[part].astype(float) for part in ("full", "input"))
    distances = np.linalg.norm(full - true, axis=2) * samples.unit_mm
    return [
        picture(Mesh(verts, samples.faces), colors=color_scale(errors, 0.0, LARGEST_MM), size=size)
        for verts, errors in zip(full, distances, strict=True)
    ]


def _matched(samples: CorrespondenceSamples, size: int) -> list[Picture]:
    """Bodies, coloured by the geodesic distance of each vertex's match from the true one; blue-grey without a label."""
    return [
        picture(
            Mesh(body.verts.astype(float), body.faces),
            colors=colored(body.error_pct.astype(float), LARGEST_PCT, "viridis"),
            size=size,
        )
        for body in samples.meshes
    ]
