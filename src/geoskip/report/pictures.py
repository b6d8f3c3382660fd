"""Shaded pictures of meshes from a chosen view: smooth, anti-aliased, colored by vertex. Numpy only, no OpenGL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from geoskip.meshes import Mesh
from geoskip.report.palette import CLAY
from geoskip.report.raster import Visible, visible
from geoskip.shapes import Float, Shaped

# The page's viewers start from this view too.
AZIMUTH, ELEVATION = 25.0, 8.0
BACKGROUND = (0.955, 0.96, 0.97)
GAMMA = 2.2
# Directions of the lamps in the frame of the camera (right, up, toward the eye), and their strengths.
LAMPS = (((-0.50, 0.60, 0.62), 0.86), ((0.90, 0.05, 0.40), 0.16))
AMBIENT = 0.10
# How far light wraps around the shape; a hard edge of the shadow would hide detail.
WRAP = 0.35
_Y_TO_Z_UP = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])


@dataclass(frozen=True)
class View:
    """An orthographic camera, ``azimuth`` degrees around the up axis from the front and ``elevation`` degrees above it.

    center: the point in the middle of the picture.
    extent: the length covered by the height and width of the picture.
    up: the axis that points up. The front is +z (y up) or -y (z up).
    """

    center: tuple[float, float, float]
    extent: float
    azimuth: float = 0.0
    elevation: float = 0.0
    up: Literal["y", "z"] = "y"

    def axes(self) -> Float[np.ndarray, "3 3"]:
        """Unit vectors to the right, up and toward the eye, as rows."""
        a, e = np.radians([self.azimuth, self.elevation])
        towards = np.array([np.sin(a) * np.cos(e), np.sin(e), np.cos(a) * np.cos(e)])
        right = np.array([np.cos(a), 0.0, -np.sin(a)])
        axes = np.stack([right, np.cross(towards, right), towards])
        return axes if self.up == "y" else axes @ _Y_TO_Z_UP

    def on_screen(self, verts: Float[np.ndarray, "vertices 3"], size: int) -> Float[np.ndarray, "vertices 3"]:
        """Column and row in pixels of a ``size``² picture, and depth (larger is nearer)."""
        rotated = (verts - np.array(self.center)) @ self.axes().T * (size / self.extent)
        return rotated * (1, -1, 1) + (size / 2, size / 2, 0)


def view_of(
    verts: Float[np.ndarray, "vertices 3"],
    azimuth: float = 0.0,
    elevation: float = 0.0,
    up: Literal["y", "z"] = "y",
    margin: float = 0.06,
) -> View:
    """A view that shows all of ``verts`` with a ``margin``. Use one view for pictures that are to be compared."""
    axes = View((0.0, 0.0, 0.0), 1.0, azimuth, elevation, up).axes()
    low, high = (verts @ axes.T).min(axis=0), (verts @ axes.T).max(axis=0)
    x, y, z = ((low + high) / 2 @ axes).tolist()
    extent = float((high - low)[:2].max()) * (1 + 2 * margin)
    return View((x, y, z), extent or 1.0, azimuth, elevation, up)


def picture(
    mesh: Mesh,
    view: View | None = None,
    colors: Float[np.ndarray, "vertices 3"] | None = None,
    size: int = 512,
    edges: bool = False,
    samples: int = 2,
) -> Shaped[np.ndarray, "size size 3"]:
    """The mesh as uint8 RGB, with interpolated normals and colors and ``samples``² rays per pixel.

    view: by default, the whole mesh from the front.
    colors: sRGB in [0, 1]; clay by default. Back faces are darker.
    edges: draw the edges of the triangles, one pixel wide.
    """
    light, covered = _light(mesh, view, colors, size, edges, samples)
    ground = np.array(BACKGROUND) ** GAMMA
    return _bytes(light + (1 - covered) * ground)


def cutout(
    mesh: Mesh,
    view: View | None = None,
    colors: Float[np.ndarray, "vertices 3"] | None = None,
    size: int = 512,
    samples: int = 2,
) -> Shaped[np.ndarray, "size size 4"]:
    """As :func:`picture`, as RGBA with a transparent background."""
    light, covered = _light(mesh, view, colors, size, False, samples)
    own = np.divide(light, covered, out=np.zeros_like(light), where=covered > 0)
    return np.concatenate([_bytes(own), np.round(255 * covered).astype(np.uint8)], axis=2)


def _light(
    mesh: Mesh, view: View | None, colors: np.ndarray | None, size: int, edges: bool, samples: int
) -> tuple[np.ndarray, np.ndarray]:
    """Linear light at each pixel, and the fraction of the pixel that the mesh covers."""
    _check(mesh, colors, size, samples)
    view = view or view_of(mesh.verts)
    corners = view.on_screen(mesh.verts, size * samples)[mesh.faces]
    seen = visible(corners, size * samples, size * samples)
    base = np.array(CLAY) if colors is None else _mix(colors, mesh, seen)
    light = base**GAMMA * _shade(mesh, view, seen)
    if edges:
        light *= _between_edges(corners, seen, samples)[:, None]
    canvas = np.zeros(((size * samples) ** 2, 4))
    canvas[seen.pixel, :3], canvas[seen.pixel, 3] = np.clip(light, 0, 1), 1
    pixels = canvas.reshape(size, samples, size, samples, 4).mean(axis=(1, 3))
    return pixels[:, :, :3], pixels[:, :, 3:]


def _bytes(light: np.ndarray) -> np.ndarray:
    return np.round(255 * np.clip(light, 0, 1) ** (1 / GAMMA)).astype(np.uint8)


def sheet(pictures: list[Shaped[np.ndarray, "height width 3"]], columns: int) -> Shaped[np.ndarray, "rows cols 3"]:
    """Pictures of equal size in a grid with ``columns`` columns."""
    if not pictures or columns < 1:
        raise ValueError("a grid needs at least one picture and one column")
    blank = np.full_like(pictures[0], np.round(255 * np.array(BACKGROUND)))
    padded = pictures + [blank] * (-len(pictures) % columns)
    rows = [np.concatenate(padded[i : i + columns], axis=1) for i in range(0, len(padded), columns)]
    return np.concatenate(rows)


def vertex_normals(mesh: Mesh) -> Float[np.ndarray, "vertices 3"]:
    """Unit vertex normals: means of the face normals weighted by area; zero if all faces are degenerate."""
    weighted = mesh.face_normals() * mesh.face_areas()[:, None]
    sums = np.zeros_like(mesh.verts)
    for corner in range(3):
        np.add.at(sums, mesh.faces[:, corner], weighted)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)


def _check(mesh: Mesh, colors: np.ndarray | None, size: int, samples: int) -> None:
    if mesh.num_vertices == 0:
        raise ValueError("mesh has no vertices, so there is nothing to draw")
    if colors is not None and colors.shape != (mesh.num_vertices, 3):
        raise ValueError(f"colors must be of shape ({mesh.num_vertices}, 3), not {colors.shape}")
    if size < 1 or samples < 1:
        raise ValueError(f"size and samples must be at least 1, not {size} and {samples}")


def _mix(values: np.ndarray, mesh: Mesh, seen: Visible) -> np.ndarray:
    """Values at the vertices, interpolated at each pixel."""
    return np.einsum("pk,pkc->pc", seen.weights, values[mesh.faces[seen.face]])


def _shade(mesh: Mesh, view: View, seen: Visible) -> np.ndarray:
    """Light at each pixel: ambient light from above, soft lamps, slight gloss."""
    behind = (mesh.face_normals() @ view.axes()[2] < 0)[seen.face]
    normals = _mix(vertex_normals(mesh) @ view.axes().T, mesh, seen)
    normals[behind] *= -1
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)
    light = AMBIENT * (1 + 0.5 * normals[:, 1])
    for direction, strength in LAMPS:
        towards = np.array(direction) / np.linalg.norm(direction)
        light += strength * np.maximum((normals @ towards + WRAP) / (1 + WRAP), 0) ** 1.5
        halfway = towards + np.array([0.0, 0.0, 1.0])
        light += 0.12 * strength * np.maximum(normals @ halfway / np.linalg.norm(halfway), 0) ** 30
    return np.where(behind, 0.35, 1.0)[:, None] * light[:, None]


def _between_edges(corners: np.ndarray, seen: Visible, width: int) -> np.ndarray:
    """Darkening by edges: 0.3 on an edge, 1 at ``width`` / 2 pixels from it and beyond, linear in between."""
    sides = (np.roll(corners, 1, axis=1) - np.roll(corners, -1, axis=1))[:, :, :2]
    (ux, uy), (vx, vy) = sides[:, 0].T, sides[:, 1].T
    doubled_areas = np.abs(ux * vy - uy * vx)
    heights = doubled_areas[:, None] / np.maximum(np.linalg.norm(sides, axis=2), 1e-12)
    nearest = (seen.weights * heights[seen.face]).min(axis=1)
    return 0.3 + 0.7 * np.clip(nearest / (width / 2), 0, 1)
