"""Closest points against a scalar transcription of Ericson's regions over every triangle."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoskip.meshes import Mesh, MeshError, grid, hierarchy, icosphere
from geoskip.meshes.hierarchy import closest_on_triangles, closest_points

Vector = np.ndarray


def weights_by_regions(p: Vector, a: Vector, b: Vector, c: Vector) -> tuple[float, float, float]:
    """Ericson, Real-Time Collision Detection, 5.1.5: vertex, edge or inside."""
    ab, ac, ap, bp, cp = b - a, c - a, p - a, p - b, p - c
    d1, d2, d3, d4, d5, d6 = ab @ ap, ac @ ap, ab @ bp, ac @ bp, ab @ cp, ac @ cp
    if d1 <= 0 and d2 <= 0:
        return 1.0, 0.0, 0.0
    if d3 >= 0 and d4 <= d3:
        return 0.0, 1.0, 0.0
    if d6 >= 0 and d5 <= d6:
        return 0.0, 0.0, 1.0
    va, vb, vc = d3 * d6 - d5 * d4, d5 * d2 - d1 * d6, d1 * d4 - d3 * d2
    if vc <= 0 and d1 >= 0 >= d3:
        return 1 - d1 / (d1 - d3), d1 / (d1 - d3), 0.0
    if vb <= 0 and d2 >= 0 >= d6:
        return 1 - d2 / (d2 - d6), 0.0, d2 / (d2 - d6)
    if va <= 0 and d4 - d3 >= 0 and d5 - d6 >= 0:
        t = (d4 - d3) / ((d4 - d3) + (d5 - d6))
        return 0.0, 1 - t, t
    total = va + vb + vc
    return va / total, vb / total, vc / total


def distance_to_every_face(mesh: Mesh, p: Vector) -> list[float]:
    corners = mesh.verts[mesh.faces]
    return [float(np.linalg.norm(p - np.array(weights_by_regions(p, *abc)) @ abc)) for abc in corners]


def sizes_mixed(seed: int) -> Mesh:
    """Triangles from a thousandth to ten across, anywhere."""
    rng = np.random.default_rng(seed)
    size = 10.0 ** rng.uniform(-3, 1, 60)
    verts = rng.standard_normal((60, 1, 3)) * 2 + size[:, None, None] * rng.standard_normal((60, 3, 3))
    return Mesh(verts.reshape(-1, 3), np.arange(180).reshape(60, 3))


@pytest.mark.parametrize("mesh", [icosphere(1), grid(5, 7), sizes_mixed(0)], ids=["sphere", "grid", "mixed"])
@pytest.mark.parametrize("spread", [0.2, 1.0, 30.0])
def test_equals_every_triangle_tried(mesh: Mesh, spread: float) -> None:
    queries = spread * np.random.default_rng(1).standard_normal((40, 3))
    result = closest_points(mesh, queries)
    by_hand = [min(distance_to_every_face(mesh, p)) for p in queries]
    np.testing.assert_allclose(result.distances, by_hand, rtol=1e-12, atol=1e-13)
    assert (result.weights >= 0).all()
    np.testing.assert_allclose(result.weights.sum(axis=1), 1, atol=1e-15)
    corners = mesh.verts[mesh.faces[result.faces]]
    np.testing.assert_allclose(np.einsum("qk,qkd->qd", result.weights, corners), result.points, atol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(queries - result.points, axis=1), result.distances, atol=1e-15)


def test_weights_are_those_of_each_region() -> None:
    rng = np.random.default_rng(2)
    corners = rng.standard_normal((500, 3, 3))
    points = 1.5 * rng.standard_normal((500, 3))
    weights, squares = closest_on_triangles(points, corners)
    by_hand = np.array([weights_by_regions(p, *abc) for p, abc in zip(points, corners, strict=True)])
    np.testing.assert_allclose(weights, by_hand, atol=1e-10)
    assert {int(n) for n in (by_hand > 0).sum(axis=1)} == {1, 2, 3}
    np.testing.assert_allclose(squares, ((points - (by_hand[:, :, None] * corners).sum(axis=1)) ** 2).sum(axis=1))


def test_a_vertex_is_its_own_closest_point() -> None:
    mesh = icosphere(2)
    result = closest_points(mesh, mesh.verts)
    np.testing.assert_array_equal(result.distances, 0)
    np.testing.assert_array_equal(np.sort(result.weights, axis=1), [[0, 0, 1]] * mesh.num_vertices)
    np.testing.assert_array_equal(mesh.faces[result.faces, result.weights.argmax(axis=1)], np.arange(mesh.num_vertices))


def test_the_lowest_face_wins_a_tie() -> None:
    # Columns that shrink to the right, so that faces of all sizes meet, the larger ones first.
    mesh = grid(4, 9)
    x, y, z = mesh.verts.T
    mesh = mesh.with_verts(np.column_stack([0.5**x, 0.5**x * y, z]))
    first = [int(np.flatnonzero((mesh.faces == v).any(axis=1))[0]) for v in range(mesh.num_vertices)]
    np.testing.assert_array_equal(closest_points(mesh, mesh.verts).faces, first)


def test_above_a_plane_the_foot_is_the_orthogonal_projection() -> None:
    mesh = grid(6, 6)
    queries = np.random.default_rng(3).uniform([0, 0, -2], [5, 5, 2], (200, 3))
    result = closest_points(mesh, queries)
    np.testing.assert_allclose(result.points, queries * [1, 1, 0], atol=1e-14)
    np.testing.assert_allclose(result.distances, np.abs(queries[:, 2]), atol=1e-14)


@pytest.mark.parametrize("far", [0.0, 1e6])
def test_triangles_without_area_are_segments_or_points(far: float) -> None:
    verts = np.array(
        [[0, 0, 0], [1, 0, 0], [3, 0, 0], [0, 5, 0], [0, 5, 0], [0, 9, 0], [7, 7, 7], [7, 7, 7], [7, 7, 7]]
    )
    mesh = Mesh(verts + far, np.arange(9).reshape(3, 3))
    queries = np.array([[2.0, 1, 0], [-1, 0, 0], [1, 6, 0], [8, 8, 8]]) + far
    result = closest_points(mesh, queries)
    np.testing.assert_allclose(result.points - far, [[2, 0, 0], [0, 0, 0], [0, 6, 0], [7, 7, 7]], atol=1e-9)
    np.testing.assert_allclose(result.distances, [1, 1, 1, np.sqrt(3)], atol=1e-9)
    np.testing.assert_array_equal(result.faces, [0, 0, 1, 2])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 12))
def test_no_face_is_nearer(seed: int, num_faces: int) -> None:
    rng = np.random.default_rng(seed)
    # Rounded coordinates, so that corners, sides and planes coincide often.
    verts = rng.standard_normal((8, 3)).round(0)
    faces = np.array([rng.choice(8, 3, replace=False) for _ in range(num_faces)])
    queries = rng.standard_normal((5, 3)).round(1)
    result = closest_points(Mesh(verts, faces), queries)
    corners = verts[faces]
    blends = rng.dirichlet(np.full(3, 0.5), (400, num_faces))
    samples = np.einsum("sfk,fkd->sfd", blends, corners).reshape(-1, 3)
    nearest_sample = np.linalg.norm(queries[:, None] - samples, axis=2).min(axis=1)
    assert (result.distances <= nearest_sample + 1e-12).all()


def test_chunks_do_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh, queries = sizes_mixed(1), np.random.default_rng(4).standard_normal((100, 3))
    whole = closest_points(mesh, queries)
    monkeypatch.setattr(hierarchy, "_PAIRS_PER_CHUNK", 7)
    pieces = closest_points(mesh, queries)
    np.testing.assert_array_equal(pieces.faces, whole.faces)
    np.testing.assert_array_equal(pieces.weights, whole.weights)


def test_no_queries_and_vertices_without_faces() -> None:
    assert closest_points(icosphere(0), np.zeros((0, 3))).weights.shape == (0, 3)
    mesh = Mesh(np.vstack([np.eye(3), [5.0, 5, 5]]), np.array([[0, 1, 2]]))
    assert closest_points(mesh, np.full((1, 3), 5.0)).distances[0] == pytest.approx((5 - 1 / 3) * np.sqrt(3))


def test_what_cannot_be_answered_is_rejected() -> None:
    points = Mesh(np.zeros((4, 3)), np.zeros((0, 3), dtype=np.int64))
    with pytest.raises(MeshError, match="without faces have no surface"):
        closest_points(points, np.zeros((1, 3)))
    with pytest.raises(MeshError, match="must be finite"):
        closest_points(icosphere(0), np.array([[0.0, np.nan, 0.0]]))
