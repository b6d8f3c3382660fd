"""Pictures of the first view, drawn without OpenGL: for print, and where a browser has no WebGL."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geoskip.meshes import Mesh
from geoskip.report.camera import view_of
from geoskip.report.matches import PAPER_PCT, Matching
from geoskip.report.palette import coloured, place_colours
from geoskip.report.pictures import cutout
from geoskip.report.png import png_bytes
from geoskip.report.scenes import Scene, errors_mm, saturation_mm
from geoskip.shapes import Shaped

# The page's viewers start from here too.
AZIMUTH, ELEVATION = 25.0, 8.0


@dataclass(frozen=True, eq=False)
class Still:
    """A PNG file and what it shows, in words."""

    png: bytes
    text: str


def scene_still(scene: Scene, size: int = 300) -> Still:
    """The input and what each method made of it, coloured by the error."""
    first, high = scene.samples[0], saturation_mm(scene)
    shapes = [first.parts["input"][0], *(samples.parts["full"][0] for samples in scene.samples)]
    errors = [np.zeros(len(shapes[0])), *(errors_mm(samples, "full", 0) for samples in scene.samples)]
    colours = [coloured(values.astype(np.float64), high) for values in errors]
    told = ", ".join(f"{row.method} {e.mean():.2f} mm" for row, e in zip(scene.methods, errors[1:], strict=True))
    text = f"{scene.title}: the mesh “{first.names[0]}” and what each method rebuilds of it. Mean error: {told}."
    return Still(png_bytes(_side_by_side(shapes, [first.faces] * len(shapes), colours, size)), text)


def matching_still(matching: Matching, size: int = 300) -> Still:
    """The target in its own colours, and what each method carries over to the first body."""
    first = matching.samples[0]
    colours = place_colours(first.target_verts.astype(np.float64))
    bodies = [samples.meshes[0] for samples in matching.samples]
    shapes = [first.target_verts, *(body.verts for body in bodies)]
    faces = [first.target_faces, *(body.faces for body in bodies)]
    carried = [colours, *(colours[body.predicted] for body in bodies)]
    text = (
        f"{matching.title}: the target, and the body “{first.names[0]}” in the colours that each method carries over "
        f"from it. {_mean_errors(matching)}"
    )
    return Still(png_bytes(_side_by_side(shapes, faces, carried, size)), text)


def _mean_errors(matching: Matching) -> str:
    means = [samples.meshes[0].mean_error_pct for samples in matching.samples]
    told = [f"{row.method} {mean:.1f} %" for row, mean in zip(matching.methods, means, strict=True) if mean is not None]
    if not told:
        return "None of its vertices has a label, so there is no error."
    return f"Mean geodesic error: {', '.join(told)} of the diameter; the page’s scale ends at {PAPER_PCT:g} %."


def _side_by_side(
    shapes: list[np.ndarray], faces: list[np.ndarray], colours: list[np.ndarray], size: int
) -> Shaped[np.ndarray, "rows cols 4"]:
    meshes = [Mesh(verts.astype(np.float64), f.astype(np.int64)) for verts, f in zip(shapes, faces, strict=True)]
    views = [view_of(mesh.verts, AZIMUTH, ELEVATION) for mesh in meshes]
    drawn = [cutout(mesh, view, c, size) for mesh, view, c in zip(meshes, views, colours, strict=True)]
    return np.concatenate(drawn, axis=1)
