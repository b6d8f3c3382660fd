"""Generated bodies: one closed connectivity, poses that bend and do not stretch, unseen people in the test."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from geoskip.data import CorrespondenceSet, bodies
from geoskip.data.cache import read_entry
from geoskip.data.generated_bodies import body_verts, person
from geoskip.data.people import (
    CENTRAL_JOINTS,
    JOINTS,
    PAIRED_JOINTS,
    POSES,
    anny_model,
    bone_rotations,
    named_pose,
    numbered_pose,
    pose_name,
    vary_pose,
)
from geoskip.meshes import Mesh, geodesic_distances


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def body() -> Any:
    return anny_model()


@pytest.fixture(scope="module")
def faust_like(folder: Path, body: Any) -> CorrespondenceSet:
    return bodies(cache=folder)


def edge_lengths(mesh: Mesh) -> np.ndarray:
    i, j = mesh.edges().T
    return np.linalg.norm(mesh.verts[i] - mesh.verts[j], axis=1)


def test_the_default_set_has_the_size_and_split_of_faust(faust_like: CorrespondenceSet) -> None:
    assert len(faust_like) == 100
    assert faust_like.num_classes == 6890
    assert faust_like.split.train.tolist() == list(range(80))
    assert list(faust_like.names) == sorted(faust_like.names)
    seen = {faust_like.names[item].split("/")[0] for item in faust_like.split.train.tolist()}
    assert seen.isdisjoint(faust_like.names[item].split("/")[0] for item in faust_like.split.test.tolist())


def test_all_share_one_closed_surface(faust_like: CorrespondenceSet) -> None:
    target = faust_like.target
    assert len({mesh.topology_hash() for mesh in faust_like.meshes}) == 1
    assert target.components().max() == 0
    assert len(target.boundary_edges()) == len(target.nonmanifold_edges()) == 0
    assert target.num_vertices - len(target.edges()) + target.num_faces == 2
    assert all(torch.equal(labels, torch.arange(6890)) for labels in faust_like.labels)


def test_vertices_are_those_of_anny(faust_like: CorrespondenceSet, folder: Path, body: Any) -> None:
    kept = read_entry(next(folder.glob("bodies-*"))).arrays["kept"]
    phenotypes, takes = person(0, 4, 10)
    own = body_verts(body, phenotypes, takes, kept)
    for pose in range(10):
        offset = faust_like.meshes[40 + pose].verts - own[pose]
        assert np.ptp(offset, axis=0).max() < 1e-6


def test_metres_upright_on_the_floor(faust_like: CorrespondenceSet) -> None:
    assert faust_like.unit_mm == 1000.0
    for mesh in faust_like.meshes:
        assert abs(mesh.verts[:, 1].min()) < 1e-6
        assert np.abs(mesh.verts[:, [0, 2]].mean(axis=0)).max() < 1e-6
    heights = [np.ptp(mesh.verts[:, 1]) for mesh in faust_like.meshes[::10]]
    assert min(heights) > 1.45
    assert max(heights) < 2.0
    assert np.std(heights) > 0.05


def test_poses_keep_lengths_along_the_skin_but_not_through_the_air(faust_like: CorrespondenceSet) -> None:
    rest = faust_like.meshes[0]
    for mesh in faust_like.meshes[1:10]:
        ratio = edge_lengths(mesh) / edge_lengths(rest)
        assert abs(np.median(ratio) - 1) < 0.01
        assert np.mean(np.abs(ratio - 1) < 0.1) > 0.75
        assert np.abs(mesh.verts - rest.verts).max() > 0.15


def test_geodesics_reach_every_vertex(faust_like: CorrespondenceSet) -> None:
    (distances,) = geodesic_distances(faust_like.target, np.array([0]))
    assert np.isfinite(distances).all()
    assert 1.0 < distances.max() < 3.0


def test_people_and_seeds_differ_and_repeat(body: Any, tmp_path: Path) -> None:
    """At full resolution, which takes no time to decimate."""
    full: dict[str, Any] = {"poses": 2, "num_vertices": 13_348}
    two, other = (bodies(people=2, **full, seed=seed, cache=tmp_path) for seed in (0, 1))
    three = bodies(people=3, **full, cache=tmp_path)
    assert two.names == three.names[:4] == ("000/000-rest", "000/001-arms_up", "001/000-rest", "001/001-arms_up")
    for mesh, same in zip(two.meshes, three.meshes, strict=False):
        assert (mesh.verts == same.verts).all()
    assert other.target.topology_hash() == two.target.topology_hash()
    assert np.abs(other.target.verts - two.target.verts).max() > 0.02
    assert np.abs(two.meshes[2].verts - two.meshes[0].verts).max() > 0.02
    assert (two.split.train.tolist(), two.split.test.tolist()) == ([0, 1], [2, 3])


def test_cached_bodies_need_no_anny(
    faust_like: CorrespondenceSet, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "anny", None)
    assert (bodies(cache=folder).meshes[7].verts == faust_like.meshes[7].verts).all()
    with pytest.raises(ImportError, match=r"pip install 'geoskip\[people\]"):
        bodies(seed=5, cache=folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"people": 0}, "people: expected 1 or more, got 0"),
        ({"poses": 0}, "poses: expected 1 or more, got 0"),
        ({"num_vertices": 3}, "num_vertices: expected 4 to 13348, got 3"),
        ({"num_vertices": 20_000}, "num_vertices: expected 4 to 13348"),
    ],
)
def test_arguments_that_make_no_set_are_refused(arguments: dict[str, int], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        bodies(**arguments, cache=tmp_path)


def test_poses_name_joints_and_joints_name_bones(body: Any) -> None:
    named = {joint for pose in POSES.values() for joint in pose}
    assert named <= {*JOINTS, *PAIRED_JOINTS}
    assert set(bone_rotations(named_pose("rest"))) <= set(body.bone_labels)
    for parts in (*CENTRAL_JOINTS.values(), *PAIRED_JOINTS.values()):
        assert np.isclose(sum(parts.values()), 1)


@pytest.mark.parametrize("name", ["arms_up", "arms_forward", "hands_on_hips", "bend_forward", "squat"])
def test_poses_written_without_sides_are_mirror_images(name: str) -> None:
    bones = bone_rotations(named_pose(name))
    for bone, rotation in bones.items():
        twin = bone[:-1] + {"L": "R", "R": "L"}[bone[-1]] if bone[-2] == "." else bone
        assert np.allclose(bones[twin], rotation * (1, -1, -1))


def test_raised_arms_are_above_the_head_and_mirrored(body: Any) -> None:
    arms_up = bone_rotations(named_pose("arms_up"))
    verts = body_verts(body, {"age": 0.8}, [{}, arms_up], np.arange(13_718))
    wrists = [body.vertex_bone_indices[:, 0].numpy() == body.bone_labels.index(f"wrist.{side}") for side in "LR"]
    for wrist, sign in zip(wrists, (1, -1), strict=True):
        assert verts[1][wrist, 1].min() > verts[0][:, 1].max()
        assert (sign * verts[1][wrist, 0] > 0).all()


def test_poses_past_the_named_ones_are_blends() -> None:
    rng = np.random.default_rng(0)
    blend = numbered_pose(len(POSES), rng)
    named = np.stack([named_pose(name) for name in POSES])
    assert pose_name(len(POSES)) == f"blend{len(POSES)}"
    assert np.abs(blend - named).max(axis=(1, 2)).min() > 1
    pairs = [
        (a, b)
        for a in named
        for b in named
        if np.linalg.matrix_rank(np.stack([a - blend, b - blend]).reshape(2, -1), tol=1e-6) == 1
    ]
    assert pairs


def test_a_person_takes_a_pose_a_few_degrees_off() -> None:
    pose = named_pose("squat")
    off = vary_pose(pose, np.random.default_rng(0)) - pose
    assert 1 < off.std() < 4
    assert np.abs(off).max() <= 5
