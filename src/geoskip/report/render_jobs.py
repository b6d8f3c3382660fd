"""Draws meshes with pyvista; run by :mod:`geoskip.report.renders` in a process of its own, with the jobs as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from geoskip.report.camera import view_of


def render(job: dict[str, str], size: int, azimuth: float, elevation: float) -> None:
    """One mesh, coloured by vertex, seen as in the page's viewers, on no background."""
    import pyvista

    with np.load(job["mesh"], allow_pickle=False) as arrays:
        verts, faces, colours = (arrays[name].astype(np.float64) for name in ("verts", "faces", "colours"))
    triangles = np.concatenate([np.full((len(faces), 1), 3), faces.astype(np.int64)], axis=1)
    surface: Any = pyvista.PolyData(verts, triangles.ravel())
    view = view_of(verts, azimuth, elevation)
    plotter: Any = pyvista.Plotter(off_screen=True, window_size=[size, size])
    plotter.add_mesh(surface, scalars=colours, rgb=True, smooth_shading=True, specular=0.15)
    plotter.enable_anti_aliasing("ssaa")
    towards, up = view.axes()[2], view.axes()[1]
    centre = np.array(view.centre)
    plotter.camera_position = [tuple(centre + 4 * view.extent * towards), tuple(centre), tuple(up)]
    plotter.enable_parallel_projection()
    plotter.camera.parallel_scale = view.extent / 2
    plotter.screenshot(job["picture"], transparent_background=True)
    plotter.close()


def main() -> None:
    order = json.load(sys.stdin)
    for job in order["jobs"]:
        render(job, order["size"], order["azimuth"], order["elevation"])


if __name__ == "__main__":
    main()
