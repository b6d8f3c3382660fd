"""CoMA: 20,466 registered faces of 12 people in 12 extreme expressions (Ranjan et al., ECCV 2018).

Read from the owners' ``COMA_data.zip``, or the folder it unpacks to: ``<subject>/<expression>/<frame>.ply``, 5,023
vertices each. Coordinates are in metres (a head is about 0.2 high), so errors are multiplied by 1000 to be in
millimetres.

Splits, over the listing sorted by name:
- interpolation: of every 100 consecutive frames of the whole listing the first 10 are the test, as in the code of
  Ranjan et al. and of Gong et al.; these take the files in the order the file system happens to give, so that their
  10 % are another 10 % on each machine.
- an expression: its sequences of all people are the test, all others are for training (extrapolation).
"""

import re
from pathlib import Path

import torch

from geoskip.data.catalog import COMA
from geoskip.data.mesh_family import read_family
from geoskip.data.mesh_set import MeshSet, StoredShapes
from geoskip.data.split import Split

EXPRESSIONS = (
    "bareteeth",
    "cheeks_in",
    "eyebrow",
    "high_smile",
    "lips_back",
    "lips_up",
    "mouth_down",
    "mouth_extreme",
    "mouth_middle",
    "mouth_open",
    "mouth_side",
    "mouth_up",
)
UNIT_MM = 1000.0
FRAME = re.compile(rf"(?:.*/)?([^/]+/(?:{'|'.join(EXPRESSIONS)})/[^/.][^/]*\.ply)")


def coma(place: str | Path | None = None, split: str = "interpolation", *, cache: Path | None = None) -> MeshSet:
    """The faces, split by ``"interpolation"`` or with one of ``EXPRESSIONS`` as the test.

    ``place`` is the archive or the folder; without it the data folder is looked at. The template is the first frame
    of the sorted listing, the beginning of a sequence and so nearly a neutral face.
    """
    if split != "interpolation" and split not in EXPRESSIONS:
        raise ValueError(f"split is 'interpolation' or one of {', '.join(EXPRESSIONS)}, not {split!r}")
    family = read_family(COMA.find(place), FRAME, "coma", cache)
    expressions = [name.split("/")[1] for name in family.names]
    extrapolation = torch.tensor([expression == split for expression in expressions])
    chosen = Split.blocks(len(family.names)) if split == "interpolation" else Split.by_mask(extrapolation)
    return MeshSet(family.mesh(0), StoredShapes(family.verts), family.names, chosen, UNIT_MM, family.content)
