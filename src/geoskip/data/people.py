"""Adults from the package ``anny`` (Apache-2.0, on MakeHuman's shapes, CC0; the extra ``people``): bodies in poses, and
heads with facial expressions.

The first model on a machine takes anny about two minutes, in which it fills a cache of its own (0.6 GB, in
``~/.cache/anny`` or ``$ANNY_CACHE_DIR``); later ones take about three seconds.

A **pose** has one rotation for each of fifteen joints: a vector (axis times angle, in degrees) in the body's own axes
at rest, x to its left, y up, z forward. Positive about x bends spine and neck forward and legs and knees backward;
positive about y turns to the left; positive about z lifts the left arm. A paired joint named without its side moves on
both sides, mirrored. A right joint is given as its mirror image, so that the same numbers mean the same movement on
either side.

A **head** is in millimeters, y up, facing +z. Only the skin is kept: 4,200 vertices and 8,356 triangles, open at the
neck. Eyes and tongue are separate parts of anny's head, and it has no teeth. **Expressions** are coefficients of 52
ARKit-style actions over time. The twelve expressions have the names of CoMA's sequences; what each name means here is
one choice of actions. A sequence goes from rest through one or two key poses and back, each action with its own timing:

    c_a(t) = Σ_p s g_a p_a (r((t - t0) / (t1 - t0)) - r((t - t2) / (t3 - t2))) + drift_a(t) + blink_a(t)

with r the minimum-jerk step 10 t³ - 15 t⁴ + 6 t⁵, p_a the key pose, g_a the subject's habit, s the strength of this
performance, a slow drift of a few percent and an occasional blink.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoskip.arguments import check_least
from geoskip.meshes import Mesh
from geoskip.shapes import Float, Int

log = logging.getLogger(__name__)

# The bones that share a joint's rotation, and their parts of it: several small bends look softer than one.
CENTRAL_JOINTS: Mapping[str, Mapping[str, float]] = {
    "hips": {"root": 1.0},
    "spine": {"spine05": 0.2, "spine04": 0.25, "spine03": 0.25, "spine02": 0.2, "spine01": 0.1},
    "neck": {"neck01": 0.2, "neck02": 0.25, "neck03": 0.25, "head": 0.3},
}
PAIRED_JOINTS: Mapping[str, Mapping[str, float]] = {
    "arm": {"clavicle": 0.15, "shoulder01": 0.2, "upperarm01": 0.65},
    "elbow": {"lowerarm01": 1.0},
    "wrist": {"wrist": 1.0},
    "leg": {"upperleg01": 0.9, "upperleg02": 0.1},
    "knee": {"lowerleg01": 1.0},
    "foot": {"foot": 1.0},
}
BONE_SIDES = {"left": ".L", "right": ".R"}
JOINTS = (*CENTRAL_JOINTS, *(f"{joint}_{side}" for joint in PAIRED_JOINTS for side in BONE_SIDES))

POSES: Mapping[str, Mapping[str, tuple[float, float, float]]] = {
    "rest": {},
    "arms_up": {"arm": (0, 0, 115), "neck": (-10, 0, 0)},
    "arms_forward": {"arm": (-58, -48, 0)},
    "hands_on_hips": {"arm": (8, 25, 6), "elbow": (18, 25, -94), "wrist": (0, 0, 5)},
    "twist": {"spine": (0, 50, 0), "neck": (0, 25, 0), "arm": (0, 0, 35)},
    "bend_forward": {"hips": (15, 0, 0), "spine": (65, 0, 0), "leg": (-15, 0, 0), "arm": (-45, 0, -15)},
    "squat": {"leg": (-85, 0, 8), "knee": (95, 0, 0), "foot": (-12, 0, 0), "spine": (25, 0, 0),
              "neck": (-10, 0, 0), "arm": (-58, -46, 0)},
    "step": {"leg_left": (-32, 0, 0), "knee_left": (12, 0, 0), "leg_right": (22, 0, 0), "knee_right": (22, 0, 0),
             "arm_left": (35, 0, -25), "arm_right": (-40, 0, -25), "elbow_right": (-30, -25, 0)},
    "lean": {"spine": (0, 0, 30), "neck": (0, 0, 10), "arm_left": (0, 0, 110), "arm_right": (0, 0, 20)},
    "kick": {"leg_left": (-75, 0, 0), "knee_left": (10, 0, 0), "spine": (-8, 0, 0), "arm": (0, 0, 40)},
    "guard": {"arm": (-20, -20, -10), "elbow": (-75, -70, 0), "leg_left": (-15, 0, 0), "spine": (10, -15, 0)},
    "wave": {"arm_left": (0, 0, 45), "elbow_left": (0, 0, 85), "arm_right": (0, 0, 20), "neck": (0, 20, 0)},
    "lunge": {"leg_left": (-75, 0, 0), "knee_left": (80, 0, 0), "leg_right": (25, 0, 0), "knee_right": (30, 0, 0),
              "foot_right": (-10, 0, 0), "arm": (0, 0, 40)},
}  # fmt: skip

# Standard deviation in degrees of what two people do differently.
HABIT = 2.5


def anny_model(**options: Any) -> Any:
    """An ``anny.Anny`` with all its phenotypes; ImportError says what to install."""
    try:
        import anny
    except ImportError as error:
        raise ImportError(
            "these people are made with anny, which is not installed: pip install 'geoskip[people]'"
        ) from error
    log.info("building a model with anny (about two minutes the first time on a machine, then seconds)")
    # The original shapes skip anny's compaction (a large SVD), plain skinning skips compiling kernels.
    return anny.Anny(phenotypes="all", phenotype_blendshapes="original", skinning_method="lbs", **options)


def check_counts(**counts: int) -> None:
    """ValueError, naming the argument, if a number of people, poses or the like is below 1."""
    for name, count in counts.items():
        check_least(name, count, 1)


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


def skin(mesh: Mesh) -> Int[np.ndarray, kept]:
    """The vertices of the largest connected part, ascending: without eyes, tongue and other loose parts."""
    parts = mesh.components()
    return np.flatnonzero(parts == np.bincount(parts).argmax())


def y_up(verts: Float[np.ndarray, "*points 3"]) -> Float[np.ndarray, "*points 3"]:
    """From anny's axes (z up, facing -y) to those of CoMA and FAUST: y up, facing +z."""
    return np.stack([verts[..., 0], verts[..., 2], -verts[..., 1]], axis=-1)


def named_pose(name: str) -> Float[np.ndarray, "joints 3"]:
    """A pose of ``POSES`` as one rotation per joint of ``JOINTS``."""
    pose = POSES[name]
    return np.array([pose.get(joint, pose.get(joint.partition("_")[0], (0, 0, 0))) for joint in JOINTS], dtype=float)


def pose_name(number: int) -> str:
    """The name of the n-th pose: those of ``POSES`` first, then blends of two of them."""
    return list(POSES)[number] if number < len(POSES) else f"blend{number}"


def numbered_pose(number: int, rng: np.random.Generator) -> Float[np.ndarray, "joints 3"]:
    """The n-th pose; past the end of ``POSES`` a mean of two of them, about half and half."""
    if number < len(POSES):
        return named_pose(pose_name(number))
    first, second = rng.choice(list(POSES), 2, replace=False)
    share = rng.uniform(0.35, 0.65)
    return share * named_pose(first) + (1 - share) * named_pose(second)


def vary_pose(pose: Float[np.ndarray, "joints 3"], rng: np.random.Generator) -> Float[np.ndarray, "joints 3"]:
    """The pose as one person takes it: each joint a few degrees off."""
    return pose + np.clip(rng.normal(0.0, HABIT, pose.shape), -2 * HABIT, 2 * HABIT)


def bone_rotations(pose: Float[np.ndarray, "joints 3"]) -> dict[str, Float[np.ndarray, 3]]:
    """Rotation vectors in degrees of the rig's bones; a bone that is not named stays."""
    bones = {}
    for joint, rotation in zip(JOINTS, pose, strict=True):
        name, _, side = joint.partition("_")
        mirror = (1, -1, -1) if side == "right" else (1, 1, 1)
        for bone, part in (PAIRED_JOINTS[name] if side else CENTRAL_JOINTS[name]).items():
            bones[bone + BONE_SIDES.get(side, "")] = part * rotation * mirror
    return bones


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
