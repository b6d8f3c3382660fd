"""Random edge flips and sliding vertices: still the same surface, other edges, within the limits that are stated."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoskip.meshes import Mesh, closest_points, grid, icosphere, torus
from geoskip.meshes.retriangulation import (
    LEAST_COSINE,
    LEAST_DEGREE,
    LEAST_QUALITY,
    MOST_DEGREE,
    flip_edges,
    slide_vertices,
)


def degrees(mesh: Mesh) -> np.ndarray:
    return np.bincount(mesh.edges().ravel(), minlength=mesh.num_vertices)


def edge_set(mesh: Mesh) -> set[tuple[int, ...]]:
    return set(map(tuple, mesh.edges().tolist()))


def quality(mesh: Mesh) -> np.ndarray:
    corners = mesh.verts[mesh.faces]
    squares = np.square(corners - np.roll(corners, 1, axis=1)).sum(axis=(1, 2))
    return 4 * np.sqrt(3) * mesh.face_areas() / squares


def cosines(mesh: Mesh) -> dict[tuple[int, ...], float]:
    """Of the angle between the normals of the two triangles at each edge."""
    sides: dict[tuple[int, int], list[int]] = {}
    for number, face in enumerate(mesh.faces.tolist()):
        for a, b in zip(face, face[1:] + face[:1], strict=True):
            sides.setdefault((min(a, b), max(a, b)), []).append(number)
    normals = mesh.face_normals()
    return {edge: float(normals[pair[0]] @ normals[pair[1]]) for edge, pair in sides.items() if len(pair) == 2}


@pytest.mark.parametrize("mesh", [icosphere(3), torus(), grid(12, 9)], ids=["sphere", "torus", "grid"])
def test_flips_keep_the_surface_and_change_the_edges(mesh: Mesh) -> None:
    flipped = flip_edges(mesh, np.random.default_rng(0))
    before, after = edge_set(mesh), edge_set(flipped)
    assert len(after) == len(before)
    assert len(after & before) < 0.9 * len(before)
    assert flipped.num_faces == mesh.num_faces
    assert np.array_equal(flipped.verts, mesh.verts)
    assert len(flipped.nonmanifold_edges()) == 0
    assert np.array_equal(flipped.boundary_edges(), mesh.boundary_edges())
    assert len(np.unique(np.sort(flipped.faces, axis=1), axis=0)) == mesh.num_faces


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000))
def test_flips_stay_within_their_limits(seed: int) -> None:
    """On a bumpy sphere, whose own triangles all respect the limits."""
    rng = np.random.default_rng(seed)
    ball = icosphere(3)
    mesh = ball.with_verts(ball.verts * (1 + 0.01 * rng.normal(size=(ball.num_vertices, 1))))
    flipped = flip_edges(mesh, rng)
    assert degrees(flipped).min() >= LEAST_DEGREE
    assert degrees(flipped).max() <= MOST_DEGREE
    assert quality(flipped).min() > LEAST_QUALITY
    once = flip_edges(mesh, rng, rounds=1)
    before, after = cosines(mesh), cosines(once)
    assert all(before[edge] > LEAST_COSINE for edge in before.keys() - after.keys())
    assert all(after[edge] > LEAST_COSINE for edge in after.keys() - before.keys())
    # Outwards still points outwards.
    centers = flipped.verts[flipped.faces].mean(axis=1)
    assert ((flipped.face_normals() * centers).sum(axis=1) > 0).all()


def test_sharp_edges_stay() -> None:
    """The edges of a cube do not flip: its diagonals may, one on each side."""
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], dtype=float)
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    cube = Mesh(corners, np.array([face for a, b, c, d in quads for face in ((a, b, c), (a, c, d))]))
    sharp = {edge for edge in edge_set(cube) if np.isclose(np.linalg.norm(np.subtract(*corners[list(edge)])), 1)}
    assert len(sharp) == 12
    assert sharp <= edge_set(flip_edges(cube, np.random.default_rng(0)))


def test_flips_are_the_same_for_the_same_seed() -> None:
    one, same, other = (flip_edges(icosphere(2), np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert one.topology_hash() == same.topology_hash() != other.topology_hash()


@pytest.mark.parametrize("mesh", [icosphere(3), torus(), grid(12, 9)], ids=["sphere", "torus", "grid"])
def test_vertices_slide_along_the_surface_and_not_far(mesh: Mesh) -> None:
    slid = slide_vertices(mesh, np.random.default_rng(0))
    steps = np.linalg.norm(slid.verts - mesh.verts, axis=1)
    lengths = np.linalg.norm(np.subtract(*mesh.verts[mesh.edges().T]), axis=1)
    assert np.array_equal(slid.faces, mesh.faces)
    assert steps.max() <= 0.25 * lengths.max()
    assert np.median(steps) > 0.02 * lengths.mean()
    assert (slid.face_normals() * mesh.face_normals()).sum(axis=1).min() >= 0.5
    closest = closest_points(mesh, slid.verts)
    there = (closest.weights[..., None] * mesh.verts[mesh.faces[closest.faces]]).sum(axis=1)
    assert np.abs(there - slid.verts).max() < 1e-9


def test_moves_that_would_turn_a_triangle_over_are_left_out() -> None:
    """Two needles side by side, in which a quarter of the way along is further than they are wide."""
    verts = np.array([[0, 0, 0], [10, 0, 0], [10, 0.1, 0], [0, 0.1, 0], [5, 0.05, 0.0]], dtype=float)
    mesh = Mesh(verts, np.array([[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]]))
    for seed in range(20):
        slid = slide_vertices(mesh, np.random.default_rng(seed), reach=0.9)
        assert (slid.face_normals()[:, 2] > 0).all()


def test_vertices_without_triangles_stay() -> None:
    mesh = Mesh(np.concatenate([icosphere(1).verts, [[9.0, 9, 9]]]), icosphere(1).faces)
    slid = slide_vertices(mesh, np.random.default_rng(0))
    assert (slid.verts[-1] == 9).all()
    assert flip_edges(slid, np.random.default_rng(0)).num_vertices == mesh.num_vertices


def test_an_edge_that_exists_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flat pillow: the other diagonal of its front is the diagonal of its back."""
    monkeypatch.setattr("geoskip.meshes.retriangulation.LEAST_DEGREE", 0)
    verts = np.array([[0, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 0]], dtype=float)
    pillow = Mesh(verts, np.array([[0, 1, 2], [1, 0, 3], [3, 0, 2], [2, 1, 3]]))
    assert len(pillow.edges()) == 6
    assert edge_set(flip_edges(pillow, np.random.default_rng(0))) == edge_set(pillow)
    open_front = Mesh(verts, pillow.faces[:2])
    assert edge_set(flip_edges(open_front, np.random.default_rng(0), rounds=1)) != edge_set(open_front)
