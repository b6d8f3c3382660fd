"""Spirals against cases written by hand, and against a walk that turns by angles instead of by faces."""

from math import atan2, tau

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path
from scipy.spatial import Delaunay

from geoskip.meshes import Mesh, grid, icosphere, torus
from geoskip.meshes.spiral_order import ordered_neighbors, spirals


def planar(seed: int, num_vertices: int = 60) -> Mesh:
    """Delaunay triangulation of random points, counter-clockwise from above."""
    points = np.random.default_rng(seed).standard_normal((num_vertices, 2))
    faces = Delaunay(points).simplices.astype(np.int64)
    a, b, c = (points[faces[:, k]] for k in range(3))
    clockwise = np.linalg.det(np.stack([b - a, c - a], axis=1)) < 0
    faces[clockwise] = faces[clockwise, ::-1]
    return Mesh(np.column_stack([points, np.zeros(num_vertices)]), faces)


def noisy(mesh: Mesh, size: float = 0.02) -> Mesh:
    return mesh.with_verts(mesh.verts + size * np.random.default_rng(0).standard_normal(mesh.verts.shape))


def wheel(rim: int) -> Mesh:
    """A hub that every other vertex is a neighbour of."""
    angles = tau * np.arange(rim) / rim
    verts = np.column_stack([np.cos(angles), np.sin(angles), np.zeros(rim)])
    faces = np.array([[rim, k, (k + 1) % rim] for k in range(rim)])
    return noisy(Mesh(np.vstack([verts, np.zeros(3)]), faces), 0.001)


def relabelled(mesh: Mesh, seed: int) -> tuple[Mesh, np.ndarray]:
    """Vertices, faces and first corners shuffled; and the old index of every new vertex."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(mesh.num_vertices)
    faces = np.argsort(order)[mesh.faces][rng.permutation(mesh.num_faces)]
    faces = np.stack([np.roll(face, shift) for face, shift in zip(faces, rng.integers(0, 3, len(faces)), strict=True)])
    return Mesh(mesh.verts[order], faces), order


def hop_distances(mesh: Mesh) -> np.ndarray:
    i, j = mesh.edges().T
    adjacency = coo_array((np.ones(len(i)), (i, j)), shape=(mesh.num_vertices, mesh.num_vertices))
    return shortest_path(adjacency.tocsr(), directed=False, unweighted=True)


def spiral_by_angles(mesh: Mesh, v: int) -> list[int]:
    """The definition for a mesh in the plane: 'counter-clockwise' read off the coordinates, rings one by one."""
    neighbours: dict[int, set[int]] = {u: set() for u in range(mesh.num_vertices)}
    for a, b in mesh.edges().tolist():
        neighbours[a].add(b)
        neighbours[b].add(a)

    def turn(centre: int, start: int) -> list[int]:
        def angle(w: int) -> float:
            (x, y), (x0, y0) = (mesh.verts[u, :2] - mesh.verts[centre, :2] for u in (w, start))
            return (atan2(y, x) - atan2(y0, x0)) % tau if w != start else 0.0

        return sorted(neighbours[centre], key=angle)

    nearest = min(neighbours[v], key=lambda w: (float(((mesh.verts[w] - mesh.verts[v]) ** 2).sum()), w))
    spiral, ring = [v], turn(v, nearest)
    entered = dict.fromkeys(ring, v)
    while ring:
        spiral += ring
        following: list[int] = []
        for r in ring:
            for w in turn(r, entered[r]):
                if w not in spiral and w not in following:
                    entered[w] = r
                    following.append(w)
        ring = following
    return spiral


def test_the_hand_written_grid() -> None:
    # 12 13 14 15
    #  8  9 10 11     cells are cut from lower left to upper right, so 5 has the neighbours 6 10 9 4 0 1,
    #  4  5  6  7     counter-clockwise; 1, 4, 6 and 9 are equally near, so 1 begins.
    #  0  1  2  3
    table = spirals(grid(4, 4), 18)
    first, second, third = [1, 6, 10, 9, 4, 0], [2, 7, 11, 15, 14, 13, 8], [3, 12]
    assert table[5].tolist() == [5, *first, *second, *third, -1, -1]
    # At the corner 0: 1 begins; 1 goes on across its gap, from 0 to 2, 6 and 5, but 5 is in already.
    assert table[0, :6].tolist() == [0, 1, 5, 4, 2, 6]
    # 3 has two neighbours only: 2 and 7; 2 is entered from 3, then 7 6 1, of which 6 and 1 are new.
    assert table[3, :5].tolist() == [3, 2, 7, 6, 1]


def test_a_nearer_neighbour_begins_and_dilation_slices() -> None:
    angles = tau * np.arange(6) / 6
    radii = np.array([1, 1, 1, 0.5, 1, 1])
    rim = np.column_stack([radii * np.cos(angles), radii * np.sin(angles), np.zeros(6)])
    fan = Mesh(np.vstack([np.zeros(3), rim]), np.array([[0, k, k % 6 + 1] for k in range(1, 7)]))
    assert spirals(fan, 7)[0].tolist() == [0, 4, 5, 6, 1, 2, 3]
    assert spirals(fan, 5, dilation=2)[0].tolist() == [0, 5, 1, 3, -1]
    turned_over = Mesh(fan.verts, fan.faces[:, ::-1])
    assert spirals(turned_over, 7)[0].tolist() == [0, 4, 3, 2, 1, 6, 5]


@pytest.mark.parametrize("seed", range(3))
def test_equals_the_walk_by_angles(seed: int) -> None:
    mesh = planar(seed)
    table = spirals(mesh, mesh.num_vertices)
    for v in range(mesh.num_vertices):
        assert table[v].tolist() == spiral_by_angles(mesh, v)


@pytest.mark.parametrize("mesh", [noisy(icosphere(2)), noisy(torus(12, 8)), planar(4), noisy(grid(7, 5))])
@pytest.mark.parametrize("length", [1, 9, 200])
def test_spirals_follow_relabelling(mesh: Mesh, length: int) -> None:
    other, order = relabelled(mesh, 3)
    expected = spirals(mesh, length)[order]
    back = np.append(order, -1)  # the padding stays
    np.testing.assert_array_equal(back[spirals(other, length)], expected)


RINGED = {"sphere": noisy(icosphere(2)), "plane": planar(5), "torus": torus(9, 5), "wheel": wheel(30)}


@pytest.mark.parametrize("mesh", RINGED.values(), ids=RINGED)
def test_ring_follows_ring_and_nothing_repeats(mesh: Mesh) -> None:
    hops, table = hop_distances(mesh), spirals(mesh, mesh.num_vertices + 3)
    np.testing.assert_array_equal(table[:, 0], np.arange(mesh.num_vertices))
    np.testing.assert_array_equal(table[:, -3:], -1)
    np.testing.assert_array_equal(np.sort(table[:, :-3]), np.tile(np.arange(mesh.num_vertices), (mesh.num_vertices, 1)))
    along = np.take_along_axis(hops, table[:, :-3], axis=1)
    assert (np.diff(along, axis=1) >= 0).all()
    np.testing.assert_array_equal(spirals(mesh, 14), table[:, :14])
    np.testing.assert_array_equal(spirals(mesh, 9, dilation=2), table[:, :17:2])


def test_rings_turn_counter_clockwise_seen_from_outside() -> None:
    mesh = noisy(icosphere(2))
    for v, ring in enumerate(ordered_neighbors(mesh)):
        to = mesh.verts[ring] - mesh.verts[v]
        turns = np.cross(to, np.roll(to, -1, axis=0)) @ mesh.verts[v]
        assert (turns > 0).all()
        assert (to[0] ** 2).sum() == (to**2).sum(axis=1).min()


def test_parts_and_isolated_vertices_end_early() -> None:
    sphere = noisy(icosphere(0))
    mesh = Mesh(
        np.vstack([sphere.verts, [[9.0, 9, 9]], sphere.verts + 0.1]), np.vstack([sphere.faces, sphere.faces + 13])
    )
    table = spirals(mesh, 20)
    assert table[12].tolist() == [12] + 19 * [-1]
    np.testing.assert_array_equal(table[:12, 12:], -1)
    np.testing.assert_array_equal(np.where(table[13:] < 0, -1, table[13:] - 13), table[:12])
    assert spirals(Mesh(np.zeros((0, 3)), np.zeros((0, 3), dtype=np.int64)), 4).shape == (0, 4)


def test_two_cones_that_touch_are_walked_one_after_the_other() -> None:
    corners = [[1, 0, 1], [0, 1, 1], [-1, -1, 1], [1, 0, -0.5], [0, 1, -0.5], [-1, -1, -0.5]]
    faces = np.array([[0, 1, 2], [0, 2, 3], [0, 3, 1], [0, 5, 4], [0, 6, 5], [0, 4, 6]])
    mesh = Mesh(np.vstack([np.zeros(3), np.array(corners)]), faces)
    # The lower cone is nearer (4 and 5 tie), and its winding runs 4 6 5.
    assert spirals(mesh, 7)[0].tolist() == [0, 4, 6, 5, 1, 2, 3]


def test_contradictory_winding_falls_back_to_distance() -> None:
    # Three sheets on the edge 0–1, and a strip whose second face is wound the wrong way.
    verts = np.array([[0, 0, 0], [0, 0, 1.0], [2, 0, 0], [0, 4, 0], [-3, 0, 0]])
    fin = Mesh(verts, np.array([[0, 1, 2], [0, 1, 3], [0, 1, 4]]))
    assert spirals(fin, 5)[0].tolist() == [0, 1, 2, 4, 3]
    strip = Mesh(verts[[0, 1, 3, 2]], np.array([[0, 1, 2], [0, 3, 2]]))
    assert spirals(strip, 4)[0].tolist() == [0, 1, 3, 2]
    for seed in range(4):
        other, order = relabelled(fin, seed)
        np.testing.assert_array_equal(np.append(order, -1)[spirals(other, 7)], spirals(fin, 7)[order])


def test_doubled_faces_count_once() -> None:
    mesh = noisy(icosphere(1))
    doubled = Mesh(mesh.verts, np.vstack([mesh.faces, mesh.faces[:20]]))
    np.testing.assert_array_equal(spirals(doubled, 30), spirals(mesh, 30))


@pytest.mark.parametrize(("length", "dilation"), [(0, 1), (-2, 1), (3, 0)])
def test_empty_spirals_are_rejected(length: int, dilation: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        spirals(icosphere(0), length, dilation)
