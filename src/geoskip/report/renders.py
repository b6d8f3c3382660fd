"""Large renders for papers by pyvista (the extra ``renders``).

Without OpenGL, VTK crashes instead of raising an error. A separate process therefore draws them, so that a machine
without OpenGL only loses the renders.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geoskip.records import MeshSamples
from geoskip.report.palette import colored
from geoskip.report.pictures import AZIMUTH, ELEVATION, view_of
from geoskip.report.scenes import Scene, saturation_mm
from geoskip.report.sheets import errors_mm

DRAW = ["-m", "geoskip.report.renders"]
# The first import of pyvista is slow.
TIME_LIMIT_S, SECONDS_PER_RENDER = 120.0, 20.0


def write_renders(scenes: Sequence[Scene[MeshSamples]], folder: Path, size: int = 1200) -> list[Path]:
    """Draw the input and reconstructions of each scene's first sample as ``KEY-N.png``.

    RuntimeError, with the reason, if this machine cannot draw them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        jobs = [job for scene in scenes for job in _jobs(scene, folder, Path(temporary))]
        limit = TIME_LIMIT_S + SECONDS_PER_RENDER * len(jobs)
        request = json.dumps({"jobs": jobs, "size": size})
        try:
            command = [sys.executable, *DRAW]
            done = subprocess.run(command, input=request, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"renders: pyvista did not finish within {limit:g} s") from error
    if "No module named 'pyvista'" in done.stderr:
        raise RuntimeError("renders: need pyvista: pip install geoskip[renders]")
    if done.returncode != 0:
        raise RuntimeError(
            f"renders: pyvista ended with code {done.returncode}: {done.stderr.strip()[-400:]}. It needs OpenGL (on "
            "Debian: apt install libegl1 libegl-mesa0 libgl1-mesa-dri libgl1)"
        )
    return [Path(job["picture"]) for job in jobs]


def _jobs(scene: Scene[MeshSamples], folder: Path, temporary: Path) -> list[dict[str, str]]:
    high, first = saturation_mm(scene), scene.first
    shown = [(first.parts["input"][0], np.zeros(first.parts["input"].shape[1]))]
    shown += [(samples.parts["full"][0], errors_mm(samples)[0]) for _, samples in scene.shown]
    jobs = []
    for number, (verts, errors) in enumerate(shown):
        mesh = temporary / f"{scene.key}-{number}.npz"
        np.savez(mesh, verts=verts, faces=first.faces, colors=colored(errors, high))
        jobs.append({"mesh": str(mesh), "picture": str(folder / f"{scene.key}-{number}.png")})
    return jobs


def _render(job: dict[str, str], size: int) -> None:
    """One mesh, colored by vertex, from the view of the page, with a transparent background."""
    import pyvista

    with np.load(job["mesh"], allow_pickle=False) as arrays:
        verts, faces, colors = (arrays[name].astype(np.float64) for name in ("verts", "faces", "colors"))
    triangles = np.concatenate([np.full((len(faces), 1), 3), faces.astype(np.int64)], axis=1)
    surface: Any = pyvista.PolyData(verts, triangles.ravel())
    view = view_of(verts, AZIMUTH, ELEVATION)
    plotter: Any = pyvista.Plotter(off_screen=True, window_size=[size, size])
    plotter.add_mesh(surface, scalars=colors, rgb=True, smooth_shading=True, specular=0.15)
    plotter.enable_anti_aliasing("ssaa")
    towards, up = view.axes()[2], view.axes()[1]
    center = np.array(view.center)
    plotter.camera_position = [tuple(center + 4 * view.extent * towards), tuple(center), tuple(up)]
    plotter.enable_parallel_projection()
    plotter.camera.parallel_scale = view.extent / 2
    plotter.screenshot(job["picture"], transparent_background=True)
    plotter.close()


if __name__ == "__main__":
    request = json.load(sys.stdin)
    for job in request["jobs"]:
        _render(job, request["size"])
