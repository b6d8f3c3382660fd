"""Bodies with a connectivity each: exact labels, no shared edges, people and poses of the test never seen.

At full resolution, which takes no time to decimate.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from geoskip.data import CorrespondenceSet, Split, remeshed_bodies
from geoskip.data.cache import read_entry
from geoskip.data.generated_bodies import TEST_POSES, num_training_people, own_connectivity, random_pose
from geoskip.data.people import POSES, named_pose
from geoskip.meshes import Mesh, icosphere
from geoskip.paper.baselines import majority_by_color
from geoskip.training.config import resolve
from geoskip.training.tasks import make_task

TINY: dict[str, Any] = {"people": 2, "poses": 2, "num_vertices": 13_348}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def tiny(folder: Path) -> CorrespondenceSet:
    return remeshed_bodies(**TINY, cache=folder)


def named_edges(mesh: Mesh, labels: torch.Tensor) -> set[tuple[int, ...]]:
    """Edges by the labels of their ends."""
    return set(map(tuple, np.sort(labels.numpy()[mesh.edges()], axis=1).tolist()))


def test_each_body_has_edges_and_an_order_of_its_own(tiny: CorrespondenceSet) -> None:
    assert len({mesh.topology_hash() for mesh in tiny.meshes}) == 4
    own = [named_edges(*item) for item in zip(tiny.meshes, tiny.labels, strict=True)]
    template = named_edges(tiny.target, torch.arange(13_348))
    for number, edges in enumerate(own):
        assert len(edges) == len(template)
        assert 0.05 < len(edges - template) / len(template) < 0.5
        assert all(len(edges - other) > 0.05 * len(edges) for other in own[:number])
    for mesh in tiny.meshes:
        assert len(mesh.boundary_edges()) == len(mesh.nonmanifold_edges()) == 0
        assert mesh.components().max() == 0


def test_labels_are_exact(tiny: CorrespondenceSet) -> None:
    """Each is used once; a vertex has slid by a few millimeters from where the label's vertex is in the same pose."""
    for labels in tiny.labels:
        assert torch.equal(labels.sort().values, torch.arange(13_348))
        assert (labels == torch.arange(13_348)).float().mean() < 0.01
    # Lengths along the skin hardly change between poses, so labelled edges are as long as the template's.
    mesh, own_labels = tiny.meshes[1], tiny.labels[1].numpy()
    edges = mesh.edges()
    own, template = (
        np.linalg.norm(np.subtract(*verts[ends.T]), axis=1)
        for verts, ends in ((mesh.verts, edges), (tiny.target.verts, own_labels[edges]))
    )
    assert 0.8 < np.median(own / template) < 1.25
    assert np.quantile(own / template, 0.9) < 2


def test_the_own_connectivity_of_a_mesh_keeps_labels_and_moves_little() -> None:
    ball = icosphere(3)
    verts, faces, labels = own_connectivity(ball, np.random.default_rng(3))
    spacing = np.linalg.norm(np.subtract(*ball.verts[ball.edges().T]), axis=1).max()
    # About the vertical: heights stay, and the best turn brings all vertices back to their own.
    start, end = ball.verts[labels], verts
    assert np.abs(end[:, 1] - start[:, 1]).max() < 0.25 * spacing
    flat = (end[:, 0] - 1j * end[:, 2]) @ np.conj(start[:, 0] - 1j * start[:, 2])
    turn = flat / abs(flat)
    assert abs(np.angle(turn)) > 0.1
    back = (end[:, 0] - 1j * end[:, 2]) / turn
    apart = np.stack([back.real - start[:, 0], end[:, 1] - start[:, 1], -back.imag - start[:, 2]], axis=1)
    assert np.linalg.norm(apart, axis=1).max() < 0.3 * spacing
    assert np.linalg.norm(apart, axis=1).mean() > 0.02 * spacing
    # Outwards still points outwards.
    mesh = Mesh(verts, faces)
    assert ((mesh.face_normals() * mesh.verts[mesh.faces].mean(axis=1)).sum(axis=1) > 0).all()


def test_upright_on_the_floor_turned_in_meters(tiny: CorrespondenceSet) -> None:
    assert tiny.unit_mm == 1000.0
    for mesh in (*tiny.meshes, tiny.target):
        assert -0.01 < mesh.verts[:, 1].min() < 0.01
        assert 0.8 < np.ptp(mesh.verts[:, 1]) < 2.6
    # In steps that need 16 bits.
    assert np.allclose(np.round(tiny.meshes[0].verts / 4e-5), tiny.meshes[0].verts / 4e-5, atol=1e-3)


def test_the_target_is_a_template_that_nobody_is(tiny: CorrespondenceSet) -> None:
    assert tiny.target.topology_hash() not in {mesh.topology_hash() for mesh in tiny.meshes}
    assert tiny.num_classes == 13_348


def test_people_and_poses_of_the_test_are_never_seen(tiny: CorrespondenceSet) -> None:
    assert (tiny.split.train.tolist(), tiny.split.test.tolist()) == ([0, 1], [2, 3])
    assert tiny.names == ("000/000", "000/001", "001/000", "001/001")
    assert [num_training_people(people, 0.75) for people in (1, 2, 4, 32)] == [1, 1, 3, 24]
    held_out = np.stack([named_pose(name) for name in TEST_POSES])
    common = np.stack([named_pose(name) for name in POSES if name not in TEST_POSES])

    def nearest(pose: np.ndarray, others: np.ndarray) -> float:
        return float(np.linalg.norm(others - pose, axis=(1, 2)).min())

    for seed in range(30):
        assert nearest(random_pose(np.random.default_rng(seed), test=True), held_out) < 80
        blends = random_pose(np.random.default_rng(seed), test=False)
        pairs = [a + share * (b - a) for a in common for b in common for share in np.linspace(0, 1, 11)]
        assert nearest(blends, np.stack(pairs)) < 40


def test_the_pattern_of_the_edges_gives_nothing_away(tiny: CorrespondenceSet) -> None:
    _, seen = majority_by_color(tiny)
    assert seen < 5
    registered = replace(tiny, meshes=(tiny.target,) * 4, labels=(torch.arange(13_348),) * 4)
    assert majority_by_color(registered)[1] == 100


def test_a_network_trains_on_meshes_with_a_connectivity_each() -> None:
    """Two meshes in a batch, and a step for each: losses and gradients are finite, and those of each mesh alone."""
    ball = icosphere(2)
    items = [own_connectivity(ball, np.random.default_rng(seed)) for seed in range(3)]
    meshes = tuple(Mesh(verts, faces) for verts, faces, _ in items)
    labels = tuple(torch.from_numpy(labels) for _, _, labels in items)
    data = CorrespondenceSet(ball, meshes, labels, ("a", "b", "c"), Split.leading(3, 2), unit_mm=1.0)
    task = make_task(resolve("correspondence", data="tiny", skip="affine", device="cpu"), data)
    model = task.make_model().eval()
    alone = [task.loss(model, task.batch(torch.tensor([item]))) for item in range(2)]
    both = task.loss(model, task.batch(torch.tensor([0, 1])))
    both.backward()
    assert torch.allclose(both, torch.stack(alone).mean(), rtol=1e-5)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_cached_bodies_need_no_anny(tiny: CorrespondenceSet, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tiny.content in {entry.name for entry in folder.glob("remeshed-bodies-*")}
    monkeypatch.setitem(sys.modules, "anny", None)
    assert (remeshed_bodies(**TINY, cache=folder).meshes[3].verts == tiny.meshes[3].verts).all()
    with pytest.raises(ImportError, match=r"pip install 'geoskip\[people\]"):
        remeshed_bodies(**TINY, seed=5, cache=folder)


def test_the_entry_is_small(tiny: CorrespondenceSet, folder: Path) -> None:
    arrays = read_entry(next(folder.glob("remeshed-bodies-*"))).arrays
    assert {name: arrays[name].dtype.itemsize for name in ("verts", "faces", "labels")} == {
        "verts": 2,
        "faces": 2,
        "labels": 2,
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"people": 0}, "people: expected 1 or more, got 0"),
        ({"num_vertices": 3}, "num_vertices: expected 4 to 13348, got 3"),
    ],
)
def test_arguments_that_make_no_set_are_refused(arguments: dict[str, int], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        remeshed_bodies(**(TINY | arguments), cache=tmp_path)
