"""Where a picture is seen from."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from geoskip.shapes import Float

_Y_TO_Z_UP = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])


@dataclass(frozen=True)
class View:
    """An orthographic eye, ``azimuth`` degrees round the up axis from the front and ``elevation`` above it.

    centre: the point in the middle of the picture.
    extent: the length that the picture's height and width cover.
    up: the axis that points up. The front is then +z (y up) or -y (z up).
    """

    centre: tuple[float, float, float]
    extent: float
    azimuth: float = 0.0
    elevation: float = 0.0
    up: Literal["y", "z"] = "y"

    def axes(self) -> Float[np.ndarray, "3 3"]:
        """Right, up and towards the eye, as rows."""
        a, e = np.radians([self.azimuth, self.elevation])
        towards = np.array([np.sin(a) * np.cos(e), np.sin(e), np.cos(a) * np.cos(e)])
        right = np.array([np.cos(a), 0.0, -np.sin(a)])
        axes = np.stack([right, np.cross(towards, right), towards])
        return axes if self.up == "y" else axes @ _Y_TO_Z_UP

    def on_screen(self, verts: Float[np.ndarray, "vertices 3"], size: int) -> Float[np.ndarray, "vertices 3"]:
        """Column and row in pixels of a ``size``² picture, and depth, larger for what is nearer."""
        placed = (verts - np.array(self.centre)) @ self.axes().T * (size / self.extent)
        return placed * (1, -1, 1) + (size / 2, size / 2, 0)


def view_of(
    verts: Float[np.ndarray, "vertices 3"],
    azimuth: float = 0.0,
    elevation: float = 0.0,
    up: Literal["y", "z"] = "y",
    margin: float = 0.06,
) -> View:
    """The view that shows all of ``verts`` with a ``margin``; one view for several pictures compares them."""
    axes = View((0.0, 0.0, 0.0), 1.0, azimuth, elevation, up).axes()
    low, high = (verts @ axes.T).min(axis=0), (verts @ axes.T).max(axis=0)
    x, y, z = ((low + high) / 2 @ axes).tolist()
    extent = float((high - low)[:2].max()) * (1 + 2 * margin)
    return View((x, y, z), extent or 1.0, azimuth, elevation, up)
