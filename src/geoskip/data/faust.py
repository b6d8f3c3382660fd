"""MPI-FAUST: 100 registered bodies, 10 people in 10 poses (Bogo et al., CVPR 2014), for dense correspondence.

Read from the owners' ``MPI-FAUST.zip``, or the folder it unpacks to: the training registrations ``tr_reg_000.ply`` to
``tr_reg_099.ply``, 6,890 vertices each, in metres. Their vertices correspond by number. The first 80 are for training
and the last 20 for the test, as in Monti et al. (CVPR 2017); the first one is the target whose vertices are the
classes, and on which geodesic errors are measured (:func:`geoskip.data.geodesics.geodesics`).
"""

import re
from pathlib import Path

import torch

from geoskip.data.archives import ArchiveError
from geoskip.data.catalog import FAUST
from geoskip.data.correspondence_set import CorrespondenceSet
from geoskip.data.mesh_family import read_family
from geoskip.data.split import Split

UNIT_MM = 1000.0
NUM_MESHES, NUM_TRAIN = 100, 80
REGISTRATION = re.compile(r"(?:.*/)?(tr_reg_\d{3}\.ply)")


def faust(place: str | Path | None = None, *, cache: Path | None = None) -> CorrespondenceSet:
    """The registrations; ``place`` is the archive or the folder, without it the data folder is looked at."""
    path = FAUST.find(place)
    family = read_family(path, REGISTRATION, "faust", cache)
    expected = [f"tr_reg_{number:03d}.ply" for number in range(NUM_MESHES)]
    if missing := sorted(set(expected) - set(family.names)):
        raise ArchiveError(f"{path}: {len(missing)} of {NUM_MESHES} registrations are missing, the first {missing[0]}")
    meshes = tuple(family.mesh(item) for item in range(NUM_MESHES))
    same = torch.arange(meshes[0].num_vertices)
    split = Split.leading(NUM_MESHES, NUM_TRAIN)
    labels = (same,) * NUM_MESHES
    return CorrespondenceSet(meshes[0], meshes, labels, tuple(expected), split, UNIT_MM, family.content)
