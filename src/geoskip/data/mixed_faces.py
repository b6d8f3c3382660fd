"""Generated faces with mixed expressions: many people of one size, short takes, a jaw that turns about its hinge.

Harder than :mod:`geoskip.data.faces` in the way that CoMA is hard: expressions are blends that never occur twice, faces
are cropped and scaled to one size, and the test is on takes that were never seen. Positions are in millimeters, y up,
facing +z; each person's rest shape is centered at the origin. The set is a table of parameters, and decodes where anny
is not installed (:class:`geoskip.data.skinned.SkinnedShapes`).

A take passes through three keys. A key is a blend of two expressions of :data:`geoskip.data.expressions.EXPRESSIONS`
with a random strength, plus two random actions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from geoskip.data.cache import cached
from geoskip.data.entries import Stored
from geoskip.data.expressions import ACTIONS, EXPRESSIONS, action_vector, habits
from geoskip.data.heads import action_fields, head_model, subject_shape
from geoskip.data.mesh_set import MeshSet
from geoskip.data.people import skin, y_up
from geoskip.data.skinned import SkinnedShapes
from geoskip.data.split import Split
from geoskip.meshes import Mesh
from geoskip.shapes import Float, Int

# Part of the cache key: raise it when the same arguments give other faces.
VERSION = 1
NUM_VERTICES = 1943
# The crop: skin within this distance of the tip of the nose, in millimeters, on anny's template. It ends on even rows
# of vertices, so that the border is smooth.
RADIUS = 102.0
CAVITIES = ("mouth_cavity", "eye_cavity.L", "eye_cavity.R")

NUM_KEYS = 3
EXTRA_ACTIONS = 2
# What actions of the jaw do to its bone at full strength: degrees about x (open) and y (left), millimeters ahead.
JAW_OPEN, JAW_SIDE, JAW_FORWARD = 22.0, 8.0, 5.0
JAW = ("jawOpen", "jawLeft", "jawRight", "jawForward")
# Alone these leave the plausible: one undoes an open jaw, and a tongue is not part of the skin.
UNUSED = ("mouthClose", "tongueOut")
MOVED = tuple(action for action in ACTIONS if action not in (*JAW, *UNUSED))


def mixed_faces(
    people: int = 40,
    takes: int = 25,
    frames_per_take: int = 10,
    seed: int = 0,
    split: str = "takes",
    *,
    cache: Path | None = None,
) -> MeshSet:
    """``people`` × ``takes`` × ``frames_per_take`` faces of 1,943 vertices; the same for the same arguments.

    Frames are named ``person/take/frame-expression``, in sorted order, by the expression that is strongest at the
    nearest key. ``split`` says what the test is of:

    - ``"takes"``: the last fifth of every person's takes;
    - ``"people"``: the last fifth of the people;
    - the name of an expression: all takes that it occurs in.

    A person does not depend on how many there are. Made once by anny (the extra ``people``), then read from the cache
    (``cache``, or the usual one) on any machine that has a copy of it.
    """
    if min(people, takes, frames_per_take) < 1:
        sizes = f"{people} × {takes} × {frames_per_take}"
        raise ValueError(f"a set of faces has at least one person, take and frame, not {sizes}")
    if split not in ("takes", "people", *EXPRESSIONS):
        raise ValueError(f"split is 'takes', 'people' or one of {', '.join(EXPRESSIONS)}, not {split!r}")
    recipe = {"people": people, "takes": takes, "frames": frames_per_take, "seed": seed, "version": VERSION}
    arrays = cached("mixed-faces", recipe, lambda: _build(people, takes, frames_per_take, seed), root=cache).arrays
    template = Mesh(arrays["rests"].mean(axis=0, dtype=np.float64), arrays["faces"])
    order = ("rests", "displacements", "coefficients", "subject", "weights", "transforms")
    shapes = SkinnedShapes(*(torch.from_numpy(arrays[name]) for name in order))
    test = _test_takes(split, people, takes, arrays["expressions"])
    chosen = Split.by_mask(torch.from_numpy(np.repeat(test, frames_per_take)))
    return MeshSet(template, shapes, _names(people, takes, frames_per_take, arrays["strongest"]), chosen, unit_mm=1.0)


def _test_takes(split: str, people: int, takes: int, expressions: Int[np.ndarray, "takes keys two"]) -> np.ndarray:
    """Whether each take of each person is for the test."""
    person, take = np.divmod(np.arange(people * takes), takes)
    if split == "takes":
        return take >= takes - max(takes // 5, 1)
    if split == "people":
        return person >= people - max(people // 5, 1)
    return (expressions == list(EXPRESSIONS).index(split)).any(axis=(1, 2))


def _names(people: int, takes: int, frames: int, strongest: Int[np.ndarray, "items"]) -> tuple[str, ...]:
    named = list(EXPRESSIONS)
    numbers = [(i, j, k) for i in range(people) for j in range(takes) for k in range(frames)]
    return tuple(f"{i:03d}/{j:03d}/{k:03d}-{named[e]}" for (i, j, k), e in zip(numbers, strongest, strict=True))


@dataclass(frozen=True)
class Take:
    """What a person does in one take.

    actions: strength of each of ``ACTIONS``, frame by frame.
    expressions: the two expressions of each key, the stronger first.
    """

    actions: Float[np.ndarray, "frames actions"]
    expressions: Int[np.ndarray, "keys 2"]


def random_take(frames: int, habit: Float[np.ndarray, "actions"], rng: np.random.Generator) -> Take:
    """A path through three random keys; each action starts and arrives a little earlier or later than the others."""
    keys, expressions = zip(*(_random_key(rng) for _ in range(NUM_KEYS)), strict=True)
    time = (np.arange(frames) + 0.5) / frames * (NUM_KEYS - 1)
    lagged = time[:, None] - np.clip(rng.normal(0.0, 0.1, len(ACTIONS)), -0.25, 0.25)
    path = np.broadcast_to(keys[0], (frames, len(ACTIONS)))
    for number, (start, end) in enumerate(pairwise(keys)):
        t = np.clip(lagged - number, 0.0, 1.0)
        path = path + (end - start) * t**2 * (3 - 2 * t)
    return Take(np.clip(habit * path, -1.0, 1.0), np.array(expressions))


def _random_key(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Strengths of all actions, and the numbers of the two expressions."""
    chosen = rng.choice(len(EXPRESSIONS), 2, replace=False)
    share, strength = rng.uniform(0.5, 1.0), rng.uniform(0.3, 1.0)
    key = np.zeros(len(ACTIONS))
    for number, part in zip(chosen, (share, 1 - share), strict=True):
        poses = list(EXPRESSIONS.values())[number]
        key += strength * part * action_vector(poses[rng.integers(len(poses))])
    free = [ACTIONS.index(action) for action in ACTIONS if action not in UNUSED]
    key[rng.choice(free, EXTRA_ACTIONS, replace=False)] += rng.uniform(0.1, 0.8, EXTRA_ACTIONS)
    return key, chosen


def person_takes(seed: int, person: int, takes: int, frames: int) -> list[Take]:
    """All takes of one person."""
    habit = habits(np.random.default_rng([seed, 2, person]))
    return [random_take(frames, habit, np.random.default_rng([seed, 4, person, take])) for take in range(takes)]


def jaw_motion(
    actions: Float[np.ndarray, "frames actions"],
) -> tuple[Float[np.ndarray, "frames 3 3"], Float[np.ndarray, "frames 3"]]:
    """How the jaw bone turns, and how far it moves ahead, in millimeters."""
    opened, left, right, forward = actions[:, [ACTIONS.index(action) for action in JAW]].T
    # A jaw that closes further than shut would push the teeth through each other.
    angles = np.stack([JAW_OPEN * np.maximum(opened, 0), JAW_SIDE * (left - right), np.zeros(len(actions))], axis=1)
    ahead = np.stack([np.zeros(len(actions)), np.zeros(len(actions)), JAW_FORWARD * forward], axis=1)
    return Rotation.from_rotvec(angles, degrees=True).as_matrix(), ahead


def face_crop(head: Any) -> Int[np.ndarray, "vertices"]:
    """The vertices of anny's head that make a face: near the nose, without the insides of mouth and eyes."""
    from anny.face_segmentation import get_face_segmentation_mask

    whole = Mesh(1000.0 * y_up(head.template_vertices.numpy()), head.faces.numpy())
    outside = ~get_face_segmentation_mask(head, CAVITIES).numpy()
    candidates = np.intersect1d(skin(whole), whole.faces[outside])
    nose = candidates[whole.verts[candidates, 2].argmax()]
    near = np.linalg.norm(whole.verts[candidates] - whole.verts[nose], axis=1) < RADIUS
    kept = candidates[near]
    while len(corners := _loose_corners(whole.submesh(kept))):
        kept = np.delete(kept, corners)
    return kept


def _loose_corners(mesh: Mesh) -> np.ndarray:
    """Vertices that hang on a single triangle or on none, or outside the largest part."""
    triangles = np.bincount(mesh.faces.ravel(), minlength=mesh.num_vertices)
    largest = np.isin(np.arange(mesh.num_vertices), skin(mesh))
    return np.flatnonzero((triangles < 2) | ~largest)


def person_at_rest(
    head: Any, kept: Int[np.ndarray, "vertices"], phenotypes: Mapping[str, float], features: Mapping[str, float]
) -> tuple[Float[np.ndarray, "vertices 3"], Float[np.ndarray, "3"]]:
    """The face of a person without expression, and the head of the jaw bone, in millimeters, y up, not centered."""
    with torch.no_grad():
        made = head(phenotype_kwargs=dict(phenotypes), local_changes_kwargs=dict(features))
    pivot = made["rest_bone_heads"][0, head.bone_labels.index("jaw")].numpy()
    return 1000.0 * y_up(made["rest_vertices"][0].numpy()[kept]), 1000.0 * y_up(pivot)


def jaw_weights(head: Any, kept: Int[np.ndarray, "vertices"]) -> Float[np.ndarray, "vertices"]:
    """How much of the jaw's motion each vertex takes: the weights of the jaw and of all bones that hang on it."""
    moves = [label == "jaw" for label in head.bone_labels]
    for bone, parent in enumerate(head.bone_parents):
        moves[bone] = moves[bone] or (parent >= 0 and moves[parent])
    return head.dense_vertex_bone_weights.numpy()[kept][:, moves].sum(axis=1)


def centroid_size(verts: Float[np.ndarray, "vertices 3"]) -> float:
    """The root mean square distance of the vertices from their center."""
    return float(np.sqrt(np.square(verts - verts.mean(axis=0)).sum(axis=1).mean()))


def _build(people: int, takes: int, frames: int, seed: int) -> Stored:
    head = head_model()
    kept = face_crop(head)
    template = Mesh(1000.0 * y_up(head.template_vertices.numpy()), head.faces.numpy()).submesh(kept)
    columns = [ACTIONS.index(action) for action in MOVED]
    rests, coefficients, transforms, expressions, strongest = [], [], [], [], []
    for person in range(people):
        rest, pivot = person_at_rest(head, kept, *subject_shape(seed, person))
        scale, center = centroid_size(template.verts) / centroid_size(rest), rest.mean(axis=0)
        rests.append(scale * (rest - center))
        for take in person_takes(seed, person, takes, frames):
            coefficients.append(scale * take.actions[:, columns])
            transforms.append(_about(scale * (pivot - center), *jaw_motion(take.actions), scale))
            expressions.append(take.expressions)
            nearest = np.round((np.arange(frames) + 0.5) / frames * (NUM_KEYS - 1)).astype(int)
            strongest.append(take.expressions[nearest, 0])
    arrays: dict[str, np.ndarray] = {
        "rests": np.stack(rests).astype(np.float32),
        "displacements": action_fields(head, kept)[columns].astype(np.float32),
        "coefficients": np.concatenate(coefficients).astype(np.float32),
        "subject": np.repeat(np.arange(people), takes * frames),
        "weights": jaw_weights(head, kept)[:, None].astype(np.float32),
        "transforms": np.concatenate(transforms).astype(np.float32),
        "expressions": np.stack(expressions).astype(np.int64),
        "strongest": np.concatenate(strongest).astype(np.int64),
        "faces": template.faces,
        "kept": kept,
    }
    return Stored(arrays, {"actions": list(MOVED), "expressions": list(EXPRESSIONS), "unit": "mm"})


def _about(pivot: np.ndarray, rotation: np.ndarray, ahead: np.ndarray, scale: float) -> np.ndarray:
    """Transforms of one bone as :class:`SkinnedShapes` has them, [frames, 1, 3, 4]."""
    shift = pivot - rotation @ pivot + scale * ahead
    return np.concatenate([rotation - np.eye(3), shift[..., None]], axis=-1)[:, None]
