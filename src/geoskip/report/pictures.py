"""Shaded pictures of meshes: smooth, anti-aliased, coloured by vertex; numpy only, no OpenGL."""

import numpy as np

from geoskip.meshes import Mesh
from geoskip.report.camera import View, view_of
from geoskip.report.raster import Visible, visible
from geoskip.shapes import Float, Shaped

CLAY = (0.80, 0.73, 0.68)
BACKGROUND = (0.955, 0.96, 0.97)
GAMMA = 2.2
# Directions to the lamps in the camera's frame (right, up, towards the eye), and their strengths.
LAMPS = (((-0.50, 0.60, 0.62), 0.86), ((0.90, 0.05, 0.40), 0.16))
AMBIENT = 0.10
# How far light reaches past the terminator: skin scatters, and a hard edge hides shape.
WRAP = 0.35
# Nine colours of matplotlib's viridis (CC0).
HEAT = np.array(
    [
        (0.267, 0.005, 0.329), (0.279, 0.175, 0.483), (0.230, 0.322, 0.546), (0.173, 0.449, 0.558),
        (0.128, 0.567, 0.551), (0.158, 0.684, 0.502), (0.369, 0.789, 0.383), (0.678, 0.864, 0.190),
        (0.993, 0.906, 0.144),
    ]
)  # fmt: skip


def picture(
    mesh: Mesh,
    view: View | None = None,
    colours: Float[np.ndarray, "vertices 3"] | None = None,
    size: int = 512,
    edges: bool = False,
    samples: int = 2,
) -> Shaped[np.ndarray, "size size 3"]:
    """The mesh as uint8 red, green, blue: interpolated normals and colours, ``samples``² rays a pixel.

    view: where from; all of the mesh from the front where not given.
    colours: sRGB in [0, 1]; a clay tone where not given. Faces seen from behind are darker.
    edges: draw the triangles' edges, one pixel wide.
    """
    light, covered = _light(mesh, view, colours, size, edges, samples)
    ground = np.array(BACKGROUND) ** GAMMA
    return _bytes(light + (1 - covered) * ground)


def cutout(
    mesh: Mesh,
    view: View | None = None,
    colours: Float[np.ndarray, "vertices 3"] | None = None,
    size: int = 512,
    samples: int = 2,
) -> Shaped[np.ndarray, "size size 4"]:
    """As :func:`picture`, without a background: red, green, blue and how far the mesh covers the pixel."""
    light, covered = _light(mesh, view, colours, size, False, samples)
    own = np.divide(light, covered, out=np.zeros_like(light), where=covered > 0)
    return np.concatenate([_bytes(own), np.round(255 * covered).astype(np.uint8)], axis=2)


def _light(
    mesh: Mesh, view: View | None, colours: np.ndarray | None, size: int, edges: bool, samples: int
) -> tuple[np.ndarray, np.ndarray]:
    """Linear light of the mesh at each pixel, and the part of the pixel that it covers."""
    _check(mesh, colours, size, samples)
    view = view or view_of(mesh.verts)
    corners = view.on_screen(mesh.verts, size * samples)[mesh.faces]
    seen = visible(corners, size * samples, size * samples)
    base = np.array(CLAY) if colours is None else _mix(colours, mesh, seen)
    light = base**GAMMA * _shade(mesh, view, seen)
    if edges:
        light *= _between_edges(corners, seen, samples)[:, None]
    canvas = np.zeros(((size * samples) ** 2, 4))
    canvas[seen.pixel, :3], canvas[seen.pixel, 3] = np.clip(light, 0, 1), 1
    pixels = canvas.reshape(size, samples, size, samples, 4).mean(axis=(1, 3))
    return pixels[:, :, :3], pixels[:, :, 3:]


def _bytes(light: np.ndarray) -> np.ndarray:
    return np.round(255 * np.clip(light, 0, 1) ** (1 / GAMMA)).astype(np.uint8)


def colour_scale(
    values: Float[np.ndarray, "vertices"], low: float | None = None, high: float | None = None
) -> Float[np.ndarray, "vertices 3"]:
    """Colours from violet (``low``, the least value) over green to yellow (``high``, the largest)."""
    low = float(values.min()) if low is None else low
    high = float(values.max()) if high is None else high
    place = (values - low) / (high - low or 1.0) * (len(HEAT) - 1)
    return np.stack([np.interp(place, np.arange(len(HEAT)), channel) for channel in HEAT.T], axis=1)


def sheet(pictures: list[Shaped[np.ndarray, "height width 3"]], columns: int) -> Shaped[np.ndarray, "rows cols 3"]:
    """Pictures of one size side by side, ``columns`` to a row."""
    if not pictures or columns < 1:
        raise ValueError("a sheet has at least one picture and one column")
    blank = np.full_like(pictures[0], np.round(255 * np.array(BACKGROUND)))
    padded = pictures + [blank] * (-len(pictures) % columns)
    rows = [np.concatenate(padded[i : i + columns], axis=1) for i in range(0, len(padded), columns)]
    return np.concatenate(rows)


def vertex_normals(mesh: Mesh) -> Float[np.ndarray, "vertices 3"]:
    """Unit means of the faces' normals, weighted by area; zero where no face has any."""
    weighted = mesh.face_normals() * mesh.face_areas()[:, None]
    sums = np.zeros_like(mesh.verts)
    for corner in range(3):
        np.add.at(sums, mesh.faces[:, corner], weighted)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)


def _check(mesh: Mesh, colours: np.ndarray | None, size: int, samples: int) -> None:
    if mesh.num_verts == 0:
        raise ValueError("mesh has no vertices: there is nothing to draw")
    if colours is not None and colours.shape != (mesh.num_verts, 3):
        raise ValueError(f"colours must be of shape ({mesh.num_verts}, 3), not {colours.shape}")
    if size < 1 or samples < 1:
        raise ValueError(f"size and samples must be at least 1, not {size} and {samples}")


def _mix(values: np.ndarray, mesh: Mesh, seen: Visible) -> np.ndarray:
    """Values at the vertices, interpolated at each pixel."""
    return np.einsum("pk,pkc->pc", seen.weights, values[mesh.faces[seen.face]])


def _shade(mesh: Mesh, view: View, seen: Visible) -> np.ndarray:
    """Light at each pixel: ambient from above, soft lamps, a faint gloss."""
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
    """0.3 on the edges, 1 further than ``width`` / 2 pixels from them, linear between the two."""
    sides = (np.roll(corners, 1, axis=1) - np.roll(corners, -1, axis=1))[:, :, :2]
    (ux, uy), (vx, vy) = sides[:, 0].T, sides[:, 1].T
    doubled_areas = np.abs(ux * vy - uy * vx)
    heights = doubled_areas[:, None] / np.maximum(np.linalg.norm(sides, axis=2), 1e-12)
    nearest = (seen.weights * heights[seen.face]).min(axis=1)
    return 0.3 + 0.7 * np.clip(nearest / (width / 2), 0, 1)
