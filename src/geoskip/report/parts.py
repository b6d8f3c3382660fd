"""Shapes decoded by parts of blocks, one picture: the paper's Figure 4, with the convolutions' part too."""

from __future__ import annotations

import numpy as np

from geoskip.meshes import Mesh
from geoskip.records.samples import PARTS, MeshSamples
from geoskip.report.camera import view_of
from geoskip.report.pictures import picture, sheet
from geoskip.shapes import Shaped


def parts_sheet(samples: MeshSamples, size: int = 190, azimuth: float = 20.0) -> Shaped[np.ndarray, "rows cols 3"]:
    """A column for each sample, a row for each part that there is: the input, whole blocks, skips, convolutions.

    All are seen from one place, which the inputs decide, so that what a part makes larger runs out of its frame.
    """
    inputs = samples.parts["input"].astype(np.float64)
    view = view_of(inputs.reshape(-1, 3), azimuth, 5.0)
    shown = [
        picture(Mesh(verts.astype(np.float64), samples.faces), view, size=size)
        for name in PARTS
        if name in samples.parts
        for verts in samples.parts[name]
    ]
    return sheet(shown, columns=len(inputs))
