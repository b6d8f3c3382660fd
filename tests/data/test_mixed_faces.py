"""Faces with mixed expressions: decoded as anny does it, one size, takes, people and expressions held out."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from geoskip.data import MeshSet, SkinnedShapes, mixed_faces, prepare_template
from geoskip.data.cache import read_entry
from geoskip.data.generated_faces import (
    JAW,
    MOVED,
    UNUSED,
    centroid_size,
    jaw_motion,
    person_takes,
    random_take,
)
from geoskip.data.heads import ACTIONS, EXPRESSIONS, head_model, subject_shape
from geoskip.data.people import y_up

TINY: dict[str, Any] = {"people": 5, "takes": 5, "frames_per_take": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def head() -> Any:
    return head_model()


@pytest.fixture(scope="module")
def tiny(folder: Path, head: Any) -> MeshSet:
    return mixed_faces(**TINY, cache=folder)


def skinned(data: MeshSet) -> SkinnedShapes:
    assert isinstance(data.shapes, SkinnedShapes)
    return data.shapes


def test_decoding_is_what_anny_computes(tiny: MeshSet, folder: Path, head: Any) -> None:
    """Blend shapes and the jaw bone, posed by anny in float64, then centered and scaled; float32 costs 0.1 μm."""
    kept = read_entry(next(folder.glob("mixed-faces-*"))).arrays["kept"]
    template = 1000.0 * y_up(head.template_vertices.numpy()[kept])
    for person in (0, 3):
        phenotypes, features = subject_shape(0, person)
        with torch.no_grad():
            rest = head(phenotype_kwargs=phenotypes, local_changes_kwargs=features)["vertices"][0].numpy()[kept]
        take = person_takes(0, person, 5, 4)[2][0]
        turns, ahead = jaw_motion(take)
        # Ours is y up, anny's is z up.
        axes = np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]])
        deltas = torch.eye(4, dtype=torch.float64).repeat(4, head.bone_count, 1, 1)
        jaw = head.bone_labels.index("jaw")
        deltas[:, jaw, :3, :3] = torch.from_numpy(axes.T @ turns @ axes)
        deltas[:, jaw, :3, 3] = torch.from_numpy(ahead @ axes / 1000)
        acted = take * ~np.isin(ACTIONS, [*JAW, *UNUSED])
        with torch.no_grad():
            made = head(
                pose_parameters=deltas,
                phenotype_kwargs=phenotypes,
                local_changes_kwargs=features,
                facial_actions=torch.from_numpy(acted),
            )
        own = 1000.0 * y_up(made["vertices"].numpy()[:, kept] - rest.mean(axis=0))
        own *= centroid_size(template) / centroid_size(1000.0 * rest)
        frames = torch.arange(person * 20 + 8, person * 20 + 12)
        assert np.abs(tiny.verts(frames).numpy() - own).max() < 1e-4
    assert np.abs(own - skinned(tiny).neutral(frames).numpy()).max() > 3


def test_the_face_is_one_surface_with_a_border_and_three_holes(tiny: MeshSet) -> None:
    template = tiny.template
    assert template.num_vertices == 1943
    assert template.components().max() == 0
    assert len(template.nonmanifold_edges()) == 0
    border = template.boundary_edges()
    # One border edge leads on to the next, all around: two at each vertex.
    assert set(np.bincount(border.ravel())[np.unique(border)]) == {2}
    assert template.num_vertices - len(template.edges()) + template.num_faces == 2 - 4


def test_the_outer_border_has_no_steps(tiny: MeshSet) -> None:
    """It bends by less than a right angle everywhere."""
    verts, border = tiny.template.verts, tiny.template.boundary_edges()
    outer = np.linalg.norm(verts[border].mean(axis=1)[:, :2], axis=1) > 50
    assert outer.sum() > 40
    neighbors: dict[int, list[int]] = {}
    for a, b in border[outer].tolist():
        neighbors.setdefault(a, []).append(b)
        neighbors.setdefault(b, []).append(a)
    for vertex, (a, b) in ((v, ends) for v, ends in neighbors.items() if len(ends) == 2):
        before, after = verts[vertex] - verts[a], verts[b] - verts[vertex]
        assert before @ after > 0, verts[vertex]


def test_hierarchies_and_spirals_can_be_built(tiny: MeshSet) -> None:
    template = prepare_template(tiny.template, (4, 4, 4, 4), spiral_length=15)
    assert [mesh.num_vertices for mesh in template.meshes.levels] == [1943, 486, 122, 31, 8]
    assert all(mesh.num_faces > 0 for mesh in template.meshes.levels)


def test_all_faces_have_one_size_and_differ(tiny: MeshSet) -> None:
    rests = skinned(tiny).rests.double().numpy()
    assert np.allclose([centroid_size(rest) for rest in rests], centroid_size(rests[0]), rtol=1e-6)
    assert np.abs(rests.mean(axis=1)).max() < 1e-4
    apart = [np.linalg.norm(a - b, axis=1).mean() for i, a in enumerate(rests) for b in rests[:i]]
    assert min(apart) > 1


def test_takes_of_the_test_are_never_seen(tiny: MeshSet) -> None:
    train, test = ({tiny.names[item][:7] for item in part.tolist()} for part in (tiny.split.train, tiny.split.test))
    assert test == {f"{person:03d}/004" for person in range(5)}
    assert not train & test
    assert len(tiny.split.train) + len(tiny.split.test) == 100
    assert list(tiny.names) == sorted(tiny.names)


def test_people_of_the_test_are_never_seen(tiny: MeshSet, folder: Path) -> None:
    split = mixed_faces(**TINY, split="people", cache=folder).split
    assert {tiny.names[item][:3] for item in split.test.tolist()} == {"004"}
    assert {tiny.names[item][:3] for item in split.train.tolist()} == {"000", "001", "002", "003"}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_of_the_test_are_never_seen(tiny: MeshSet, folder: Path, expression: str) -> None:
    split = mixed_faces(**TINY, split=expression, cache=folder).split
    number = list(EXPRESSIONS).index(expression)
    shown = [(keys == number).any() for person in range(5) for _, keys in person_takes(0, person, 5, 4)]
    assert split.test.tolist() == np.flatnonzero(np.repeat(shown, 4)).tolist()
    assert not any(tiny.names[item].endswith(expression) for item in split.train.tolist())


def test_the_jaw_turns_about_its_hinge() -> None:
    still = np.zeros((1, len(ACTIONS)))
    opened = still.copy()
    opened[0, ACTIONS.index("jawOpen")] = 1
    turn, ahead = jaw_motion(np.concatenate([still, opened, -opened]))
    assert np.allclose(turn[[0, 2]], np.eye(3))
    assert np.allclose(Rotation.from_matrix(turn[1]).as_rotvec(degrees=True), [22, 0, 0])
    assert (turn[1] @ [0, 0, 100])[1] < -30  # the chin goes down
    assert not ahead.any()


def test_expressions_are_sparse_and_mixed() -> None:
    played = np.stack([random_take(4, np.ones(52), np.random.default_rng(seed))[0] for seed in range(200)])
    assert np.abs(played).max() <= 1
    assert 0.5 < (played[:, 0] == 0).mean() < 0.9
    assert not played[..., [ACTIONS.index(action) for action in UNUSED]].any()
    assert len(np.unique(played[:, 0] != 0, axis=0)) > 190
    assert (np.abs(played).max(axis=(0, 1)) > 0.3).sum() == len(MOVED) + len(JAW)


def test_people_and_takes_do_not_depend_on_their_number(tiny: MeshSet, folder: Path, tmp_path: Path) -> None:
    two = mixed_faces(2, 3, 4, cache=tmp_path)
    for take in range(3):
        assert torch.equal(two.verts(torch.arange(4) + 12 + 4 * take), tiny.verts(torch.arange(4) + 20 + 4 * take))
    other = mixed_faces(2, 3, 4, seed=1, cache=tmp_path)
    assert (other.verts(torch.arange(4)) - two.verts(torch.arange(4))).abs().max() > 1


def test_cached_faces_need_no_anny(tiny: MeshSet, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tiny.content in {entry.name for entry in folder.glob("mixed-faces-*")}
    monkeypatch.setitem(sys.modules, "anny", None)
    found = mixed_faces(**TINY, cache=folder)
    assert torch.equal(found.verts(torch.arange(3)), tiny.verts(torch.arange(3)))
    with pytest.raises(ImportError, match=r"pip install 'geoskip\[people\]"):
        mixed_faces(**TINY, seed=5, cache=folder)


def test_decoding_follows_the_items_asked_for(tiny: MeshSet) -> None:
    whole = tiny.verts(torch.arange(len(tiny)))
    chosen = torch.tensor([99, 3, 3, 40])
    assert torch.allclose(tiny.verts(chosen), whole[chosen], atol=1e-4)
    assert tiny.verts(torch.zeros(0, dtype=torch.int64)).shape == (0, 1943, 3)
    assert len(tiny.to("cpu").shapes) == 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"people": 0}, "people: expected 1 or more, got 0"),
        ({"frames_per_take": 0}, "frames_per_take: expected 1 or more"),
        ({"split": "wink"}, "split: expected takes, people or one of bareteeth, .*, got 'wink'"),
    ],
)
def test_arguments_that_make_no_set_are_refused(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        mixed_faces(**(TINY | arguments), cache=tmp_path)


def test_skinning_is_the_weighted_mean_of_rigid_motions() -> None:
    """Against a loop over vertices and bones, with homogeneous matrices, in float64."""
    rng = np.random.default_rng(0)
    rest, field, strength = rng.normal(size=(2, 5, 3)), rng.normal(size=(3, 5, 3)), rng.normal(size=(4, 3))
    dense = rng.dirichlet(np.ones(3), 5) * (rng.random((5, 3)) < 0.7)
    turns = Rotation.random(12, random_state=0).as_matrix().reshape(4, 3, 3, 3)
    shifts = rng.normal(size=(4, 3, 3))
    transforms = np.concatenate([turns - np.eye(3), shifts[..., None]], axis=-1)
    subject = np.array([0, 1, 1, 0])
    shapes = SkinnedShapes(*map(torch.from_numpy, (rest, field, strength, subject, dense, transforms)))
    decoded = shapes.decode(torch.arange(4)).numpy()
    for t in range(4):
        for v in range(5):
            start = rest[subject[t], v] + sum(strength[t, a] * field[a, v] for a in range(3))
            moved = [dense[v, k] * (turns[t, k] @ start + shifts[t, k]) for k in range(3)]
            assert np.allclose(decoded[t, v], sum(moved) + (1 - dense[v].sum()) * start)
    assert np.allclose(shapes.neutral(torch.tensor([2])).numpy(), rest[1])
