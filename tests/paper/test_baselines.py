"""Baselines against what they must give on sets small enough to think through."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geoskip.data import CorrespondenceSet, MeshSet, SkinnedShapes, Split, StoredShapes
from geoskip.meshes import Mesh, icosphere
from geoskip.meshes.retriangulation import flip_edges
from geoskip.paper.baselines import (
    correspondence_baselines,
    majority_by_color,
    nearest_by_position,
    principal_components,
    reconstruction_baselines,
    train_autoencoder,
    vertex_colors,
)

# Distances on a target of twelve vertices.
APART = 1 - torch.eye(12)


def mesh_set(verts: torch.Tensor, num_train: int) -> MeshSet:
    names = tuple(f"{item:03d}" for item in range(len(verts)))
    return MeshSet(icosphere(0), StoredShapes(verts.float()), names, Split.leading(len(verts), num_train), unit_mm=1000)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_principal_components_are_those_of_an_svd() -> None:
    spread = 2.0 ** -torch.arange(36.0)
    verts = (noise(60, 36) * spread) @ torch.linalg.qr(noise(36, 36, seed=1)).Q + 3
    found = principal_components(mesh_set(verts.unflatten(1, (12, 3)), 50), 5)
    centered = verts[:50] - verts[:50].mean(0)
    basis = torch.linalg.svd(centered, full_matrices=False).Vh[:5].T
    assert torch.allclose((found.basis.T @ basis).abs(), torch.eye(5), atol=1e-3)
    assert torch.allclose(found.mean, verts[:50].mean(0), atol=1e-5)
    shapes = verts[50:].unflatten(1, (12, 3))
    own = found.decode(found.encode(shapes)[:, :3]).flatten(1)
    expected = verts[:50].mean(0) + (verts[50:] - verts[:50].mean(0)) @ basis[:, :3] @ basis[:, :3].T
    assert torch.allclose(own, expected, atol=1e-3)


def test_shapes_of_a_low_rank_are_exact_with_as_many_numbers() -> None:
    verts = (noise(80, 4) @ noise(4, 36, seed=1)).unflatten(1, (12, 3))
    found = reconstruction_baselines(mesh_set(verts, 60), sizes=(2, 4), code=4, steps=1)
    assert found["PCA 2"]["mean_mm"] > 100
    assert found["PCA 4"]["mean_mm"] < 0.1


def test_an_autoencoder_follows_a_curve_that_pca_cannot() -> None:
    angle = torch.rand(600, generator=torch.Generator().manual_seed(0)) * 2 * torch.pi
    circle = torch.stack([angle.cos(), angle.sin(), (2 * angle).cos()], dim=1)
    verts = (circle @ torch.linalg.qr(noise(36, 3, seed=1)).Q.T).unflatten(1, (12, 3))
    found = reconstruction_baselines(mesh_set(verts, 500), sizes=(2,), code=2, steps=400)
    assert found["MLP 2"]["mean_mm"] < 0.4 * found["PCA 2"]["mean_mm"]


def test_the_same_seed_gives_the_same_autoencoder_and_leaves_torch_alone() -> None:
    x = noise(40, 6)
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    one, same, other = (train_autoencoder(x, 2, 2, seed)(x) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_subject_at_rest_and_the_nearest_frame() -> None:
    """Two people, one action: at rest the error is the action's, that of the nearest frame what is left."""
    rests, field = noise(2, 12, 3), torch.zeros(1, 12, 3)
    field[..., 0] = 1.0
    strength = torch.tensor([[0.0], [1.0], [0.0], [1.0], [0.25], [0.5]])
    shapes = SkinnedShapes(rests, field, strength, torch.tensor([0, 0, 1, 1, 0, 0]))
    data = MeshSet(icosphere(0), shapes, tuple("abcdef"), Split.leading(6, 4), unit_mm=1.0)
    found = reconstruction_baselines(data, sizes=(1,), code=1, steps=1)
    assert found["subject at rest"]["mean_mm"] == pytest.approx((0.25 + 0.5) / 2)
    assert found["nearest training item"]["mean_mm"] == pytest.approx((0.25 + 0.5) / 2)
    assert found["nearest training item"]["median_mm"] == pytest.approx(0.375)
    assert "subject at rest" not in reconstruction_baselines(mesh_set(noise(9, 12, 3), 6), sizes=(1,), steps=1)


def exact_colors(mesh: Mesh, rounds: int) -> np.ndarray:
    """Colors as numbers of what they stand for: a vertex's color and the sorted colors of its neighbors."""
    neighbors: list[list[int]] = [[] for _ in range(mesh.num_vertices)]
    for i, j in mesh.edges().tolist():
        neighbors[i].append(j)
        neighbors[j].append(i)
    colors = [len(around) for around in neighbors]
    for _ in range(rounds):
        signatures = [(own, *sorted(colors[j] for j in js)) for own, js in zip(colors, neighbors, strict=True)]
        number = {signature: k for k, signature in enumerate(sorted(set(signatures)))}
        colors = [number[signature] for signature in signatures]
    return np.array(colors)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.integers(0, 4))
def test_colors_are_those_of_weisfeiler_and_lehman(seed: int, rounds: int) -> None:
    """The same partition as by exact refinement, on one mesh and across two."""
    rng = np.random.default_rng(seed)
    meshes = [flip_edges(icosphere(1), rng) for _ in range(2)]
    both = Mesh(
        np.concatenate([mesh.verts for mesh in meshes]),
        np.concatenate([meshes[0].faces, meshes[1].faces + meshes[0].num_vertices]),
    )
    exact = exact_colors(both, rounds)
    own = np.concatenate([vertex_colors(mesh, rounds) for mesh in meshes])
    pairs = len(np.unique(np.stack([exact, own]), axis=1).T)
    assert pairs == len(np.unique(exact)) == len(np.unique(own))


def correspondence_set(meshes: list[Mesh], labels: list[list[int]], num_train: int) -> CorrespondenceSet:
    names = tuple(f"{item:03d}" for item in range(len(meshes)))
    kept = tuple(torch.tensor(own) for own in labels)
    return CorrespondenceSet(icosphere(0), tuple(meshes), kept, names, Split.leading(len(meshes), num_train), 1.0)


def fan(spokes: int) -> Mesh:
    """A disk of triangles around vertex 0."""
    angle = np.arange(spokes) * 2 * np.pi / spokes
    verts = np.stack([np.append(0, np.cos(angle)), np.append(0, np.sin(angle)), np.zeros(spokes + 1)], axis=1)
    rim = 1 + np.arange(spokes)
    return Mesh(verts, np.stack([np.zeros(spokes, dtype=int), rim, np.roll(rim, -1)], axis=1))


def test_the_majority_of_a_color_wins_and_new_colors_get_the_commonest_label() -> None:
    """The rim of a fan has one color, its center another; a fan of five has others."""
    four = fan(4)
    data = correspondence_set(
        [four, four, four, fan(5)], [[7, 1, 2, 3, 1], [8, 1, 1, 3, 3], [8, 1, 2, 3, 4], [0] * 6], 2
    )
    predicted, seen = majority_by_color(data)
    assert predicted.tolist() == [7, 1, 1, 1, 1] + [1] * 6
    assert seen == pytest.approx(100 * 5 / 11)
    figures = correspondence_baselines(data, APART)
    name = next(iter(figures))
    assert figures[name]["accuracy_pct"] == pytest.approx(100 * 1 / 11)
    assert figures[name]["seen_pct"] == pytest.approx(seen)


def test_vertices_without_a_label_neither_vote_nor_count() -> None:
    four = fan(4)
    data = correspondence_set([four, four], [[7, -1, -1, 3, -1], [7, 3, -1, 3, 3]], 1)
    assert majority_by_color(data)[0].tolist() == [7, 3, 3, 3, 3]
    assert next(iter(correspondence_baselines(data, APART).values()))["accuracy_pct"] == 100


def test_the_nearest_position_gives_the_label() -> None:
    ball = icosphere(0)
    shifted = ball.with_verts(ball.verts + 0.01)
    data = correspondence_set([ball, shifted], [list(range(11, -1, -1)), list(range(12))], 1)
    assert nearest_by_position(data).tolist() == list(range(11, -1, -1))


def test_geodesic_errors_come_with_distances() -> None:
    ball = icosphere(0)
    data = correspondence_set([ball, ball], [list(range(12)), list(range(12))], 1)
    figures = correspondence_baselines(data, APART)
    assert figures["nearest position"] == {"accuracy_pct": 100.0, "geodesic_mean_pct": 0.0}
    majority = figures["majority of 3 Weisfeiler-Lehman rounds"]
    assert majority["geodesic_mean_pct"] == pytest.approx(100 - majority["accuracy_pct"])
