"""Generated bodies, in meters, y up, facing +z, standing on the plane y = 0 and centered above the origin.

They are made once by anny (the extra ``people``) and then read from the cache, on any machine that has a copy of it.
The skin is one closed surface (eyes, tongue and other separate parts are removed), decimated to a number of vertices.

``bodies`` are people in named poses over one connectivity, like those of FAUST. With one connectivity, a network can
tell vertices apart by the pattern of the edges around them. So each of ``remeshed_bodies`` has its own edges and vertex
order (:mod:`geoskip.meshes.retriangulation`) and a random turn about the vertical, and its vertices have slid a little
along the surface. A vertex keeps the label of the template's vertex that it comes from, so labels are exact.

``moving_bodies`` are for reconstruction: limbs turn through large angles, which no linear model follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from geoskip.data.cache import CacheEntry, cached, entry_name
from geoskip.data.generated_faces import mean_template, skinned_shapes
from geoskip.data.mesh_sets import CorrespondenceSet, MeshSet, Split
from geoskip.data.people import (
    JOINTS,
    POSES,
    adult,
    anny_model,
    bone_rotations,
    check_counts,
    named_pose,
    numbered_pose,
    pose_name,
    skin,
    vary_pose,
    y_up,
)
from geoskip.data.progress_bar import progress_bar
from geoskip.meshes import Mesh, decimate
from geoskip.meshes.retriangulation import flip_edges, slide_vertices
from geoskip.shapes import Float, Int

# Part of the cache keys: raise it when the same arguments give other bodies.
VERSION = 1
# The person whose rest shape is decimated: the connectivity depends on the number of vertices alone.
TEMPLATE = {"gender": 0.5, "age": 0.75}
SKIN_VERTICES = 13_348
Bones = dict[str, Float[np.ndarray, "3"]]


def bodies(
    people: int = 10, poses: int = 10, num_vertices: int = 6890, seed: int = 0, *, cache: Path | None = None
) -> CorrespondenceSet:
    """``people`` × ``poses`` meshes of ``num_vertices`` vertices, for the correspondence to the first of them.

    They are sorted by person, then pose. The last fifth of the people is the test, as in FAUST (80 and 20 of
    100), so the test people are never seen in training. Person k is the same for any number of people. The poses are
    those of :data:`geoskip.data.people.POSES`, in order, then blends of two.
    """
    _check_sizes(num_vertices, people=people, poses=poses)
    recipe = {"identities": people, "poses": poses, "verts": num_vertices, "seed": seed, "version": VERSION}
    arrays = cached("bodies", recipe, lambda: _build_bodies(people, poses, num_vertices, seed), root=cache).arrays
    meshes = tuple(Mesh(positions, arrays["faces"]) for positions in arrays["verts"])
    labels = (torch.arange(num_vertices),) * len(meshes)
    names = tuple(f"{i:03d}/{p:03d}-{pose_name(p)}" for i in range(people) for p in range(poses))
    split = Split.leading(len(meshes), poses * num_training_people(people, 0.8))
    return CorrespondenceSet(meshes[0], meshes, labels, names, split, 1000.0, entry_name("bodies", recipe))


def _check_sizes(num_vertices: int, **counts: int) -> None:
    check_counts(**counts)
    if not 4 <= num_vertices <= SKIN_VERTICES:
        raise ValueError(f"num_vertices: expected 4 to {SKIN_VERTICES}, got {num_vertices}")


def num_training_people(people: int, share: float) -> int:
    """About a ``share`` of the people, with at least one person on each side if there are two."""
    return max(1, min(round(share * people), people - 1))


def _build_bodies(people: int, poses: int, num_vertices: int, seed: int) -> CacheEntry:
    body = anny_model()
    template, kept = body_template(body, num_vertices)
    verts = [body_verts(body, *person(seed, identity, poses), kept) for identity in range(people)]
    positions = grounded(np.concatenate(verts)).astype(np.float32)
    return CacheEntry({"verts": positions, "faces": template.faces, "kept": kept}, {"unit": "m"})


def body_template(body: Any, num_vertices: int) -> tuple[Mesh, Int[np.ndarray, vertices]]:
    """The skin of a person at rest, decimated to ``num_vertices`` vertices, and their numbers among anny's vertices."""
    whole = Mesh(body.template_vertices.numpy(), body.faces.numpy())
    kept = skin(whole)
    rest = whole.with_verts(body_verts(body, TEMPLATE, [{}], np.arange(whole.num_vertices))[0]).submesh(kept)
    coarse = decimate(rest, num_vertices)
    return coarse.mesh, kept[coarse.kept]


def person(seed: int, identity: int, poses: int) -> tuple[dict[str, float], list[Bones]]:
    """anny's phenotypes of one person, and the rotations of the bones in each of the person's poses."""
    takes = []
    for number in range(poses):
        pose = numbered_pose(number, np.random.default_rng([seed, 2, number]))
        takes.append(bone_rotations(vary_pose(pose, np.random.default_rng([seed, 3, identity, number]))))
    return random_adult(seed, identity), takes


def random_adult(seed: int, number: int) -> dict[str, float]:
    return adult(np.random.default_rng([seed, 1, number]), number)


def body_verts(
    body: Any, phenotypes: dict[str, float], takes: list[Bones], kept: Int[np.ndarray, vertices]
) -> Float[np.ndarray, "takes vertices 3"]:
    """The chosen vertices of one person in each pose, in meters, y up."""
    with torch.no_grad():
        output = body(pose_parameters=pose_parameters(body, takes), phenotype_kwargs=phenotypes)
    return y_up(output["vertices"].numpy()[:, kept])


def pose_parameters(body: Any, takes: list[Bones]) -> Float[torch.Tensor, "takes bones 4 4"]:
    """Rotations of the bones (vectors in degrees) as anny takes them."""
    deltas = torch.eye(4, dtype=torch.float64).repeat(len(takes), body.bone_count, 1, 1)
    for delta, take in zip(deltas, takes, strict=True):
        for bone, (x, y, z) in take.items():
            turn = Rotation.from_rotvec([x, -z, y], degrees=True)  # y up to anny's z up
            delta[body.bone_labels.index(bone), :3, :3] = torch.from_numpy(turn.as_matrix())
    return deltas


def grounded(verts: Float[np.ndarray, "items vertices 3"]) -> Float[np.ndarray, "items vertices 3"]:
    """Standing on the plane y = 0, centered above the origin."""
    middle = verts.mean(axis=1, keepdims=True)
    middle[..., 1] = verts[..., 1].min(axis=1, keepdims=True)
    return verts - middle


# Poses that only occur in the test; people in training take the others, and blends of two of them.
TEST_POSES = ("lean", "kick", "guard", "lunge")
# Remeshed bodies are stored in steps of 0.04 mm, in 16 bits.
STEP = 4e-5
CENTER = np.array([0.0, 1.3, 0.0])  # of the range of positions


def remeshed_bodies(
    people: int = 32, poses: int = 5, num_vertices: int = 6890, seed: int = 0, *, cache: Path | None = None
) -> CorrespondenceSet:
    """``people`` × ``poses`` meshes of ``num_vertices`` vertices, for the correspondence to a template at rest.

    The last quarter of the people is the test. Their poses do not occur in training: mostly one of ``TEST_POSES``,
    blended with another. Person k looks the same for any number of people.
    """
    _check_sizes(num_vertices, people=people, poses=poses)
    recipe = {"people": people, "poses": poses, "verts": num_vertices, "seed": seed, "version": VERSION}
    arrays = cached(
        "remeshed-bodies", recipe, lambda: _build_remeshed(people, poses, num_vertices, seed), root=cache
    ).arrays
    target = Mesh(arrays["target"], arrays["target_faces"].astype(np.int64))
    positions = STEP * arrays["verts"].astype(np.float64) + CENTER
    meshes = tuple(map(Mesh, positions, arrays["faces"].astype(np.int64)))
    labels = tuple(torch.from_numpy(arrays["labels"].astype(np.int64)))
    names = tuple(f"{person:03d}/{pose:03d}" for person in range(people) for pose in range(poses))
    split = Split.leading(len(meshes), poses * num_training_people(people, 0.75))
    return CorrespondenceSet(target, meshes, labels, names, split, 1000.0, entry_name("remeshed-bodies", recipe))


def random_pose(rng: np.random.Generator, test: bool) -> Float[np.ndarray, "joints 3"]:
    """A blend of two poses, as one person takes it; for the test mostly one of ``TEST_POSES``."""
    common = [name for name in POSES if name not in TEST_POSES]
    share = rng.uniform(0.7, 1.0) if test else rng.uniform(0.0, 1.0)
    first, second = rng.choice(TEST_POSES if test else common), rng.choice(common)
    return vary_pose(share * named_pose(first) + (1 - share) * named_pose(second), rng)


def own_connectivity(
    mesh: Mesh, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "vertices 3"], Int[np.ndarray, "faces 3"], Int[np.ndarray, vertices]]:
    """Slide the vertices of a mesh, flip edges, turn it about the vertical and reorder it: positions, faces, labels."""
    changed = flip_edges(slide_vertices(mesh, rng), rng)
    labels = rng.permutation(mesh.num_vertices)
    numbers = np.argsort(labels)
    turn = Rotation.from_euler("y", rng.uniform(0.0, 360.0), degrees=True).as_matrix()
    faces = numbers[changed.faces]
    # Faces in the order of the template would give the vertex order away.
    faces = np.take_along_axis(faces, (rng.integers(3, size=(len(faces), 1)) + np.arange(3)) % 3, axis=1)
    return changed.verts[labels] @ turn.T, faces[rng.permutation(len(faces))], labels


def _build_remeshed(people: int, poses: int, num_vertices: int, seed: int) -> CacheEntry:
    body = anny_model()
    template, kept = body_template(body, num_vertices)
    target = grounded(body_verts(body, TEMPLATE, [{}], kept))[0]
    dtype = np.uint16 if num_vertices <= 2**16 else np.uint32
    positions, faces, labels = [], [], []
    with progress_bar("bodies", people * poses) as advance:
        for person in range(people):
            test = person >= num_training_people(people, 0.75)
            generators = [np.random.default_rng([seed, 5, person, pose]) for pose in range(poses)]
            takes = [bone_rotations(random_pose(rng, test)) for rng in generators]
            shapes = grounded(body_verts(body, random_adult(seed, person), takes, kept))
            for shape, rng in zip(shapes, generators, strict=True):
                own_verts, own_faces, own_labels = own_connectivity(template.with_verts(shape), rng)
                positions.append(np.round((own_verts - CENTER) / STEP).astype(np.int16))
                faces.append(own_faces.astype(dtype))
                labels.append(own_labels.astype(dtype))
                advance(1)
    arrays = {
        "verts": np.stack(positions),
        "faces": np.stack(faces),
        "labels": np.stack(labels),
        "target": target.astype(np.float32),
        "target_faces": template.faces.astype(dtype),
        "kept": kept,
    }
    return CacheEntry(arrays, {"unit": "m"})


# The poses that a motion goes through, in random order, on one side or the other.
MOTIONS: Mapping[str, tuple[str, ...]] = {
    "bend": ("rest", "bend_forward", "twist", "lean"),
    "fight": ("guard", "kick", "lunge", "rest"),
    "reach": ("rest", "arms_forward", "arms_up", "hands_on_hips", "wave"),
    "squat": ("rest", "squat", "arms_up"),
    "walk": ("step", "rest"),
}
FRAMES_PER_KEY = 15


def moving_bodies(
    people: int = 8, frames_per_take: int = 90, num_vertices: int = 2500, seed: int = 0, *, cache: Path | None = None
) -> MeshSet:
    """``people`` × 5 motions × ``frames_per_take`` bodies of ``num_vertices`` vertices, determined by the arguments.

    Frames are named ``person/motion/frame``, in sorted order. For every person one motion is the test, which only other
    people show in training. Person k is the same for any number of people.
    """
    _check_sizes(num_vertices, people=people, frames_per_take=frames_per_take)
    recipe = {"people": people, "frames": frames_per_take, "verts": num_vertices, "seed": seed, "version": VERSION}
    arrays = cached(
        "moving-bodies", recipe, lambda: _build_moving(people, frames_per_take, num_vertices, seed), root=cache
    ).arrays
    takes = [(person, motion) for person in range(people) for motion in range(len(MOTIONS))]
    test = [motion == person % len(MOTIONS) for person, motion in takes]
    names = tuple(f"{i:03d}/{list(MOTIONS)[m]}/{frame:03d}" for i, m in takes for frame in range(frames_per_take))
    split = Split.by_mask(torch.tensor(test).repeat_interleave(frames_per_take))
    content = entry_name("moving-bodies", recipe)
    return MeshSet(mean_template(arrays), skinned_shapes(arrays), names, split, 1000.0, content)


def random_motion(motion: str, frames: int, rng: np.random.Generator) -> Float[np.ndarray, "frames joints 3"]:
    """A smooth path through random keys of a motion, one every quarter of a second, each more or less pronounced."""
    names = MOTIONS[motion]
    keys: list[np.ndarray] = []
    last = ""
    for _ in range(-(-frames // FRAMES_PER_KEY) + 2):
        last = rng.choice([name for name in names if name != last])
        pose = vary_pose(rng.uniform(0.6, 1.1) * named_pose(last), rng)
        keys.append(mirrored(pose) if rng.random() < 0.5 else pose)
    time = (np.arange(frames) + rng.uniform(0.0, FRAMES_PER_KEY)) / FRAMES_PER_KEY
    number = np.floor(time).astype(int)
    t = (time - number)[:, None, None]
    path = np.stack(keys)
    return path[number] + (path[number + 1] - path[number]) * t**2 * (3 - 2 * t)


def mirrored(pose: Float[np.ndarray, "joints 3"]) -> Float[np.ndarray, "joints 3"]:
    """The pose with left and right exchanged; paired joints are given as mirror images already."""
    twins = {"left": "right", "right": "left"}
    result = np.empty_like(pose)
    for joint, rotation in zip(JOINTS, pose, strict=True):
        name, _, side = joint.partition("_")
        twin = f"{name}_{twins[side]}" if side else name
        result[JOINTS.index(twin)] = rotation if side else rotation * (1, -1, -1)
    return result


def moving_bones(body: Any) -> tuple[list[int], Int[np.ndarray, bones]]:
    """The bones of anny that poses turn, and for each of its bones which of these it moves with."""
    turned = bone_rotations(np.zeros((len(JOINTS), 3)))
    moving = [number for number, label in enumerate(body.bone_labels) if number == 0 or label in turned]
    leader = np.zeros(len(body.bone_labels), dtype=np.int64)
    for bone, parent in enumerate(body.bone_parents):
        leader[bone] = moving.index(bone) if bone in moving else leader[parent]
    return moving, leader


def person_in_motion(
    body: Any, kept: Int[np.ndarray, vertices], moving: list[int], phenotypes: dict[str, float], takes: list[Bones]
) -> tuple[Float[np.ndarray, "vertices 3"], Float[np.ndarray, "takes bones 3 4"]]:
    """A person at rest, and for each take the transforms of the moving bones (see ``SkinnedShapes``).

    anny's own surface is 0.05 mm away on average and up to 4 mm between the toes: it blends its bones that do not move
    here, which are turned a little in its zero pose.
    """
    with torch.no_grad():
        output = body(pose_parameters=pose_parameters(body, [{}, *takes]), phenotype_kwargs=phenotypes)
    bone_poses = output["bone_poses"][:, moving]
    motion = (bone_poses[1:] @ torch.linalg.inv(bone_poses[:1])).numpy()
    # anny's axes to ours, in rows and in columns.
    turn = y_up(np.eye(3)).T
    rotation, shift = turn @ motion[..., :3, :3] @ turn.T, y_up(motion[..., :3, 3])
    verts = y_up(output["vertices"].numpy()[:, kept])
    floors = (verts - grounded(verts))[:, 0]
    shift = shift + rotation @ floors[0] - floors[1:, None]
    transforms = np.concatenate([rotation - np.eye(3), shift[..., None]], axis=-1)
    return grounded(verts[:1])[0], transforms


def _build_moving(people: int, frames: int, num_vertices: int, seed: int) -> CacheEntry:
    body = anny_model()
    template, kept = body_template(body, num_vertices)
    moving, leader = moving_bones(body)
    rests, transforms = [], []
    for person in range(people):
        for number, motion in enumerate(MOTIONS):
            path = random_motion(motion, frames, np.random.default_rng([seed, 6, person, number]))
            takes = [bone_rotations(pose) for pose in path]
            rest, motions = person_in_motion(body, kept, moving, random_adult(seed, person), takes)
            transforms.append(motions.astype(np.float32))
        rests.append(rest)
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
    return CacheEntry(arrays, {"bones": [body.bone_labels[bone] for bone in moving], "unit": "m"})
