"""Shaded pictures of meshes and PNG files, with numpy only: no OpenGL, no imaging library.

:func:`picture` draws one mesh from a :class:`View`, :func:`image_grid` puts pictures in a grid.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from geoskip.meshes import Mesh
from geoskip.records.files import atomic_write
from geoskip.report.palette import CLAY
from geoskip.shapes import Float, Int, Shaped

# The page's viewers start from this view too.
AZIMUTH, ELEVATION = 25.0, 8.0
BACKGROUND = (0.955, 0.96, 0.97)
GAMMA = 2.2
# Directions of the lamps in the frame of the camera (right, up, toward the eye), and their strengths.
LAMPS = (((-0.50, 0.60, 0.62), 0.86), ((0.90, 0.05, 0.40), 0.16))
AMBIENT = 0.10
# How far light wraps around the shape; a hard edge of the shadow would hide detail.
WRAP = 0.35
# Share of the size of a mesh that a view leaves free on each side.
MARGIN = 0.06
# Rays per pixel, along each side.
SAMPLES = 2
# Bounds the memory of one step: about 50 bytes per fragment.
FRAGMENTS_PER_STEP = 4_000_000
# In barycentric coordinates: a pixel on a shared edge belongs to both triangles rather than to none.
OVERLAP = 1e-7
Up = Literal["y", "z"]
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
    up: Up = "y"

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
    up: Up = "y",
) -> View:
    """A view that shows all of ``verts`` with a margin. Use one view for pictures that are to be compared."""
    axes = View((0.0, 0.0, 0.0), 1.0, azimuth, elevation, up).axes()
    low, high = (verts @ axes.T).min(axis=0), (verts @ axes.T).max(axis=0)
    x, y, z = ((low + high) / 2 @ axes).tolist()
    extent = float((high - low)[:2].max()) * (1 + 2 * MARGIN)
    return View((x, y, z), extent or 1.0, azimuth, elevation, up)


def picture(
    mesh: Mesh,
    view: View | None = None,
    colors: Float[np.ndarray, "vertices 3"] | None = None,
    size: int = 512,
    edges: bool = False,
    transparent: bool = False,
) -> Shaped[np.ndarray, "size size channels"]:
    """The mesh as uint8 RGB, with interpolated normals and colors and ``SAMPLES``² rays per pixel.

    view: by default, the whole mesh from the front.
    colors: sRGB in [0, 1]; clay by default. Back faces are darker.
    edges: draw the edges of the triangles, one pixel wide.
    transparent: RGBA with a transparent background.
    """
    light, covered = _light(mesh, view, colors, size, edges)
    if not transparent:
        return _bytes(light + (1 - covered) * np.array(BACKGROUND) ** GAMMA)
    own = np.divide(light, covered, out=np.zeros_like(light), where=covered > 0)
    return np.concatenate([_bytes(own), np.round(255 * covered).astype(np.uint8)], axis=2)


def _light(
    mesh: Mesh, view: View | None, colors: np.ndarray | None, size: int, edges: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Linear light at each pixel, and the fraction of the pixel that the mesh covers."""
    if mesh.num_vertices == 0:
        raise ValueError("mesh has no vertices, so there is nothing to draw")
    if colors is not None and colors.shape != (mesh.num_vertices, 3):
        raise ValueError(f"colors must be of shape ({mesh.num_vertices}, 3), not {colors.shape}")
    if size < 1:
        raise ValueError(f"size must be at least 1, not {size}")
    view, side = view or view_of(mesh.verts), size * SAMPLES
    corners = view.on_screen(mesh.verts, side)[mesh.faces]
    seen = visible(corners, side, side)
    base = np.array(CLAY) if colors is None else _mix(colors, mesh, seen)
    light = base**GAMMA * _shade(mesh, view, seen)
    if edges:
        light *= _between_edges(corners, seen, SAMPLES)[:, None]
    canvas = np.zeros((side**2, 4))
    canvas[seen.pixel, :3], canvas[seen.pixel, 3] = np.clip(light, 0, 1), 1
    pixels = canvas.reshape(size, SAMPLES, size, SAMPLES, 4).mean(axis=(1, 3))
    return pixels[:, :, :3], pixels[:, :, 3:]


def _bytes(light: np.ndarray) -> np.ndarray:
    return np.round(255 * np.clip(light, 0, 1) ** (1 / GAMMA)).astype(np.uint8)


def image_grid(
    pictures: Sequence[Shaped[np.ndarray, "height width channels"]], columns: int
) -> Shaped[np.ndarray, "rows cols channels"]:
    """Pictures of equal size in a grid with ``columns`` columns."""
    if not pictures or columns < 1:
        raise ValueError("a grid needs at least one picture and one column")
    background = np.array((*BACKGROUND, 0.0))[: pictures[0].shape[2]]
    blank = np.full_like(pictures[0], np.round(255 * background))
    padded = [*pictures, *[blank] * (-len(pictures) % columns)]
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


def png_bytes(picture: Shaped[np.ndarray, "height width channels"]) -> bytes:
    """A picture (uint8, RGB or RGBA) as the bytes of a PNG file with 8 bits per channel."""
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] not in (3, 4) or picture.size == 0:
        raise ValueError(f"picture must be uint8 of shape (height, width, 3 or 4), not {picture.dtype} {picture.shape}")
    height, width, channels = picture.shape
    # Filter 2 ("up") stores each row's difference from the one above, which compresses smooth shading well.
    rows = np.diff(picture, axis=0, prepend=np.zeros_like(picture[:1])).reshape(height, width * channels)
    filtered = np.concatenate([np.full((height, 1), 2, dtype=np.uint8), rows], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 6, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes(), 6)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def write_png(path: str | Path, picture: Shaped[np.ndarray, "height width channels"]) -> None:
    """Write a picture (uint8, RGB or RGBA) to ``path``."""
    atomic_write(path, png_bytes(picture))


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


@dataclass(frozen=True, eq=False)
class Visible:
    """The pixels that show a triangle.

    pixel: row · width + column, each at most once, ascending.
    face: the triangle seen there.
    weights: barycentric coordinates of the pixel's center in it.
    """

    pixel: Int[np.ndarray, " seen"]
    face: Int[np.ndarray, " seen"]
    weights: Float[np.ndarray, "seen 3"]


def visible(corners: Float[np.ndarray, "faces 3 3"], height: int, width: int) -> Visible:
    """The nearest triangle at each pixel center that is covered by one.

    corners: column, row (in pixels, the first center at one half) and depth (larger is nearer) of each
        triangle's corners. Both sides are seen; triangles without area on the screen are not.
    """
    to_weights = _barycentric_maps(corners[:, :, :2])
    plane = np.einsum("fk,fkj->fj", corners[:, :, 2], to_weights)
    depth = np.full(height * width, -np.inf)
    face = np.full(height * width, -1, dtype=np.int64)
    for owner, row, begin, length in _steps(_spans(corners, to_weights, height, width)):
        # Triangle, row and column of the center of every covered pixel.
        column = np.repeat(begin + 0.5, length) + _ramps(length)
        owner, row = np.repeat(owner, length), np.repeat(row + 0.5, length)
        z = plane[owner, 0] * column + plane[owner, 1] * row + plane[owner, 2]
        pixel = np.int64(width) * np.floor(row).astype(np.int64) + np.floor(column).astype(np.int64)
        np.maximum.at(depth, pixel, z)
        nearest = z == depth[pixel]
        face[pixel[nearest]] = owner[nearest]
    seen = np.flatnonzero(face >= 0)
    row, column = np.divmod(seen, width)
    center = np.stack([column + 0.5, row + 0.5, np.ones(len(seen))], axis=1)
    return Visible(seen, face[seen], np.einsum("pkj,pj->pk", to_weights[face[seen]], center))


def _barycentric_maps(corners: np.ndarray) -> np.ndarray:
    """For each triangle, the matrix from (column, row, 1) to barycentric coordinates; zero if it has no area."""
    system = np.concatenate([corners.transpose(0, 2, 1), np.ones((len(corners), 1, 3))], axis=1)
    flat = np.abs(np.linalg.det(system)) < 1e-9
    system[flat] = np.eye(3)
    maps = np.linalg.inv(system)
    maps[flat] = 0
    return maps


Spans = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _spans(corners: np.ndarray, to_weights: np.ndarray, height: int, width: int) -> Spans:
    """One entry for each pixel row that a triangle covers: triangle, row, first column, number of columns.

    On a row each barycentric coordinate is a·column + b: it bounds the columns from the left where a > 0,
    from the right where a < 0, and where a = 0 admits all or none.
    """
    drawn = to_weights.any(axis=(1, 2))
    first = np.clip(np.ceil(corners[:, :, 1].min(axis=1) - 0.5), 0, height).astype(np.int64)
    last = np.clip(np.floor(corners[:, :, 1].max(axis=1) - 0.5) + 1, 0, height).astype(np.int64)
    rows = np.where(drawn, np.maximum(last - first, 0), 0)
    owner = np.repeat(np.arange(len(corners)), rows)
    row = first[owner] + _ramps(rows)
    a = to_weights[owner, :, 0]
    b = to_weights[owner, :, 1] * (row + 0.5)[:, None] + to_weights[owner, :, 2] + OVERLAP
    crossing = -b / np.where(a == 0, 1, a)
    left = np.where(a > 0, crossing, np.where((a == 0) & (b < 0), np.inf, -np.inf)).max(axis=1)
    right = np.where(a < 0, crossing, np.inf).min(axis=1)
    begin = np.clip(np.ceil(left - 0.5), 0, width).astype(np.int64)
    end = np.clip(np.floor(right - 0.5) + 1, 0, width).astype(np.int64)
    kept = end > begin
    return owner[kept], row[kept], begin[kept], (end - begin)[kept]


def _steps(spans: Spans) -> Iterator[Spans]:
    """The spans in chunks of about ``FRAGMENTS_PER_STEP`` pixels."""
    step = np.cumsum(spans[3]) // FRAGMENTS_PER_STEP
    cuts = np.flatnonzero(np.diff(step)) + 1
    for part in np.split(np.arange(len(step)), cuts):
        owner, row, begin, length = (entry[part] for entry in spans)
        yield owner, row, begin, length


def _ramps(lengths: np.ndarray) -> np.ndarray:
    """0, 1, …, length - 1 for each length, concatenated."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
