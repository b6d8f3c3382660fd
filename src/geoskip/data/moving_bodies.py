"""Generated bodies in motion, for reconstruction: limbs that turn through large angles, which no linear model follows.

Positions are in meters, y up, facing +z, standing on the plane y = 0 and centered above the origin in every frame. The
set is a table of parameters, and decodes where anny is not installed (:class:`geoskip.data.skinned.SkinnedShapes`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from geoskip.data.bodies import SKIN_VERTS, body_template, grounded, pose_parameters
from geoskip.data.cache import cached
from geoskip.data.entries import Stored
from geoskip.data.mesh_set import MeshSet
from geoskip.data.people import adult, anny_model, y_up
from geoskip.data.poses import JOINTS, bone_rotations, named_pose, taken
from geoskip.data.skinned import SkinnedShapes
from geoskip.data.split import Split
from geoskip.meshes import Mesh
from geoskip.shapes import Float, Int

# Part of the cache key: raise it when the same arguments give other bodies.
VERSION = 1
# The poses that a motion goes through, in random order, on the one side or the other.
MOTIONS: Mapping[str, tuple[str, ...]] = {
    "bend": ("rest", "bend_forward", "twist", "lean"),
    "fight": ("guard", "kick", "lunge", "rest"),
    "reach": ("rest", "arms_forward", "arms_up", "hands_on_hips", "wave"),
    "squat": ("rest", "squat", "arms_up"),
    "walk": ("step", "rest"),
}
FRAMES_PER_KEY = 15


def moving_bodies(
    people: int = 8, frames_per_take: int = 90, verts: int = 2500, seed: int = 0, *, cache: Path | None = None
) -> MeshSet:
    """``people`` × 5 motions × ``frames_per_take`` bodies of ``verts`` vertices; the same for the same arguments.

    Frames are named ``person/motion/frame``, in sorted order. Every person has one motion that is the test, and that
    only others show in training. What a person looks like and does is independent of how many there are. Made once by
    anny (the extra ``people``), then read from the cache (``cache``, or the usual one) on any machine that has a copy
    of it.
    """
    if people < 1 or frames_per_take < 1:
        sizes = f"{people} and {frames_per_take}"
        raise ValueError(f"a set of moving bodies has at least one person and one frame, not {sizes}")
    if not 4 <= verts <= SKIN_VERTS:
        raise ValueError(f"bodies have 4 to {SKIN_VERTS} vertices, not {verts}")
    recipe = {"people": people, "frames": frames_per_take, "verts": verts, "seed": seed, "version": VERSION}
    arrays = cached("moving-bodies", recipe, lambda: _build(people, frames_per_take, verts, seed), root=cache).arrays
    order = ("rests", "displacements", "coefficients", "subject", "weights", "transforms")
    shapes = SkinnedShapes(*(torch.from_numpy(arrays[name]) for name in order))
    template = Mesh(arrays["rests"].mean(axis=0, dtype=np.float64), arrays["faces"])
    shown = [(person, motion) for person in range(people) for motion in range(len(MOTIONS))]
    test = [motion == person % len(MOTIONS) for person, motion in shown]
    names = tuple(f"{i:03d}/{list(MOTIONS)[m]}/{frame:03d}" for i, m in shown for frame in range(frames_per_take))
    split = Split.by_mask(torch.tensor(test).repeat_interleave(frames_per_take))
    return MeshSet(template, shapes, names, split, unit_mm=1000.0)


def random_motion(motion: str, frames: int, rng: np.random.Generator) -> Float[np.ndarray, "frames joints 3"]:
    """A smooth path through random keys of a motion, one every quarter of a second, each to another extent."""
    names = MOTIONS[motion]
    keys: list[np.ndarray] = []
    last = ""
    for _ in range(-(-frames // FRAMES_PER_KEY) + 2):
        last = rng.choice([name for name in names if name != last])
        pose = taken(rng.uniform(0.6, 1.1) * named_pose(last), rng)
        keys.append(mirrored(pose) if rng.random() < 0.5 else pose)
    time = (np.arange(frames) + rng.uniform(0.0, FRAMES_PER_KEY)) / FRAMES_PER_KEY
    number = np.floor(time).astype(int)
    t = (time - number)[:, None, None]
    path = np.stack(keys)
    return path[number] + (path[number + 1] - path[number]) * t**2 * (3 - 2 * t)


def mirrored(pose: Float[np.ndarray, "joints 3"]) -> Float[np.ndarray, "joints 3"]:
    """The pose with left and right exchanged; paired joints are written as mirror images already."""
    twins = {"left": "right", "right": "left"}
    result = np.empty_like(pose)
    for joint, rotation in zip(JOINTS, pose, strict=True):
        name, _, side = joint.partition("_")
        twin = f"{name}_{twins[side]}" if side else name
        result[JOINTS.index(twin)] = rotation if side else rotation * (1, -1, -1)
    return result


def moving_bones(body: Any) -> tuple[list[int], Int[np.ndarray, "bones"]]:
    """The bones of anny that poses turn, and for each of its bones which of these it moves with."""
    named = bone_rotations(np.zeros((len(JOINTS), 3)))
    moving = [number for number, label in enumerate(body.bone_labels) if number == 0 or label in named]
    leader = np.zeros(len(body.bone_labels), dtype=np.int64)
    for bone, parent in enumerate(body.bone_parents):
        leader[bone] = moving.index(bone) if bone in moving else leader[parent]
    return moving, leader


def person_in_motion(
    body: Any,
    kept: Int[np.ndarray, "vertices"],
    phenotypes: dict[str, float],
    takes: list[dict[str, Float[np.ndarray, "3"]]],
) -> tuple[Float[np.ndarray, "vertices 3"], Float[np.ndarray, "takes bones 3 4"]]:
    """A person at rest, and for each take the motions of the moving bones, as :class:`SkinnedShapes` has them.

    anny's own surface is 0.05 mm away on the average and up to 4 mm between the toes: its bones that do not move here
    are turned a little in its zero pose, and those are blended before the turn here.
    """
    with torch.no_grad():
        made = body(pose_parameters=pose_parameters(body, [{}, *takes]), phenotype_kwargs=phenotypes)
    moving, _ = moving_bones(body)
    rest, posed = made["bone_poses"][:1, moving], made["bone_poses"][1:, moving]
    motion = (posed @ torch.linalg.inv(rest)).numpy()
    # anny's axes to ours, in rows and in columns.
    turn = y_up(np.eye(3)).T
    rotation, shift = turn @ motion[..., :3, :3] @ turn.T, y_up(motion[..., :3, 3])
    verts = y_up(made["vertices"].numpy()[:, kept])
    floors = (verts - grounded(verts))[:, 0]
    shift = shift + rotation @ floors[0] - floors[1:, None]
    transforms = np.concatenate([rotation - np.eye(3), shift[..., None]], axis=-1)
    return grounded(verts[:1])[0], transforms


def _build(people: int, frames: int, verts: int, seed: int) -> Stored:
    body = anny_model()
    template, kept = body_template(body, verts)
    rests, transforms = [], []
    for person in range(people):
        phenotypes = adult(np.random.default_rng([seed, 1, person]), person)
        for number, motion in enumerate(MOTIONS):
            path = random_motion(motion, frames, np.random.default_rng([seed, 6, person, number]))
            rest, motions = person_in_motion(body, kept, phenotypes, [bone_rotations(pose) for pose in path])
            transforms.append(motions.astype(np.float32))
        rests.append(rest)
    moving, leader = moving_bones(body)
    weights = np.zeros((len(kept), len(moving)))
    np.add.at(weights.T, leader, body.dense_vertex_bone_weights.numpy()[kept].T)
    arrays: dict[str, np.ndarray] = {
        "rests": np.stack(rests).astype(np.float32),
        "displacements": np.zeros((0, len(kept), 3), dtype=np.float32),
        "coefficients": np.zeros((people * len(MOTIONS) * frames, 0), dtype=np.float32),
        "subject": np.repeat(np.arange(people), len(MOTIONS) * frames),
        "weights": weights.astype(np.float32),
        "transforms": np.concatenate(transforms),
        "faces": template.faces,
        "kept": kept,
    }
    return Stored(arrays, {"bones": [body.bone_labels[bone] for bone in moving], "unit": "m"})
