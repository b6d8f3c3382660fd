"""The levels of a mesh hierarchy in one picture."""

from itertools import accumulate
from typing import Literal

import numpy as np

from geoskip.meshes import MeshHierarchy
from geoskip.report.camera import view_of
from geoskip.report.pictures import picture, sheet
from geoskip.shapes import Float, Shaped


def level_sheet(
    meshes: MeshHierarchy, size: int = 320, azimuth: float = 25.0, elevation: float = 10.0, up: Literal["y", "z"] = "y"
) -> Shaped[np.ndarray, "rows cols 3"]:
    """Above, each level with its edges, finest first; below, the finest mesh as the ``up`` matrices rebuild it from
    that level's vertices alone: what a decoder can still reach from there without adding anything."""
    finest = meshes.levels[0]
    view = view_of(finest.verts, azimuth, elevation, up)
    drawn = [picture(level, view, size=size, edges=True) for level in meshes.levels]
    rebuilt = [picture(finest.with_verts(verts), view, size=size) for verts in _rebuilt(meshes)]
    return sheet(drawn + rebuilt, columns=len(drawn))


def _rebuilt(meshes: MeshHierarchy) -> list[Float[np.ndarray, "vertices 3"]]:
    """U_0 U_1 … U_{k-1} x_k for every level k."""
    identity = [meshes.levels[0].verts]
    products = accumulate(meshes.up, lambda product, following: product @ following)
    return identity + [matrix @ level.verts for matrix, level in zip(products, meshes.levels[1:], strict=True)]
