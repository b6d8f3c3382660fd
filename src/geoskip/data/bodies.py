"""Generated bodies: people in named poses over one connectivity, in the manner of FAUST, for everyone to have.

Positions are in metres, y up, facing +z, standing on the plane y = 0 and centred above the origin. The skin is one
closed surface (eyes, tongue and other loose parts are removed), decimated to as many vertices as FAUST's meshes.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from geoskip.data.cache import cached
from geoskip.data.correspondence_set import CorrespondenceSet
from geoskip.data.entries import Stored, entry_name
from geoskip.data.people import adult, anny_model, skin, y_up
from geoskip.data.poses import bone_rotations, numbered_pose, pose_name, taken
from geoskip.data.split import Split
from geoskip.meshes import Mesh, decimate
from geoskip.shapes import Float, Int

# Part of the cache key: raise it when the same arguments give other bodies.
VERSION = 1
# Whose rest shape is decimated, whatever the seed: the connectivity depends on the number of vertices alone.
TEMPLATE = {"gender": 0.5, "age": 0.75}
SKIN_VERTS = 13_348


def bodies(
    identities: int = 10, poses: int = 10, verts: int = 6890, seed: int = 0, *, cache: Path | None = None
) -> CorrespondenceSet:
    """``identities`` × ``poses`` meshes of ``verts`` vertices, for the correspondence to the first of them.

    They are sorted by identity, then pose; the last fifth of the identities is the test, as in FAUST (80 and 20 of
    100), so it is of people never seen. A person does not depend on how many there are; the poses are those of
    :data:`geoskip.data.poses.POSES`, in order, then blends of two. Distances for the evaluation come from
    :func:`geoskip.data.geodesics.geodesics` of the target. Made once by anny (the extra ``people``), then read from
    the cache (``cache``, or the usual one) on any machine that has a copy of it.
    """
    if identities < 1 or poses < 1:
        raise ValueError("a set of bodies has at least one identity and one pose")
    if not 4 <= verts <= SKIN_VERTS:
        raise ValueError(f"bodies have 4 to {SKIN_VERTS} vertices, not {verts}")
    recipe = {"identities": identities, "poses": poses, "verts": verts, "seed": seed, "version": VERSION}
    stored = cached("bodies", recipe, lambda: _build(identities, poses, verts, seed), root=cache)
    meshes = tuple(Mesh(positions, stored.arrays["faces"]) for positions in stored.arrays["verts"])
    labels = (torch.arange(verts),) * len(meshes)
    names = tuple(f"{i:03d}/{p:03d}-{pose_name(p)}" for i in range(identities) for p in range(poses))
    split = Split.leading(len(meshes), poses * _num_train(identities))
    return CorrespondenceSet(meshes[0], meshes, labels, names, split, 1000.0, entry_name("bodies", recipe))


def _num_train(identities: int) -> int:
    """Four fifths, but one identity at least on each side where there are two."""
    return max(1, min(round(0.8 * identities), identities - 1))


def _build(identities: int, poses: int, verts: int, seed: int) -> Stored:
    body = anny_model()
    template, kept = body_template(body, verts)
    people = [posed(body, *person(seed, identity, poses), kept) for identity in range(identities)]
    positions = grounded(np.concatenate(people)).astype(np.float32)
    return Stored({"verts": positions, "faces": template.faces, "kept": kept}, {"unit": "m"})


def body_template(body: Any, verts: int) -> tuple[Mesh, Int[np.ndarray, "vertices"]]:
    """The skin of a person at rest, decimated to ``verts`` vertices, and which of anny's vertices these are."""
    whole = Mesh(body.template_vertices.numpy(), body.faces.numpy())
    kept = skin(whole)
    rest = whole.with_verts(posed(body, TEMPLATE, [{}], np.arange(whole.num_vertices))[0]).submesh(kept)
    coarse = decimate(rest, verts)
    return coarse.mesh, kept[coarse.kept]


def person(seed: int, identity: int, poses: int) -> tuple[dict[str, float], list[dict[str, Float[np.ndarray, "3"]]]]:
    """anny's phenotypes of one person, and the rotations of the bones in each pose that they take."""
    phenotypes = adult(np.random.default_rng([seed, 1, identity]), identity)
    takes = []
    for number in range(poses):
        pose = numbered_pose(number, np.random.default_rng([seed, 2, number]))
        takes.append(bone_rotations(taken(pose, np.random.default_rng([seed, 3, identity, number]))))
    return phenotypes, takes


def posed(
    body: Any,
    phenotypes: dict[str, float],
    takes: list[dict[str, Float[np.ndarray, "3"]]],
    kept: Int[np.ndarray, "vertices"],
) -> Float[np.ndarray, "takes vertices 3"]:
    """The chosen vertices of one person in each pose, in metres, y up."""
    with torch.no_grad():
        made = body(pose_parameters=pose_parameters(body, takes), phenotype_kwargs=phenotypes)
    return y_up(made["vertices"].numpy()[:, kept])


def pose_parameters(
    body: Any, takes: list[dict[str, Float[np.ndarray, "3"]]]
) -> Float[torch.Tensor, "takes bones 4 4"]:
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
