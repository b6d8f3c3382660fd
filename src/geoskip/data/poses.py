"""Body poses: rotations of fifteen joints, named, and people who each take them a little differently.

Rotations are vectors (axis times angle, in degrees) in the body's own axes at rest: x to its left, y up, z ahead.
Positive about x bends spine and neck forward and legs and knees backward; positive about y turns to the left;
positive about z lifts the left arm. A paired joint named without its side moves on both, mirrored; a right one is
written as its mirror image, so that the same numbers mean the same movement on either side.
"""

from collections.abc import Mapping

import numpy as np

from geoskip.shapes import Float

Rotation = tuple[float, float, float]

# The rig's bones that share a joint's rotation, and their parts of it: several small bends are softer than one.
MIDDLE: Mapping[str, Mapping[str, float]] = {
    "hips": {"root": 1.0},
    "spine": {"spine05": 0.2, "spine04": 0.25, "spine03": 0.25, "spine02": 0.2, "spine01": 0.1},
    "neck": {"neck01": 0.2, "neck02": 0.25, "neck03": 0.25, "head": 0.3},
}
PAIRED: Mapping[str, Mapping[str, float]] = {
    "arm": {"clavicle": 0.15, "shoulder01": 0.2, "upperarm01": 0.65},
    "elbow": {"lowerarm01": 1.0},
    "wrist": {"wrist": 1.0},
    "leg": {"upperleg01": 0.9, "upperleg02": 0.1},
    "knee": {"lowerleg01": 1.0},
    "foot": {"foot": 1.0},
}
SIDES = {"left": ".L", "right": ".R"}
JOINTS = (*MIDDLE, *(f"{joint}_{side}" for joint in PAIRED for side in SIDES))

POSES: Mapping[str, Mapping[str, Rotation]] = {
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


def taken(pose: Float[np.ndarray, "joints 3"], rng: np.random.Generator) -> Float[np.ndarray, "joints 3"]:
    """The pose as one person takes it: each joint a few degrees off."""
    return pose + np.clip(rng.normal(0.0, HABIT, pose.shape), -2 * HABIT, 2 * HABIT)


def bone_rotations(pose: Float[np.ndarray, "joints 3"]) -> dict[str, Float[np.ndarray, "3"]]:
    """Rotation vectors in degrees of the rig's bones; a bone that is not named stays."""
    bones = {}
    for joint, rotation in zip(JOINTS, pose, strict=True):
        name, _, side = joint.partition("_")
        mirror = (1, -1, -1) if side == "right" else (1, 1, 1)
        for bone, part in (PAIRED[name] if side else MIDDLE[name]).items():
            bones[bone + SIDES.get(side, "")] = part * rotation * mirror
    return bones
