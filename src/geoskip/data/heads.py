"""Heads of random adults, at rest and acting, in anny's linear shapes.

Positions are in millimetres, y up, facing +z. Only the skin is kept: 4,200 vertices and 8,356 triangles, open at the
neck; eyes and tongue are loose parts of anny's head, and it has no teeth.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoskip.data.expressions import ACTIONS
from geoskip.data.people import adult, anny_model, y_up
from geoskip.shapes import Float, Int

# anny's local changes that shape a head, and how far they vary (standard deviation; anny allows 1).
FEATURES = {
    "chin-bones-incr": 0.22, "chin-height-incr": 0.15, "chin-prominent-incr": 0.22, "chin-width-incr": 0.22,
    "eyebrows-angle-up": 0.22, "eyebrows-trans-forward": 0.15, "eyebrows-trans-up": 0.15,
    "forehead-scale-vert-incr": 0.15, "forehead-temple-incr": 0.22, "forehead-trans-forward": 0.22,
    "head-age-incr": 0.22, "head-back-scale-depth-incr": 0.22, "head-fat-incr": 0.22,
    "head-scale-depth-incr": 0.08, "head-scale-horiz-incr": 0.08, "head-scale-vert-incr": 0.08,
    "mouth-lowerlip-volume-incr": 0.22, "mouth-scale-horiz-incr": 0.22, "mouth-trans-up": 0.22,
    "mouth-upperlip-volume-incr": 0.22, "neck-double-incr": 0.22, "neck-scale-horiz-incr": 0.22,
    "nose-curve-convex": 0.18, "nose-hump-incr": 0.18, "nose-point-up": 0.18, "nose-scale-depth-incr": 0.18,
    "nose-scale-horiz-incr": 0.18, "nose-scale-vert-incr": 0.18, "nose-volume-incr": 0.18,
    "nose-width2-incr": 0.18,
}  # fmt: skip
PAIRED_FEATURES = {
    "cheek-bones-incr": 0.22, "cheek-inner-incr": 0.22, "cheek-volume-incr": 0.22, "ear-scale-incr": 0.22,
    "ear-wing-incr": 0.22, "eye-trans-out": 0.18,
}  # fmt: skip
LARGEST_FEATURE = 0.5


def head_model() -> Any:
    """anny's head with the 52 actions and the features that vary here."""
    paired = [f"{side}-{name}" for name in PAIRED_FEATURES for side in "lr"]
    return anny_model(
        rig="makehuman-head", topology="head", facial_actions=list(ACTIONS), local_changes=[*FEATURES, *paired]
    )


def rest_shapes(
    head: Any, kept: Int[np.ndarray, "vertices"], subjects: int, seed: int
) -> Float[np.ndarray, "subjects vertices 3"]:
    """The skin of each subject without expression, in millimetres, centred."""
    rests = np.stack([posed(head, kept, *subject_shape(seed, k))[0] for k in range(subjects)])
    return rests - rests.mean(axis=1, keepdims=True)


def action_fields(head: Any, kept: Int[np.ndarray, "vertices"]) -> Float[np.ndarray, "actions vertices 3"]:
    """What each action at full strength adds, in millimetres; anny's shapes are sums, so for every subject."""
    both = torch.cat([torch.zeros(1, len(ACTIONS)), torch.eye(len(ACTIONS))]).double()
    verts = posed(head, kept, {}, {}, both)
    return verts[1:] - verts[0]


def subject_shape(seed: int, subject: int) -> tuple[dict[str, float], dict[str, float]]:
    """anny's phenotypes and local changes of one subject; left and right differ a little."""
    rng = np.random.default_rng([seed, 1, subject])
    phenotypes = adult(rng, subject)
    values = {name: rng.normal(0.0, size) for name, size in FEATURES.items()}
    for name, size in PAIRED_FEATURES.items():
        common = rng.normal(0.0, size)
        values |= {f"{side}-{name}": common + rng.normal(0.0, 0.03) for side in "lr"}
    return phenotypes, {name: float(np.clip(v, -LARGEST_FEATURE, LARGEST_FEATURE)) for name, v in values.items()}


def posed(
    head: Any,
    kept: Int[np.ndarray, "vertices"],
    phenotypes: dict[str, float],
    features: dict[str, float],
    actions: Float[Tensor, "items actions"] | None = None,
) -> Float[np.ndarray, "items vertices 3"]:
    """anny's own skin for one subject, in millimetres, y up, not centred."""
    with torch.no_grad():
        made = head(phenotype_kwargs=phenotypes, local_changes_kwargs=features, facial_actions=actions)
    return 1000.0 * y_up(made["vertices"].numpy()[:, kept])
