"""Adults from the package ``anny`` (Apache-2.0, on MakeHuman's shapes, CC0): the extra ``people``.

The first model on a machine takes anny about two minutes, in which it fills a cache of its own (0.6 GB, in
``~/.cache/anny`` or ``$ANNY_CACHE_DIR``); later ones take about three seconds.
"""

import logging
from typing import Any

import numpy as np

from geoskip.meshes import Mesh
from geoskip.shapes import Float, Int

log = logging.getLogger(__name__)


def anny_model(**options: Any) -> Any:
    """An ``anny.Anny`` with all its phenotypes; ImportError says what to install."""
    try:
        import anny
    except ImportError as error:
        raise ImportError(
            "these people are made with anny, which is not installed: pip install geoskip[people]"
        ) from error
    log.info("building a model with anny (about two minutes the first time on a machine, then seconds)")
    # The original shapes skip anny's compaction (a large SVD), plain skinning skips compiling kernels.
    return anny.Anny(phenotypes="all", phenotype_blendshapes="original", skinning_method="lbs", **options)


def adult(rng: np.random.Generator, index: int) -> dict[str, float]:
    """Random phenotypes of an adult, in anny's terms: even numbers are men, odd ones women.

    Age runs from 2/3 (a young adult) towards 1 (old); ancestry is a mixture that leans to one origin.
    """
    african, asian, caucasian = rng.dirichlet([0.5, 0.5, 0.5])
    return {
        "gender": abs(index % 2 - rng.uniform(0.0, 0.15)),
        "age": rng.uniform(0.72, 0.95),
        "muscle": rng.uniform(0.3, 0.8),
        "weight": rng.uniform(0.2, 0.95),
        "height": rng.uniform(0.25, 0.55),
        "proportions": rng.uniform(0.2, 0.9),
        "african": float(african),
        "asian": float(asian),
        "caucasian": float(caucasian),
    }


def skin(mesh: Mesh) -> Int[np.ndarray, "kept"]:
    """The vertices of the largest connected part, ascending: without eyes, tongue and other loose parts."""
    parts = mesh.components()
    return np.flatnonzero(parts == np.bincount(parts).argmax())


def y_up(verts: Float[np.ndarray, "*points 3"]) -> Float[np.ndarray, "*points 3"]:
    """From anny's axes (z up, facing -y) to those of CoMA and FAUST: y up, facing +z."""
    return np.stack([verts[..., 0], verts[..., 2], -verts[..., 1]], axis=-1)
