"""Geodesics against arc lengths, unfolded planes and Dijkstra's bound; what each method does with broken meshes."""

import sys
from typing import Any

import numpy as np
import pytest
from jaxtyping import TypeCheckError
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra

from geoskip.meshes import (
    Mesh,
    MeshError,
    geodesic_diameter,
    geodesic_distances,
    grid,
    icosphere,
    torus,
)
from geoskip.meshes.geodesics import Method

METHODS: list[Method] = ["heat", "exact"]
FIRST = np.array([0])
# The shape checker, where it is on, sees a wrong argument first.
REJECTED = (ValueError, TypeError, TypeCheckError)


def beside(left: Mesh, right: Mesh) -> Mesh:
    """Two meshes as one, apart in connectivity, even where they touch in space."""
    return Mesh(
        np.concatenate([left.verts, right.verts]), np.concatenate([left.faces, right.faces + left.num_vertices])
    )


def arc_lengths(sphere: Mesh, sources: np.ndarray) -> np.ndarray:
    chords = np.linalg.norm(sphere.verts[sources][:, None] - sphere.verts, axis=2)
    return 2 * np.arcsin(np.minimum(chords / 2, 1))


@pytest.fixture(scope="module")
def sphere() -> Mesh:
    return icosphere(4)


@pytest.fixture
def sources(sphere: Mesh) -> np.ndarray:
    """A corner of the icosahedron, with five neighbours, and two vertices with six."""
    return np.array([0, 100, sphere.num_vertices - 1])


def test_heat_on_a_sphere_is_within_two_per_cent_of_the_arc_length(sphere: Mesh, sources: np.ndarray) -> None:
    """On the average of relative errors, and everywhere relative to the diameter π."""
    arcs = arc_lengths(sphere, sources)
    distances = geodesic_distances(sphere, sources, "heat")
    far = arcs > 0
    assert (np.abs(distances - arcs)[far] / arcs[far]).mean() < 0.02
    assert np.abs(distances - arcs).max() / np.pi < 0.02


def test_exact_on_a_sphere_is_within_half_a_per_cent_at_every_vertex(sphere: Mesh, sources: np.ndarray) -> None:
    arcs = arc_lengths(sphere, sources)
    distances = geodesic_distances(sphere, sources, "exact")
    far = arcs > 0
    assert (np.abs(distances - arcs)[far] / arcs[far]).max() < 0.005


def test_exact_converges_with_the_square_of_the_edge_length() -> None:
    """The chord-faced sphere is shorter by O(h²): halving h quarters the error."""
    errors = []
    for subdivisions in (2, 3):
        mesh = icosphere(subdivisions)
        errors.append(np.abs(geodesic_distances(mesh, FIRST, "exact") - arc_lengths(mesh, FIRST)).max())
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.15)


def test_exact_in_a_plane_is_euclidean() -> None:
    mesh = grid(6, 9, spacing=0.3)
    everywhere = np.arange(mesh.num_vertices)
    straight = np.linalg.norm(mesh.verts[:, None] - mesh.verts, axis=2)
    assert np.allclose(geodesic_distances(mesh, everywhere, "exact"), straight, rtol=1e-9)


def test_exact_over_a_fold_is_that_of_the_unfolded_plane() -> None:
    flat = grid(5, 9)
    x, y, _ = flat.verts.T
    folded = flat.with_verts(np.stack([np.minimum(x, 4), y, np.maximum(x - 4, 0)], axis=1))
    assert np.allclose(geodesic_distances(folded, FIRST, "exact"), np.linalg.norm(flat.verts, axis=1))


def test_exact_lies_between_chords_and_edge_paths() -> None:
    mesh = torus(20, 12)
    verts = mesh.verts + 0.03 * np.random.default_rng(0).standard_normal(mesh.verts.shape)
    i, j = mesh.edges().T
    lengths = np.linalg.norm(verts[i] - verts[j], axis=1)
    paths = dijkstra(coo_array((lengths, (i, j)), shape=(len(verts), len(verts))), directed=False, indices=[0, 7])
    distances = geodesic_distances(mesh.with_verts(verts), np.array([0, 7]), "exact")
    assert (distances <= paths + 1e-12).all()
    assert (distances >= np.linalg.norm(verts[[0, 7]][:, None] - verts, axis=2) - 1e-12).all()
    assert (distances < paths - 1e-3).any()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_distances_scale_with_the_mesh_and_ignore_its_place(method: Method, scale: float) -> None:
    mesh = torus(12, 8)
    expected = geodesic_distances(mesh, FIRST, method)
    moved = mesh.with_verts(scale * (mesh.verts + np.array([3.0, -2.0, 1.0])))
    assert np.allclose(geodesic_distances(moved, FIRST, method) / scale, expected, rtol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_parts_are_infinitely_far_apart_and_else_as_if_alone(method: Method) -> None:
    rng, alone = np.random.default_rng(0), torus(9, 7)
    # uneven, as heat's Delaunay flips would break the ties of a regular mesh by vertex order
    alone = alone.with_verts(alone.verts + 0.02 * rng.standard_normal(alone.verts.shape))
    both = beside(alone, icosphere(2))
    shuffle = rng.permutation(both.num_vertices)
    mixed = both.submesh(shuffle)
    distances = geodesic_distances(mixed, np.argsort(shuffle), method)[:, np.argsort(shuffle)]
    split = alone.num_vertices
    assert np.isposinf(distances[:split, split:]).all()
    assert np.isposinf(distances[split:, :split]).all()
    assert np.isfinite(distances[:split, :split]).all()
    assert np.allclose(distances[:split, :split], geodesic_distances(alone, np.arange(split), method), rtol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_an_isolated_vertex_is_near_itself_only(method: Method) -> None:
    square = grid(3, 3)
    mesh = Mesh(np.concatenate([square.verts, [[0.0, 0, 0]]]), square.faces)
    distances = geodesic_distances(mesh, np.array([9, 0]), method)
    assert distances[0].tolist() == [np.inf] * 9 + [0.0]
    assert np.isfinite(distances[1, :9]).all()
    assert distances[1, 9] == np.inf


@pytest.mark.parametrize("method", METHODS)
def test_orientation_does_not_matter(method: Method) -> None:
    mesh = icosphere(2)
    mixed = Mesh(mesh.verts, np.where(np.arange(mesh.num_faces)[:, None] % 3 == 0, mesh.faces[:, ::-1], mesh.faces))
    expected = geodesic_distances(mesh, FIRST, method)
    assert np.allclose(geodesic_distances(mixed, FIRST, method), expected, rtol=1e-6)


def three_pages() -> Mesh:
    """Three squares that meet in one edge, like the pages of a book: a non-manifold spine, x = 0."""
    page = grid(9, 9, spacing=0.125)
    turned = [page.verts * [1, 1, 0], page.verts * [-1, 1, 0], page.verts[:, [2, 1, 0]]]
    verts, index = np.unique(np.concatenate(turned), axis=0, return_inverse=True)
    return Mesh(verts, np.concatenate([index.reshape(3, -1)[k][page.faces] for k in range(3)]))


def test_heat_takes_non_manifold_edges_and_exact_rejects_them() -> None:
    book = three_pages()
    assert len(book.nonmanifold_edges()) == 8
    corner = int(np.flatnonzero((book.verts == [1, 0, 0]).all(axis=1))[0])
    distances = geodesic_distances(book, np.array([corner]), "heat")[0]
    for opposite in ([-1, 0, 0], [0, 0, 1]):
        found = distances[(book.verts == opposite).all(axis=1)]
        assert found == pytest.approx(2.0, rel=0.1)
    with pytest.raises(MeshError, match="8 edges have more than two faces"):
        geodesic_distances(book, np.array([corner]), "exact")


@pytest.mark.parametrize("gap", [0.0, 1e-12, 1e-7])
def test_heat_takes_slivers_and_exact_rejects_them(gap: float) -> None:
    mesh = icosphere(3)
    verts = mesh.verts.copy()
    start, end = mesh.edges()[7]
    verts[start] = verts[end] + [0, gap, 0]
    thin = mesh.with_verts(verts)
    distances = geodesic_distances(thin, FIRST, "heat")
    assert np.abs(distances - geodesic_distances(mesh, FIRST, "heat")).max() < 0.2
    with pytest.raises(MeshError, match="faces are too thin for exact geodesics"):
        geodesic_distances(thin, FIRST, "exact")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("verts", [np.zeros((4, 3)), np.outer(np.arange(4), [1, 2, 3])], ids=["point", "line"])
def test_a_part_without_area_is_rejected(method: Method, verts: np.ndarray) -> None:
    with pytest.raises(MeshError, match="component of 4 vertices has no area"):
        geodesic_distances(Mesh(verts.astype(float), np.array([[0, 1, 2], [1, 2, 3]])), FIRST, method)


def spindle() -> Mesh:
    """Two narrow closed cones that share their tip only."""
    turn = 2 * np.pi * np.arange(6) / 6
    ring = np.stack([np.cos(turn), np.sin(turn), np.full(6, 10.0)], axis=1)
    cone = np.concatenate([ring, [[0.0, 0.0, 10.0]]])
    sides = [[0, 1 + k, 1 + (k + 1) % 6] for k in range(6)]
    lids = [[7, 1 + (k + 1) % 6, 1 + k] for k in range(6)]
    faces = np.array(sides + lids)
    return Mesh(np.concatenate([np.zeros((1, 3)), cone, -cone]), np.concatenate([faces, np.where(faces, faces + 7, 0)]))


def test_exact_says_so_where_it_cannot_pass_a_pinched_vertex() -> None:
    with pytest.raises(MeshError, match="exact method did not reach all of a component of 15 vertices"):
        geodesic_distances(spindle(), np.array([1]), "exact")
    assert np.isfinite(geodesic_distances(spindle(), np.array([1]), "heat")).all()


class FailsEarly:
    """A solver whose native code rejects the mesh."""

    def __init__(self, verts: np.ndarray, faces: np.ndarray) -> None:
        raise RuntimeError("singular matrix")


class FailsLate:
    """A solver whose native code rejects a source."""

    def __init__(self, verts: np.ndarray, faces: np.ndarray) -> None:
        pass

    def compute_distance(self, source: int) -> np.ndarray:
        raise RuntimeError("singular matrix")


@pytest.mark.parametrize("solver", [FailsEarly, FailsLate])
def test_native_errors_become_mesh_errors(monkeypatch: pytest.MonkeyPatch, solver: type) -> None:
    monkeypatch.setattr("potpourri3d.MeshHeatMethodDistanceSolver", solver)
    with pytest.raises(MeshError, match="heat method failed on a component of 9 vertices: singular matrix"):
        geodesic_distances(grid(3, 3), FIRST, "heat")


@pytest.mark.parametrize(("method", "package"), [("heat", "potpourri3d"), ("exact", "pygeodesic")])
def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, method: Method, package: str
) -> None:
    for name in [package, "pygeodesic.geodesic"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"{package}: pip install 'geoskip\[meshes\]"):
        geodesic_distances(grid(3, 3), FIRST, method)


def test_what_is_no_source_is_rejected() -> None:
    for bad in (-1, 9):
        with pytest.raises(MeshError, match="sources: expected vertex indices from 0 to 8"):
            geodesic_distances(grid(3, 3), np.array([0, bad]))
    for shapeless in (np.array([[0]]), np.array([0.0])):
        with pytest.raises(REJECTED, match="sources"):
            geodesic_distances(grid(3, 3), shapeless)
    assert geodesic_distances(grid(3, 3), np.array([], dtype=np.int64)).shape == (0, 9)


def test_other_methods_are_rejected() -> None:
    method: Any = "dijkstra"
    with pytest.raises(REJECTED, match=r"method: must be one of|Type-check error"):
        geodesic_distances(grid(3, 3), FIRST, method)


def test_diameters() -> None:
    assert geodesic_diameter(grid(4, 5), "exact") == pytest.approx(5.0)
    assert geodesic_diameter(icosphere(2), "exact") == pytest.approx(np.pi, rel=0.02)
    assert geodesic_diameter(beside(grid(4, 5), grid(2, 2)), "exact") == pytest.approx(5.0)
    assert geodesic_diameter(Mesh(np.zeros((2, 3)), np.empty((0, 3), dtype=np.int64))) == 0.0
    with pytest.raises(MeshError, match="a diameter needs at least one vertex"):
        geodesic_diameter(Mesh(np.zeros((0, 3)), np.empty((0, 3), dtype=np.int64)))
