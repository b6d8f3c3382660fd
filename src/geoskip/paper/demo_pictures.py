"""Pictures of the demo: what went in, what came out, and where it errs, the same view and scale for every method."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from geoskip.meshes import Mesh
from geoskip.records.samples import MeshSamples
from geoskip.report.palette import colored
from geoskip.report.pictures import picture, sheet, view_of
from geoskip.report.png import write_png
from geoskip.shapes import Shaped

AZIMUTH, ELEVATION = 25.0, 5.0
# Of all errors of all methods; few outliers would leave everything else dark.
WORST_SHOWN = 99.0
# Of one mesh, in pixels.
SIZE = 240


def write_demo_pictures(folder: Path, samples: Mapping[str, MeshSamples]) -> tuple[list[Path], float]:
    """A picture for each method; the paths, and the error in millimetres at which the colours end."""
    folder.mkdir(parents=True, exist_ok=True)
    high = float(np.percentile(np.concatenate([errors_mm(one).ravel() for one in samples.values()]), WORST_SHOWN))
    paths = []
    for name, one in samples.items():
        paths.append(folder / f"{name.lower()}.png")
        write_png(paths[-1], method_sheet(one, high, SIZE))
    return paths, high


def method_sheet(samples: MeshSamples, high: float, size: int) -> Shaped[np.ndarray, "rows cols 3"]:
    """A column for each sample: the input, its reconstruction, and that coloured by its error, up to ``high``."""
    inputs, found = (samples.parts[name].astype(np.float64) for name in ("input", "full"))
    view = view_of(inputs.reshape(-1, 3), AZIMUTH, ELEVATION)
    plain = [picture(Mesh(verts, samples.faces), view, size=size) for verts in (*inputs, *found)]
    pairs = zip(found, errors_mm(samples), strict=True)
    errors = [picture(Mesh(v, samples.faces), view, colored(error, high or 1.0), size) for v, error in pairs]
    return sheet(plain + errors, columns=len(inputs))


def errors_mm(samples: MeshSamples) -> np.ndarray:
    """Distance of each vertex of each sample from where it should be."""
    return np.linalg.norm(samples.parts["full"] - samples.parts["input"], axis=2).astype(np.float64) * samples.unit_mm
