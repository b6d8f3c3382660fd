"""Adults from the package ``anny`` (Apache-2.0, on MakeHuman's shapes, CC0; the extra ``people``), and their poses.

The first model on a machine takes anny about two minutes, in which it fills a cache of its own (0.6 GB, in
``~/.cache/anny`` or ``$ANNY_CACHE_DIR``); later ones take about three seconds.

A pose has one rotation for each of fifteen joints: a vector (axis times angle, in degrees) in the body's own axes at
rest, x to its left, y up, z forward. Positive about x bends spine and neck forward and legs and knees backward;
positive about y turns to the left; positive about z lifts the left arm. A paired joint named without its side moves on
both sides, mirrored. A right joint is given as its mirror image, so that the same numbers mean the same movement on
either side.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

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
        if count < 1:
            raise ValueError(f"{name}: expected 1 or more, got {count}")


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
