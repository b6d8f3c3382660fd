"""The mesh record: what it rejects, its combinatorics against Euler's formula and known areas, and its summary."""

import hashlib
import struct

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from geoskip.meshes import Mesh, MeshError, grid, icosphere, summary, torus
from geoskip.meshes.mesh import MAX_COORDINATE, repeats_a_corner

# The shape checker, where it is on, sees a wrong array before the mesh does.
REJECTED = (ValueError, TypeError, TypeCheckError)
NO_FACES = np.empty((0, 3), dtype=np.int64)


def two_triangles() -> Mesh:
    """A unit square cut along its diagonal."""
    return Mesh(np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]), np.array([[0, 1, 2], [0, 2, 3]]))


def test_keeps_private_read_only_float64_and_int64_copies() -> None:
    verts, faces = np.eye(3, dtype=np.float32), np.array([[0, 1, 2]], dtype=np.int16)
    mesh = Mesh(verts, faces)
    verts[:], faces[:] = 7, 0
    assert mesh.verts.dtype == np.float64
    assert mesh.faces.dtype == np.int64
    assert mesh.verts.tolist() == np.eye(3).tolist()
    assert mesh.faces.tolist() == [[0, 1, 2]]
    for array in (mesh.verts, mesh.faces):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2 * MAX_COORDINATE, -2 * MAX_COORDINATE])
def test_rejects_coordinates_that_are_not_finite_or_too_large(bad: float) -> None:
    verts = np.eye(3)
    verts[1, 2] = bad
    with pytest.raises(MeshError, match=r"1 of 3 vertices are not finite or exceed 1e\+30; the first is row 1"):
        Mesh(verts, np.array([[0, 1, 2]]))


@pytest.mark.parametrize("bad", [-1, 3, 2**40])
def test_rejects_indices_out_of_range(bad: int) -> None:
    with pytest.raises(MeshError, match=rf"1 of 2 faces refer to vertices outside 0 to 2; .* row 1: \[0, 1, {bad}\]"):
        Mesh(np.eye(3), np.array([[0, 1, 2], [0, 1, bad]]))


@pytest.mark.parametrize("face", [[1, 1, 2], [0, 1, 1], [2, 1, 2]])
def test_rejects_faces_that_repeat_a_vertex(face: list[int]) -> None:
    assert repeats_a_corner(np.array([face, [0, 1, 2]])).tolist() == [True, False]
    with pytest.raises(MeshError, match="1 of 1 faces repeat a vertex"):
        Mesh(np.eye(3), np.array([face]))


@pytest.mark.parametrize(
    "verts", [np.zeros((3, 2)), np.zeros(3), np.zeros((3, 3), dtype=complex), np.full((3, 3), "a")]
)
def test_rejects_verts_of_another_shape_or_kind(verts: np.ndarray) -> None:
    with pytest.raises(REJECTED, match="verts"):
        Mesh(verts, NO_FACES)


@pytest.mark.parametrize(
    "faces", [np.zeros((1, 4), dtype=int), np.arange(3), np.array([[0.0, 1, 2]]), np.full((1, 3), True)]
)
def test_rejects_faces_of_another_shape_or_kind(faces: np.ndarray) -> None:
    with pytest.raises(REJECTED, match="faces"):
        Mesh(np.eye(3), faces)


@pytest.mark.parametrize("num_vertices", [0, 2])
def test_a_mesh_without_faces_is_a_mesh(num_vertices: int) -> None:
    mesh = Mesh(np.zeros((num_vertices, 3)), NO_FACES)
    assert (mesh.num_vertices, mesh.num_faces) == (num_vertices, 0)
    assert mesh.edges().shape == mesh.boundary_edges().shape == mesh.nonmanifold_edges().shape == (0, 2)
    assert mesh.components().tolist() == list(range(num_vertices))
    assert mesh.face_areas().shape == (0,)
    assert mesh.face_normals().shape == (0, 3)


def test_edges_of_two_triangles_by_hand() -> None:
    mesh = two_triangles()
    assert mesh.edges().tolist() == [[0, 1], [0, 2], [0, 3], [1, 2], [2, 3]]
    assert mesh.boundary_edges().tolist() == [[0, 1], [0, 3], [1, 2], [2, 3]]
    assert mesh.nonmanifold_edges().tolist() == []
    assert Mesh(np.eye(5, 3), np.array([[0, 1, 2], [1, 0, 3], [0, 1, 4]])).nonmanifold_edges().tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("mesh", "euler", "boundary"),
    [(icosphere(0), 2, 0), (icosphere(2), 2, 0), (torus(7, 5), 0, 0), (grid(4, 6), 1, 2 * (3 + 5)), (grid(2, 2), 1, 4)],
)
def test_euler_characteristic_and_boundary_of_the_primitives(mesh: Mesh, euler: int, boundary: int) -> None:
    assert mesh.num_vertices - len(mesh.edges()) + mesh.num_faces == euler
    assert len(mesh.boundary_edges()) == boundary
    assert len(mesh.nonmanifold_edges()) == 0
    assert set(mesh.components().tolist()) == {0}


def signed_volume(mesh: Mesh) -> float:
    a, b, c = (mesh.verts[mesh.faces[:, k]] for k in range(3))
    return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6)


def test_primitives_converge_to_their_area_and_volume_and_face_outwards() -> None:
    sphere, ring = icosphere(4, radius=2.0), torus(160, 80, radius=3.0, tube=0.5)
    assert sphere.num_vertices == 10 * 4**4 + 2
    assert np.linalg.norm(sphere.verts, axis=1) == pytest.approx(2.0)
    assert sphere.face_areas().sum() == pytest.approx(4 * np.pi * 2.0**2, rel=3e-3)
    assert signed_volume(sphere) == pytest.approx(4 / 3 * np.pi * 2.0**3, rel=3e-3)
    assert ring.face_areas().sum() == pytest.approx(4 * np.pi**2 * 3.0 * 0.5, rel=3e-3)
    assert signed_volume(ring) == pytest.approx(2 * np.pi**2 * 3.0 * 0.5**2, rel=3e-3)
    assert grid(3, 5, spacing=0.5).face_areas().sum() == pytest.approx(2 * 0.5 * 4 * 0.5)
    assert (grid(3, 5).face_normals() == [0, 0, 1]).all()


def test_finer_icospheres_begin_with_the_vertices_of_coarser_ones() -> None:
    assert np.array_equal(icosphere(2).verts[: icosphere(1).num_vertices], icosphere(1).verts)


def test_grid_vertices_lie_row_by_row() -> None:
    assert grid(3, 4, spacing=2.0).verts[1 * 4 + 3].tolist() == [6.0, 2.0, 0.0]


def test_normals_are_unit_and_orthogonal_and_zero_without_area() -> None:
    flat = two_triangles()
    verts = flat.verts.copy()
    verts[3] = 0.5 * (verts[0] + verts[2])
    mesh = flat.with_verts(verts)
    assert mesh.face_normals().tolist() == [[0, 0, 1], [0, 0, 0]]
    assert mesh.face_areas().tolist() == [0.5, 0.0]
    sphere = icosphere(1)
    corners = sphere.verts[sphere.faces]
    assert np.linalg.norm(sphere.face_normals(), axis=1) == pytest.approx(1.0)
    assert np.einsum("fi,fi->f", sphere.face_normals(), corners[:, 1] - corners[:, 0]) == pytest.approx(0, abs=1e-15)


def test_areas_of_the_largest_coordinates_do_not_overflow() -> None:
    assert np.isfinite(grid(2, 2).with_verts(MAX_COORDINATE * grid(2, 2).verts).face_areas()).all()


def test_components_are_numbered_by_first_appearance() -> None:
    verts = np.zeros((8, 3))
    mesh = Mesh(verts, np.array([[6, 1, 4], [0, 7, 3]]))
    assert mesh.components().tolist() == [0, 1, 2, 0, 1, 3, 1, 0]


def test_submesh_renumbers_in_the_order_given() -> None:
    part = two_triangles().submesh(np.array([3, 2, 0]))
    assert part.verts.tolist() == [[0, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert part.faces.tolist() == [[2, 1, 0]]


@pytest.mark.parametrize(
    ("keep", "message"), [([0, 4], "indices from 0 to 3"), ([-1], "indices from 0 to 3"), ([1, 2, 1], "a vertex twice")]
)
def test_submesh_rejects_what_is_no_selection(keep: list[int], message: str) -> None:
    with pytest.raises(MeshError, match=message):
        two_triangles().submesh(np.array(keep))


@pytest.mark.parametrize("keep", [np.array([True, False]), np.array([0.0, 1.7]), np.array([[0, 1]])])
@pytest.mark.usefixtures("unchecked")
def test_submesh_rejects_masks_fractions_and_tables(keep: np.ndarray) -> None:
    with pytest.raises((TypeError, ValueError), match="keep: expected an array of"):
        two_triangles().submesh(keep)


def test_a_submesh_may_be_empty() -> None:
    assert two_triangles().submesh(np.array([], dtype=np.int64)).num_vertices == 0


def test_with_verts_keeps_the_connectivity_and_checks_the_positions() -> None:
    mesh = two_triangles()
    assert mesh.with_verts(2 * mesh.verts).face_areas().sum() == 4.0
    with pytest.raises(MeshError, match="verts: expected 4 positions, got 3"):
        mesh.with_verts(mesh.verts[:3])
    with pytest.raises(MeshError, match="not finite"):
        mesh.with_verts(np.nan * mesh.verts)


def test_topology_hash_sees_count_and_order_of_faces_but_not_positions() -> None:
    mesh = two_triangles()
    written_out = hashlib.sha256(struct.pack("<7q", 4, 0, 1, 2, 0, 2, 3)).hexdigest()
    assert mesh.topology_hash() == written_out
    assert mesh.with_verts(mesh.verts + 1).topology_hash() == written_out
    others = [
        Mesh(mesh.verts, mesh.faces[::-1]),
        Mesh(mesh.verts, np.roll(mesh.faces, 1, axis=1)),
        Mesh(np.concatenate([mesh.verts, mesh.verts]), mesh.faces),
    ]
    assert len({written_out, *(other.topology_hash() for other in others)}) == 4


def test_two_triangles_by_hand() -> None:
    counts = summary(grid(2, 2, spacing=3.0))
    assert counts["mean_edge"] == pytest.approx((4 * 3 + 3 * 2**0.5) / 5)
    assert list(counts.values()) == [4, 2, 5, counts["mean_edge"], 4, 0, 1, 3]


@pytest.mark.parametrize(("mesh", "euler"), [(icosphere(2), 2), (torus(9, 7), 0), (grid(4, 6), 1)])
def test_counts_obey_euler(mesh: Mesh, euler: int) -> None:
    counts = summary(mesh)
    assert counts["vertices"] - counts["edges"] + counts["faces"] == euler
    assert 2 * counts["edges"] - counts["boundary_edges"] == 3 * counts["faces"]


def test_isolated_vertices_are_parts_and_a_book_has_a_spine() -> None:
    pages = Mesh(np.eye(7, 3), np.array([[0, 1, 2], [0, 1, 3], [0, 1, 4]]))
    expected = {"nonmanifold_edges": 1, "boundary_edges": 6, "parts": 3, "max_degree": 4}
    assert expected.items() <= summary(pages).items()


def test_nothing_is_summed_to_nothing() -> None:
    empty = summary(Mesh(np.zeros((0, 3)), np.zeros((0, 3), dtype=np.int64)))
    assert list(empty.values()) == [0, 0, 0, 0.0, 0, 0, 0, 0]
