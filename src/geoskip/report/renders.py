"""Large renders for papers by pyvista (the extra ``renders``).

Without OpenGL, VTK crashes instead of raising an error. A separate process therefore tests whether it can draw, and
another one draws, so that a machine without OpenGL only loses the renders.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from geoskip.report.palette import colored
from geoskip.report.pictures import AZIMUTH, ELEVATION, view_of
from geoskip.report.scenes import Scene, errors_mm, saturation_mm

PROBE = "import pyvista as p; q = p.Plotter(off_screen=True); q.add_mesh(p.Sphere()); q.screenshot(return_img=True)"
DRAW = ["-m", "geoskip.report.renders"]
TIME_LIMIT_S = 120.0


def renders_missing() -> str:
    """The reason why this machine cannot draw renders; empty if it can."""
    try:
        done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"pyvista did not draw within {TIME_LIMIT_S:g} s"
    if done.returncode == 0:
        return ""
    if "ModuleNotFoundError" in done.stderr:
        return "renders need pyvista: pip install geoskip[renders]"
    return "pyvista cannot use OpenGL here (on Debian: apt install libegl1 libegl-mesa0 libgl1-mesa-dri libgl1)"


def write_renders(scenes: list[Scene], folder: Path, size: int = 1200) -> list[Path]:
    """Draw the input and reconstructions of each scene's first sample as ``KEY-N.png``, in a separate process."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        jobs = [job for scene in scenes for job in _jobs(scene, folder, Path(temporary))]
        request = {"jobs": jobs, "size": size, "azimuth": AZIMUTH, "elevation": ELEVATION}
        done = subprocess.run(
            [sys.executable, *DRAW],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S + 20 * len(jobs),
        )
    if done.returncode != 0:
        raise RuntimeError(f"renders: pyvista ended with code {done.returncode}: {done.stderr.strip()[-400:]}")
    return [Path(job["picture"]) for job in jobs]


def _jobs(scene: Scene, folder: Path, temporary: Path) -> list[dict[str, str]]:
    high, first = saturation_mm(scene), scene.samples[0]
    shown = [(first.parts["input"][0], np.zeros(first.parts["input"].shape[1]))]
    shown += [(samples.parts["full"][0], errors_mm(samples, "full", 0)) for samples in scene.samples]
    jobs = []
    for number, (verts, errors) in enumerate(shown):
        mesh = temporary / f"{scene.key}-{number}.npz"
        np.savez(mesh, verts=verts, faces=first.faces, colors=colored(errors.astype(np.float64), high))
        jobs.append({"mesh": str(mesh), "picture": str(folder / f"{scene.key}-{number}.png")})
    return jobs


def _render(job: dict[str, str], size: int, azimuth: float, elevation: float) -> None:
    """One mesh, colored by vertex, from the view of the page, with a transparent background."""
    import pyvista

    with np.load(job["mesh"], allow_pickle=False) as arrays:
        verts, faces, colors = (arrays[name].astype(np.float64) for name in ("verts", "faces", "colors"))
    triangles = np.concatenate([np.full((len(faces), 1), 3), faces.astype(np.int64)], axis=1)
    surface: Any = pyvista.PolyData(verts, triangles.ravel())
    view = view_of(verts, azimuth, elevation)
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


def main() -> None:
    request = json.load(sys.stdin)
    for job in request["jobs"]:
        _render(job, request["size"], request["azimuth"], request["elevation"])


if __name__ == "__main__":
    main()
