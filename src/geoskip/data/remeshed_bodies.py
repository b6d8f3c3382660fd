"""Generated bodies with a connectivity each: people and poses as in :mod:`geoskip.data.bodies`, but no shared edges.

With one connectivity for all bodies a network can tell vertices apart by the pattern of the edges around them. Here
every body has edges and a vertex order of its own (:mod:`geoskip.meshes.retriangulation`), stands turned about the
vertical by a random angle, and its vertices have slid a little along the surface. A vertex keeps the label of the
template's vertex that it comes from, so labels are exact. Positions are in meters, y up, on the plane y = 0, in steps
of 0.04 mm, which keeps the set small.
"""

from pathlib import Path

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from geoskip.data.bodies import SKIN_VERTS, TEMPLATE, body_template, grounded, posed
from geoskip.data.cache import cached
from geoskip.data.correspondence_set import CorrespondenceSet
from geoskip.data.entries import Stored
from geoskip.data.people import adult, anny_model
from geoskip.data.poses import POSES, bone_rotations, named_pose, taken
from geoskip.data.progress import ProgressBar
from geoskip.data.split import Split
from geoskip.meshes import Mesh
from geoskip.meshes.retriangulation import flip_edges, slide_vertices
from geoskip.shapes import Float, Int

# Part of the cache key: raise it when the same arguments give other bodies.
VERSION = 1
# Poses of the test only; people in training take the others, and blends of two of them.
TEST_POSES = ("lean", "kick", "guard", "lunge")
STEP = 4e-5  # meters
MIDDLE = np.array([0.0, 1.3, 0.0])  # of the range of positions that 16 bits hold


def remeshed_bodies(
    people: int = 32, poses: int = 5, verts: int = 6890, seed: int = 0, *, cache: Path | None = None
) -> CorrespondenceSet:
    """``people`` × ``poses`` meshes of ``verts`` vertices, for the correspondence to a template at rest.

    The last quarter of the people is the test. They take poses that nobody takes in training: mostly one of
    ``TEST_POSES``, blended with another. What a person looks like does not depend on how many there are. Made once by
    anny (the extra ``people``), then read from the cache (``cache``, or the usual one) on any machine that has a copy
    of it.
    """
    if people < 1 or poses < 1:
        raise ValueError(f"a set of bodies has at least one person and one pose, not {people} × {poses}")
    if not 4 <= verts <= SKIN_VERTS:
        raise ValueError(f"bodies have 4 to {SKIN_VERTS} vertices, not {verts}")
    recipe = {"people": people, "poses": poses, "verts": verts, "seed": seed, "version": VERSION}
    arrays = cached("remeshed-bodies", recipe, lambda: _build(people, poses, verts, seed), root=cache).arrays
    target = Mesh(arrays["target"], arrays["target_faces"].astype(np.int64))
    positions = STEP * arrays["verts"].astype(np.float64) + MIDDLE
    meshes = tuple(map(Mesh, positions, arrays["faces"].astype(np.int64)))
    labels = tuple(torch.from_numpy(arrays["labels"].astype(np.int64)))
    names = tuple(f"{person:03d}/{pose:03d}" for person in range(people) for pose in range(poses))
    split = Split.leading(len(meshes), poses * num_training_people(people))
    return CorrespondenceSet(target, meshes, labels, names, split, unit_mm=1000.0)


def num_training_people(people: int) -> int:
    """Three quarters, but one person at least on each side where there are two."""
    return max(1, min(round(0.75 * people), people - 1))


def random_pose(rng: np.random.Generator, test: bool) -> Float[np.ndarray, "joints 3"]:
    """A blend of two poses, as one person takes it; for the test mostly one of ``TEST_POSES``."""
    common = [name for name in POSES if name not in TEST_POSES]
    share = rng.uniform(0.7, 1.0) if test else rng.uniform(0.0, 1.0)
    first, second = rng.choice(TEST_POSES if test else common), rng.choice(common)
    return taken(share * named_pose(first) + (1 - share) * named_pose(second), rng)


def own_connectivity(
    mesh: Mesh, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "vertices 3"], Int[np.ndarray, "faces 3"], Int[np.ndarray, "vertices"]]:
    """Positions, faces and labels of a mesh that has slid, flipped, turned about the vertical, and been reordered."""
    changed = flip_edges(slide_vertices(mesh, rng), rng)
    labels = rng.permutation(mesh.num_vertices)
    numbers = np.argsort(labels)
    turn = Rotation.from_euler("y", rng.uniform(0.0, 360.0), degrees=True).as_matrix()
    faces = numbers[changed.faces]
    # Faces in the order of the template would give the vertex order away.
    faces = np.take_along_axis(faces, (rng.integers(3, size=(len(faces), 1)) + np.arange(3)) % 3, axis=1)
    return changed.verts[labels] @ turn.T, faces[rng.permutation(len(faces))], labels


def _build(people: int, poses: int, verts: int, seed: int) -> Stored:
    body = anny_model()
    template, kept = body_template(body, verts)
    target = grounded(posed(body, TEMPLATE, [{}], kept))[0]
    numbers = np.uint16 if verts <= 2**16 else np.uint32
    positions, faces, labels = [], [], []
    with ProgressBar("bodies", people * poses) as progress:
        for person in range(people):
            test = person >= num_training_people(people)
            sources = [np.random.default_rng([seed, 5, person, pose]) for pose in range(poses)]
            takes = [bone_rotations(random_pose(rng, test)) for rng in sources]
            phenotypes = adult(np.random.default_rng([seed, 1, person]), person)
            for shape, rng in zip(grounded(posed(body, phenotypes, takes, kept)), sources, strict=True):
                own, own_faces, own_labels = own_connectivity(template.with_verts(shape), rng)
                positions.append(np.round((own - MIDDLE) / STEP).astype(np.int16))
                faces.append(own_faces.astype(numbers))
                labels.append(own_labels.astype(numbers))
                progress.advance()
    arrays = {
        "verts": np.stack(positions),
        "faces": np.stack(faces),
        "labels": np.stack(labels),
        "target": target.astype(np.float32),
        "target_faces": template.faces.astype(numbers),
        "kept": kept,
    }
    return Stored(arrays, {"unit": "m"})
