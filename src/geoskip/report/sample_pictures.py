"""Pictures of evaluated samples and of mesh hierarchies: grids of meshes, curves, confusion matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np

from geoskip.meshes import Mesh, MeshHierarchy
from geoskip.records.samples import PARTS, CorrespondenceSamples, MeshSamples
from geoskip.report.charts import save_figure
from geoskip.report.palette import colored, position_colors
from geoskip.report.pictures import AZIMUTH, ELEVATION, picture, sheet, view_of
from geoskip.report.png import write_png
from geoskip.shapes import Float, Int, Shaped

Up = Literal["y", "z"]


def write_pictures(
    folder: Path,
    samples: Any,
    curves: Mapping[str, Sequence[tuple[float, float]]],
    arrays: Mapping[str, np.ndarray],
    class_names: Sequence[str] = (),
    up: Up = "y",
) -> list[Path]:
    """Write the pictures of an evaluation and return their paths. ``samples``: see :mod:`geoskip.records.samples`.

    Curve and confusion matrix need matplotlib (the extra ``plots``); ImportError says so.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    if isinstance(samples, MeshSamples):
        paths.append(folder / "reconstructions.png")
        write_png(paths[-1], reconstruction_sheet(samples, up=up))
        if "per_vertex_mm" in arrays:
            paths.append(folder / "mean-error.png")
            write_png(paths[-1], mean_error(samples, arrays["per_vertex_mm"], up=up))
    if isinstance(samples, CorrespondenceSamples):
        paths.append(folder / "matches.png")
        write_png(paths[-1], match_sheet(samples, up=up))
    if "geodesic" in curves:
        paths.append(folder / "geodesic.png")
        draw_curve(paths[-1], curves["geodesic"])
    if "confusion" in arrays:
        paths.append(folder / "confusion.png")
        draw_confusion(paths[-1], arrays["confusion"], class_names)
    return paths


def reconstruction_sheet(
    samples: MeshSamples, size: int = 240, up: Up = "y", largest: float | None = None
) -> Shaped[np.ndarray, "rows cols 3"]:
    """One column per sample: the input, its reconstruction, and the reconstruction colored by its error.

    largest: the error in mm where colors saturate; by default the 99th percentile over all samples.
    """
    inputs, outputs = (samples.parts[name].astype(np.float64) for name in ("input", "full"))
    errors = reconstruction_errors_mm(samples)
    high = (float(np.percentile(errors, 99)) if largest is None else largest) or 1.0
    view = view_of(inputs.reshape(-1, 3), AZIMUTH, ELEVATION, up)
    rows = [picture(Mesh(verts, samples.faces), view, size=size) for verts in (*inputs, *outputs)]
    rows += [
        picture(Mesh(verts, samples.faces), view, colored(error, high), size)
        for verts, error in zip(outputs, errors, strict=True)
    ]
    return sheet(rows, columns=len(inputs))


def reconstruction_errors_mm(samples: MeshSamples) -> Float[np.ndarray, "samples vertices"]:
    """The distance of each vertex of each sample from its true position."""
    inputs, outputs = (samples.parts[name].astype(np.float64) for name in ("input", "full"))
    return np.linalg.norm(outputs - inputs, axis=2) * samples.unit_mm


def mean_error(
    samples: MeshSamples, errors: Float[np.ndarray, " vertices"], size: int = 420, up: Up = "y"
) -> Shaped[np.ndarray, "rows cols 3"]:
    """The mean error of each vertex over the test items, on the first sample, from the front and the back."""
    mesh = Mesh(samples.parts["input"][0].astype(np.float64), samples.faces)
    colors = colored(errors.astype(np.float64), float(errors.max()) or 1.0)
    views = (view_of(mesh.verts, azimuth, ELEVATION, up) for azimuth in (AZIMUTH, AZIMUTH + 180))
    return sheet([picture(mesh, view, colors, size) for view in views], columns=2)


def match_sheet(samples: CorrespondenceSamples, size: int = 300, up: Up = "y") -> Shaped[np.ndarray, "rows cols 3"]:
    """Top: the target in its own colors, and each sample in the colors transferred to it. Bottom: the geodesic error.

    The color scale ends at 10 % of the diameter, as in the paper; vertices without a label are blue-gray.
    """
    target = Mesh(samples.target_verts.astype(np.float64), samples.target_faces)
    colors = position_colors(target.verts)
    bodies = [(body, Mesh(body.verts.astype(np.float64), body.faces)) for body in samples.meshes]
    above = [(target, colors), *((mesh, colors[body.predicted]) for body, mesh in bodies)]
    below = [(target, colored(np.zeros(target.num_vertices), 10.0))]
    below += [(mesh, colored(body.error_pct.astype(np.float64), 10.0)) for body, mesh in bodies]
    drawn = [picture(m, view_of(m.verts, AZIMUTH, ELEVATION, up), c, size) for m, c in above + below]
    return sheet(drawn, columns=len(above))


def draw_curve(path: Path, points: Sequence[tuple[float, float]]) -> None:
    """The cumulative geodesic error of the Princeton protocol."""
    figure, axes = _figure(4.8, 3.6)
    axes.plot(*zip(*points, strict=True), color="#b3202a", linewidth=2)
    axes.set(xlabel="geodesic error, % of the diameter", ylabel="% of vertices within", ylim=(0, 100))
    axes.set_xlim(points[0][0], points[-1][0])
    axes.grid(alpha=0.25)
    save_figure(figure, path, dpi=150)


def draw_confusion(path: Path, counts: Int[np.ndarray, "classes classes"], class_names: Sequence[str] = ()) -> None:
    """Rows are true classes, columns are predicted classes; shades show shares of the row, numbers are counts."""
    classes = len(counts)
    names = list(class_names) or [str(number) for number in range(classes)]
    side = min(2.4 + 0.45 * classes, 16)
    figure, axes = _figure(side, side)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Reds", vmin=0, vmax=1)
    axes.set(xlabel="predicted", ylabel="true")
    axes.set_xticks(range(classes), names, rotation=45 if max(map(len, names)) > 3 else 0)
    axes.set_yticks(range(classes), names)
    if classes <= 20:
        for (row, column), count in np.ndenumerate(counts):
            shade = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, str(count), ha="center", va="center", color=shade, fontsize=7)
    save_figure(figure, path, dpi=150)


def _figure(width: float, height: float) -> tuple[Any, Any]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("curves and confusion matrices need matplotlib: pip install geoskip[plots]") from error
    figure = Figure((width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def parts_sheet(samples: MeshSamples, size: int = 190, azimuth: float = 20.0) -> Shaped[np.ndarray, "rows cols 3"]:
    """One column per sample, one row per part: the input, whole blocks, skips only, convolutions only.

    All share the view of the inputs, so larger shapes leave their frame. This is the paper's Figure 4 with another row.
    """
    inputs = samples.parts["input"].astype(np.float64)
    view = view_of(inputs.reshape(-1, 3), azimuth, 5.0)
    pictures = [
        picture(Mesh(verts.astype(np.float64), samples.faces), view, size=size)
        for name in PARTS
        if name in samples.parts
        for verts in samples.parts[name]
    ]
    return sheet(pictures, columns=len(inputs))


def level_sheet(
    meshes: MeshHierarchy, size: int = 320, azimuth: float = 25.0, elevation: float = 10.0, up: Literal["y", "z"] = "y"
) -> Shaped[np.ndarray, "rows cols 3"]:
    """Top: each level with its edges, finest first. Bottom: the finest mesh, upsampled from that level alone.

    The bottom row shows how much of the shape a level retains.
    """
    finest = meshes.levels[0]
    view = view_of(finest.verts, azimuth, elevation, up)
    drawn = [picture(level, view, size=size, edges=True) for level in meshes.levels]
    upsampled = [picture(finest.with_verts(verts), view, size=size) for verts in _upsampled(meshes)]
    return sheet(drawn + upsampled, columns=len(drawn))


def _upsampled(meshes: MeshHierarchy) -> list[Float[np.ndarray, "vertices 3"]]:
    """U_0 U_1 … U_{k-1} x_k for every level k."""
    identity = [meshes.levels[0].verts]
    products = accumulate(meshes.up, lambda product, following: product @ following)
    return identity + [matrix @ level.verts for matrix, level in zip(products, meshes.levels[1:], strict=True)]
