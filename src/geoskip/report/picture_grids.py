"""Grids of pictures: reconstructed and matched meshes, the parts of a decoder, the levels of a hierarchy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np

from geoskip.meshes import Mesh, MeshHierarchy
from geoskip.records.samples import CorrespondenceSamples, MeshSamples, Samples
from geoskip.report.charts import Series, draw_confusion, geodesic_chart, write_charts
from geoskip.report.palette import colored, position_colors
from geoskip.report.pictures import AZIMUTH, ELEVATION, Up, View, image_grid, picture, view_of, write_png
from geoskip.shapes import Float, Shaped

Colors = Float[np.ndarray, "_ 3"]  # of meshes of any size
Picture = Shaped[np.ndarray, "rows cols channels"]
# Vertices, faces and colors of a mesh; clay if there are none.
Shape = tuple[np.ndarray, np.ndarray, Colors | None]
# Where the paper's color scales end: vertex distance in mm, geodesic error in percent of the diameter.
PAPER_MM, PAPER_PCT = 5.0, 10.0


def write_pictures(
    folder: Path,
    samples: Samples,
    curves: Mapping[str, Sequence[tuple[float, float]]],
    arrays: Mapping[str, np.ndarray],
    class_names: Sequence[str] = (),
    up: Up = "y",
) -> list[Path]:
    """Write the pictures of an evaluation and return their paths.

    Curve and confusion matrix need matplotlib (the extra ``plots``); ImportError says so.
    """
    grids: dict[str, Picture] = {}
    if isinstance(samples, MeshSamples):
        grids["reconstructions.png"] = reconstruction_grid(samples, up=up)
        if "per_vertex_mm" in arrays:
            grids["mean-error.png"] = mean_error_grid(samples, arrays["per_vertex_mm"], up=up)
    if isinstance(samples, CorrespondenceSamples):
        grids["matches.png"] = match_grid(samples, up=up)
    for name, drawn in grids.items():
        write_png(folder / name, drawn)
    paths = [folder / name for name in grids]
    if "geodesic" in curves:
        curve = Series("this run", tuple(curves["geodesic"]))
        chart = geodesic_chart("geodesic", "Cumulative geodesic error", (curve,))
        paths += write_charts([chart], folder, ("png",))
    if "confusion" in arrays:
        paths.append(draw_confusion(folder / "confusion.png", arrays["confusion"], class_names))
    return paths


def errors_mm(samples: MeshSamples, part: str = "full") -> Float[np.ndarray, "samples vertices"]:
    """The distance of each vertex of each sample from its position in the input."""
    distances = np.linalg.norm(samples.parts[part].astype(np.float64) - samples.parts["input"], axis=2)
    return distances * samples.unit_mm


def shape_pictures(
    shapes: Iterable[Shape], size: int, view: View | None = None, up: Up = "y", transparent: bool = False
) -> list[Picture]:
    """A picture of each mesh: from ``view``, or in its own frame from the view that the page starts with."""
    meshes = [(Mesh(verts.astype(np.float64), faces.astype(np.int64)), colors) for verts, faces, colors in shapes]
    return [
        picture(mesh, view or view_of(mesh.verts, AZIMUTH, ELEVATION, up), colors, size, transparent=transparent)
        for mesh, colors in meshes
    ]


def part_shapes(samples: MeshSamples, part: str, colors: Iterable[Colors] | None = None) -> list[Shape]:
    """The samples of a part: the input, the reconstruction, or what skips or convolutions decode alone."""
    chosen = [None] * samples.count if colors is None else colors
    return [(verts, samples.faces, color) for verts, color in zip(samples.parts[part], chosen, strict=True)]


def reconstruction_grid(
    samples: MeshSamples, size: int = 240, up: Up = "y", largest: float | None = None
) -> Shaped[np.ndarray, "rows cols 3"]:
    """One column per sample: the input, its reconstruction, and the reconstruction colored by its error.

    largest: the error in mm where colors saturate; by default the 99th percentile over all samples.
    """
    errors = errors_mm(samples)
    high = (float(np.percentile(errors, 99)) if largest is None else largest) or 1.0
    rows = part_shapes(samples, "input") + part_shapes(samples, "full")
    rows += part_shapes(samples, "full", [colored(error, high) for error in errors])
    return image_grid(shape_pictures(rows, size, _view_of_inputs(samples, up)), columns=samples.count)


def parts_grid(samples: MeshSamples, size: int = 190) -> Shaped[np.ndarray, "rows cols 3"]:
    """One column per sample, one row per part: the input, whole blocks, skips only, convolutions only.

    All share the view of the inputs, so larger shapes leave their frame. This is the paper's Figure 4 with another row.
    """
    rows = [shape for part in samples.parts for shape in part_shapes(samples, part)]
    return image_grid(shape_pictures(rows, size, _view_of_inputs(samples, "y")), columns=samples.count)


def _view_of_inputs(samples: MeshSamples, up: Up) -> View:
    return view_of(samples.parts["input"].astype(np.float64).reshape(-1, 3), AZIMUTH, ELEVATION, up)


def mean_error_grid(
    samples: MeshSamples, errors: Float[np.ndarray, " vertices"], up: Up = "y"
) -> Shaped[np.ndarray, "rows cols 3"]:
    """The mean error of each vertex over the test items, on the first sample, from the front and the back."""
    verts = samples.parts["input"][0].astype(np.float64)
    shape = (verts, samples.faces, colored(errors.astype(np.float64), float(errors.max()) or 1.0))
    views = (view_of(verts, azimuth, ELEVATION, up) for azimuth in (AZIMUTH, AZIMUTH + 180))
    return image_grid([one for view in views for one in shape_pictures([shape], 420, view)], columns=2)


def match_grid(samples: CorrespondenceSamples, size: int = 300, up: Up = "y") -> Shaped[np.ndarray, "rows cols 3"]:
    """Top: the target in its own colors, and each sample in the colors transferred to it. Bottom: the geodesic error.

    The color scale ends at 10 % of the diameter, as in the paper; vertices without a label are blue-gray.
    """
    verts, faces = samples.target_verts, samples.target_faces
    colors = position_colors(verts.astype(np.float64))
    top: list[Shape] = [(verts, faces, colors)]
    top += [(body.verts, body.faces, colors[body.predicted]) for body in samples.meshes]
    bottom: list[Shape] = [(verts, faces, colored(np.zeros(len(verts)), PAPER_PCT))]
    bottom += [(body.verts, body.faces, colored(body.error_pct, PAPER_PCT)) for body in samples.meshes]
    return image_grid(shape_pictures(top + bottom, size, up=up), columns=len(top))


def level_grid(meshes: MeshHierarchy, size: int = 320, up: Up = "y") -> Shaped[np.ndarray, "rows cols 3"]:
    """Top: each level with its edges, finest first. Bottom: the finest mesh, upsampled from that level alone.

    The bottom row shows how much of the shape a level retains.
    """
    finest = meshes.levels[0]
    view = view_of(finest.verts, AZIMUTH, ELEVATION, up)
    # U_0 U_1 … U_{k-1} x_k for every level k.
    products = accumulate(meshes.up, lambda product, following: product @ following)
    upsampled = [matrix @ level.verts for matrix, level in zip(products, meshes.levels[1:], strict=True)]
    top = [picture(level, view, size=size, edges=True) for level in meshes.levels]
    bottom = [picture(finest.with_verts(verts), view, size=size) for verts in (finest.verts, *upsampled)]
    return image_grid(top + bottom, columns=len(top))
