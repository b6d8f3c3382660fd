"""Keep the samples that the published page shows next to the records: ``python docs/make_samples.py [RESULTS]``.

For every record of seed 0 in results/runs whose run is in results/work, it writes DATA-SCHEDULE-0.samples.safetensors.
Positions are rounded to 16 bits, in steps of 4 µm for a face, so that the files are small enough for git.
"""

import argparse
import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from geoskip.records import CorrespondenceSamples, GraphSamples, MeshSamples, Samples, read_samples, write_samples
from geoskip.report.runs import SAMPLES

# As many superpixel graphs as the page shows.
GRAPHS = 24


def rounded(samples: Samples) -> Samples:
    """Samples whose positions are whole multiples of a step, so that they fit into 16 bits."""
    if isinstance(samples, MeshSamples):
        step = step_of(samples.parts["input"])
        parts = {name: np.round(part / step) for name, part in samples.parts.items()}
        return replace(samples, unit_mm=samples.unit_mm * step, parts=parts)
    if isinstance(samples, CorrespondenceSamples):
        step = step_of(samples.target_verts)
        meshes = tuple(
            replace(mesh, verts=np.round(mesh.verts / step), error_pct=half(mesh.error_pct)) for mesh in samples.meshes
        )
        return replace(samples, meshes=meshes, target_verts=np.round(samples.target_verts / step))
    return first_graphs(replace(samples, pos=half(samples.pos), x=half(samples.x[:, :1])))


def step_of(verts: np.ndarray) -> float:
    """The smallest power of two of which all coordinates are at most 2 ** 15 multiples: 4 µm for a face."""
    return 2.0 ** (math.ceil(math.log2(float(np.abs(verts).max()))) - 15)


def half(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float16).astype(np.float32)


def first_graphs(samples: GraphSamples) -> GraphSamples:
    """The first graphs, with every edge once."""
    offsets = samples.offsets[: GRAPHS + 1]
    senders, receivers = samples.edges
    return replace(
        samples,
        pos=samples.pos[: offsets[-1]],
        x=samples.x[: offsets[-1]],
        edges=samples.edges[:, (senders < receivers) & (receivers < offsets[-1])],
        offsets=offsets,
        true=samples.true[:GRAPHS],
        predicted=samples.predicted[:GRAPHS],
    )


def main(results: Path) -> list[Path]:
    """Write the samples of the runs that are there; their paths."""
    written = []
    for record in sorted((results / "runs").rglob("*-0.json")):
        runs = results / "work" / record.parent.relative_to(results / "runs")
        for path in sorted(runs.glob(f"{record.stem}-*/{SAMPLES}")):
            written.append(record.with_suffix(f".{SAMPLES}"))
            write_samples(written[-1], rounded(read_samples(path)))
    return written


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("results", nargs="?", type=Path, default=Path(__file__).parents[1] / "results")
    for path in main(options.parse_args().results):
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
