"""Decimation against the definition carried out by brute force, and against what must hold of any result."""

from itertools import pairwise

import fast_simplification
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoskip.meshes import Mesh, MeshError, grid, icosphere, torus
from geoskip.meshes.decimation import MutableMesh, Rules, decimate
from geoskip.meshes.hierarchy import closest_points

Faces = list[tuple[int, ...]]

TETRAHEDRON = Mesh(np.vstack([np.zeros(3), np.eye(3)]), np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [0, 3, 2]]))
TRIANGLE = Mesh(np.eye(3), np.array([[0, 1, 2]]))


def noisy(mesh: Mesh, size: float, seed: int = 0) -> Mesh:
    noise = np.random.default_rng(seed).standard_normal(mesh.verts.shape)
    return mesh.with_verts(mesh.verts + size * noise)


def tilted(mesh: Mesh) -> Mesh:
    rotation, _ = np.linalg.qr(np.random.default_rng(5).standard_normal((3, 3)))
    return mesh.with_verts(mesh.verts @ rotation.T * np.linalg.det(rotation) + [3.0, -40.0, 7.0])


def joined(*meshes: Mesh) -> Mesh:
    offsets = np.cumsum([0, *(mesh.num_vertices for mesh in meshes[:-1])])
    faces = [mesh.faces + offset for mesh, offset in zip(meshes, offsets, strict=True)]
    return Mesh(np.concatenate([mesh.verts for mesh in meshes]), np.concatenate(faces))


def sides(faces: Faces) -> list[tuple[int, int]]:
    return [side for face in faces for side in pairwise((*face, face[0]))]


def border(faces: Faces) -> set[tuple[int, int]]:
    """Directed edges without a partner."""
    every = set(sides(faces))
    return {(a, b) for a, b in every if (b, a) not in every}


def is_oriented_manifold(faces: Faces) -> bool:
    """Every directed edge once, every face once, and around every vertex a single fan."""
    if len(set(sides(faces))) < 3 * len(faces) or len({frozenset(face) for face in faces}) < len(faces):
        return False
    fans: dict[int, dict[int, int]] = {}
    for a, b, c in (turn for i, j, k in faces for turn in ((i, j, k), (j, k, i), (k, i, j))):
        fans.setdefault(a, {})[b] = c
    for fan in fans.values():
        first = next(iter(set(fan) - set(fan.values())), next(iter(fan)))
        w, steps = fan[first], 1
        while w in fan and w != first:
            w, steps = fan[w], steps + 1
        if steps < len(fan):
            return False
    return True


def euler_characteristic(faces: Faces) -> int:
    edges = {frozenset(side) for side in sides(faces)}
    return len({v for face in faces for v in face}) - len(edges) + len(faces)


def normal(verts: np.ndarray, face: tuple[int, ...]) -> np.ndarray:
    a, b, c = verts[list(face)]
    return np.cross(b - a, c - a)


def as_faces(mesh: Mesh) -> Faces:
    return [tuple(face) for face in mesh.faces.tolist()]


class ByDefinition:
    """Greedy half-edge collapse: lists of planes per vertex, and every collapse tried out at every step."""

    def __init__(self, mesh: Mesh) -> None:
        self.verts, self.faces = mesh.verts, as_faces(mesh)
        self.planes: dict[int, list[tuple[float, np.ndarray, np.ndarray]]] = {v: [] for v in range(mesh.num_vertices)}
        for face in self.faces:
            n = normal(self.verts, face)
            area, unit = np.linalg.norm(n) / 2, n / np.linalg.norm(n)
            for v in face:
                self.planes[v].append((float(area), unit, self.verts[v]))
            for a, b in set(sides([face])) & border(self.faces):
                edge = self.verts[b] - self.verts[a]
                across = np.cross(edge, unit) / np.linalg.norm(edge)
                for v in (a, b):
                    self.planes[v].append((1000.0 * float(edge @ edge), across, self.verts[a]))

    def cost(self, u: int, v: int) -> float:
        return sum(w * float(n @ (self.verts[v] - p)) ** 2 for w, n, p in self.planes[u] + self.planes[v])

    def collapsed(self, u: int, v: int) -> Faces:
        moved = [tuple(v if w == u else w for w in face) for face in self.faces]
        return [face for face in moved if len(set(face)) == 3]

    def allowed(self, u: int, v: int) -> bool:
        after, rim = self.collapsed(u, v), border(self.faces)
        if any(u in side for side in rim) and not {(u, v), (v, u)} & rim:
            return False
        if not is_oriented_manifold(after) or euler_characteristic(after) != euler_characteristic(self.faces):
            return False
        for face in self.faces:
            if u in face and v not in face:
                old = normal(self.verts, face)
                turned = tuple(v if w == u else w for w in face)
                new = normal(self.verts, turned)
                b, c = (self.verts[w] - self.verts[v] for w in turned if w != v)
                turns_over = old @ new <= 0 or old @ new < 0.2 * np.linalg.norm(old) * np.linalg.norm(new)
                if turns_over or new @ new < 0.002 * (b @ b) * (c @ c):
                    return False
        return True

    def run(self, target: int) -> tuple[set[int], Faces, float]:
        while len(self.planes) > target:
            edges = {pair for a, b in sides(self.faces) for pair in ((a, b), (b, a))}
            squares = ((self.verts[:, None] - self.verts) ** 2).sum(axis=2)
            order = sorted(edges, key=lambda edge: (self.cost(*edge), squares[edge], edge))
            u, v = next(edge for edge in order if self.allowed(*edge))
            self.faces = self.collapsed(u, v)
            self.planes[v] += self.planes.pop(u)
        total = sum(self.cost(v, v) / 2 for v in self.planes)
        return set(self.planes), self.faces, total


@pytest.mark.parametrize(
    ("mesh", "target"),
    [
        (noisy(icosphere(1), 0.05), 12),
        (noisy(grid(6, 6), 0.1), 12),
        (noisy(torus(8, 5), 0.02), 20),
        (noisy(torus(8, 5), 0.06, seed=1), 20),  # the cheaper direction of an edge is forbidden, the other taken
        (grid(6, 6), 5),  # every cost is zero: the tie-break alone
    ],
    ids=["sphere", "sheet", "torus", "crumpled", "plane"],
)
def test_equals_the_greedy_definition(mesh: Mesh, target: int) -> None:
    kept, faces, cost = ByDefinition(mesh).run(target)
    result = decimate(mesh, target)
    assert set(result.kept.tolist()) == kept
    rotated = {min((f[k:] + f[:k]) for k in range(3)) for f in map(tuple, result.kept[result.mesh.faces].tolist())}
    assert rotated == {min((f[k:] + f[:k]) for k in range(3)) for f in faces}
    assert result.cost == pytest.approx(cost, rel=1e-9, abs=0)


@pytest.mark.parametrize("target", [1256, 79, 20, 3])
def test_counts_are_exact_and_vertices_are_selected(target: int) -> None:
    mesh = noisy(torus(60, 25), 0.01)
    result = decimate(mesh, target)
    assert result.mesh.num_vertices == len(result.kept) == target
    np.testing.assert_array_equal(result.mesh.verts, mesh.verts[result.kept])
    assert (np.diff(result.kept) > 0).all()
    assert result.mesh.num_faces >= 1


def test_everything_kept_changes_nothing() -> None:
    mesh = noisy(icosphere(1), 0.05)
    result = decimate(mesh, mesh.num_vertices)
    np.testing.assert_array_equal(result.mesh.verts, mesh.verts)
    np.testing.assert_array_equal(result.mesh.faces, mesh.faces)
    assert result.cost == 0


@pytest.mark.parametrize("place", [lambda mesh: mesh, tilted], ids=["axis", "tilted"])
def test_a_plane_decimates_at_zero_cost(place) -> None:
    mesh = place(grid(13, 17))
    for target in (60, 20, 4):
        result = decimate(mesh, target)
        assert result.cost == 0
        assert {0, 16, 12 * 17, 13 * 17 - 1} <= set(result.kept.tolist())
        assert result.mesh.face_areas().sum() == pytest.approx(12 * 16)
        assert (result.mesh.face_normals() @ mesh.face_normals()[0] > 1 - 1e-9).all()


def test_flat_faces_of_a_box_cost_nothing_until_a_corner_goes() -> None:
    # A closed box of 6 grids: everything but the 8 corners is free.
    size = 5
    sheet = grid(size, size).verts - (size - 1) / 2
    turns = [np.eye(3)[[0, 1, 2]], np.eye(3)[[1, 2, 0]], np.eye(3)[[2, 0, 1]]]
    corners: list[np.ndarray] = []
    faces: list[np.ndarray] = []
    for turn in turns:
        for up in (1, -1):
            points = np.column_stack([sheet[:, 0], up * sheet[:, 1], np.full(len(sheet), up * (size - 1) / 2)])
            faces.append(grid(size, size).faces + len(sheet) * len(corners))
            corners.append(points @ turn)
    points, index = np.unique(np.concatenate(corners), axis=0, return_inverse=True)
    box = Mesh(points, index.reshape(-1)[np.concatenate(faces)])
    assert euler_characteristic(as_faces(box)) == 2
    assert is_oriented_manifold(as_faces(box))
    at_corners = decimate(box, 8)
    assert at_corners.cost == 0
    assert (np.abs(at_corners.mesh.verts) == (size - 1) / 2).all()
    assert decimate(box, 7).cost > 0


@pytest.mark.parametrize(
    ("mesh", "targets"),
    [(noisy(icosphere(3), 0.01), (100, 10, 4)), (noisy(torus(40, 20), 0.01), (200, 50, 12))],
    ids=["sphere", "torus"],
)
def test_closed_surfaces_keep_their_topology(mesh: Mesh, targets: tuple[int, ...]) -> None:
    for target in targets:
        faces = as_faces(decimate(mesh, target).mesh)
        assert is_oriented_manifold(faces)
        assert not border(faces)
        assert euler_characteristic(faces) == euler_characteristic(as_faces(mesh))


def test_borders_stay_borders() -> None:
    mesh = noisy(grid(20, 20), 0.05)
    hole = np.setdiff1d(np.arange(400), [147, 148, 149, 167, 168, 169, 187, 188, 189])
    mesh = mesh.submesh(hole)
    rim = {v for side in border(as_faces(mesh)) for v in side}
    for target in (200, 60, 15):
        result = decimate(mesh, target)
        faces = as_faces(result.mesh)
        assert is_oriented_manifold(faces)
        assert euler_characteristic(faces) == 0
        now = {int(result.kept[v]) for side in border(faces) for v in side}
        assert now <= rim
        assert now == rim & set(result.kept.tolist())
        # The outline bounds nearly the same area.
        assert result.mesh.face_areas().sum() == pytest.approx(mesh.face_areas().sum(), rel=0.1)


def test_thin_parts_are_not_pinched() -> None:
    # Cheap to close: a tube of three sides, and the way across a curved band.
    tube = noisy(torus(24, 3, tube=0.01), 0.0005)
    faces = as_faces(decimate(tube, 15).mesh)
    assert is_oriented_manifold(faces)
    assert euler_characteristic(faces) == 0
    turn = 2 * np.pi * np.arange(40) / 40
    radius, height = np.repeat([[1.0], [1.001]], 40, axis=0).ravel(), np.zeros(80)
    verts = np.column_stack([radius * np.cos(np.tile(turn, 2)), radius * np.sin(np.tile(turn, 2)), height])
    ahead = (np.arange(40) + 1) % 40
    cells = np.stack([np.arange(40), 40 + np.arange(40), 40 + ahead, ahead], axis=1)
    band = noisy(Mesh(verts, np.vstack([cells[:, [0, 1, 2]], cells[:, [0, 2, 3]]])), 1e-5)
    faces = as_faces(decimate(band, 20).mesh)
    assert is_oriented_manifold(faces)
    assert euler_characteristic(faces) == 0
    assert len(border(faces)) == 20


def test_a_face_without_area_may_turn() -> None:
    # Corners 0, 2 and 3 lie on one line; the collapse 0 → 5 gives their face an area for the first time.
    angle, radius = np.radians([0, 60, 60, 120, 230, 300]), np.array([1, 1, 2, 1, 1, 1])
    rim = np.column_stack([radius * np.cos(angle), radius * np.sin(angle), np.zeros(6)])
    fan = Mesh(np.vstack([np.zeros(3), rim]), np.array([[0, k, k % 6 + 1] for k in range(1, 7)]))
    assert fan.face_areas()[1] == 0
    plan = MutableMesh(fan).plan(0, 5, Rules.NO_FOLDS)
    assert plan is not None
    assert len(plan.turned) == 4


def test_a_height_field_does_not_fold() -> None:
    mesh = grid(30, 30)
    x, y, _ = mesh.verts.T
    mesh = mesh.with_verts(np.column_stack([x, y, 0.6 * np.sin(x / 2) * np.cos(y / 3)]))
    for target in (400, 200, 100, 60, 30):
        assert (decimate(mesh, target).mesh.face_normals()[:, 2] > 0).all()


def test_quality_is_close_to_fast_simplification() -> None:
    # It may put vertices anywhere, so that its surface runs on both sides of the fine one; a selection from a
    # convex surface lies inside, twice as far. We allow 2.5 times its distance at the same number of faces.
    for mesh in (noisy(torus(60, 30), 0.003), noisy(icosphere(3), 0.003)):
        for target in (mesh.num_vertices // 4, mesh.num_vertices // 16):
            ours = decimate(mesh, target).mesh
            verts, faces = fast_simplification.simplify(
                mesh.verts.astype(np.float32), mesh.faces.astype(np.int32), target_count=ours.num_faces
            )
            theirs = Mesh(verts.astype(np.float64), faces.astype(np.int64))
            assert theirs.num_faces == ours.num_faces
            distance = closest_points(ours, mesh.verts).distances.mean()
            assert distance < 2.5 * closest_points(theirs, mesh.verts).distances.mean()


def test_relabelling_relabels_the_result() -> None:
    mesh, rng = noisy(icosphere(2), 0.03), np.random.default_rng(1)
    order = rng.permutation(mesh.num_vertices)
    new_index = np.argsort(order)
    faces = new_index[mesh.faces][rng.permutation(mesh.num_faces)]
    relabelled = decimate(Mesh(mesh.verts[order], np.roll(faces, 1, axis=1)), 40)
    assert set(order[relabelled.kept].tolist()) == set(decimate(mesh, 40).kept.tolist())


def test_units_do_not_matter() -> None:
    mesh = noisy(icosphere(2), 0.03)
    result = decimate(mesh, 40)
    for unit in (2.0**-300, 2.0**90):
        scaled = decimate(mesh.with_verts(unit * mesh.verts), 40)
        np.testing.assert_array_equal(scaled.kept, result.kept)
    assert decimate(mesh.with_verts(8 * mesh.verts), 40).cost == pytest.approx(8.0**4 * result.cost)


def test_equal_costs_go_by_length_then_index() -> None:
    # Regular, so every cost and length ties: the answer must still be one and the same.
    meshes = [grid(9, 9), Mesh(grid(9, 9).verts, grid(9, 9).faces[::-1])]
    first, second = (decimate(mesh, 30).kept for mesh in meshes)
    np.testing.assert_array_equal(first, second)
    # All corners are costly, the shortest edge is 4–5, and 4 is the lower index.
    verts = np.array([[0, 0, 0], [4, 0, 0], [4, 3, 0], [0, 3, 0], [1.9, 1.5, 0], [2.1, 1.5, 0]])
    faces = np.array([[0, 1, 4], [1, 5, 4], [1, 2, 5], [2, 3, 5], [3, 4, 5], [3, 0, 4]])
    np.testing.assert_array_equal(decimate(Mesh(verts, faces), 5).kept, [0, 1, 2, 3, 5])


def test_vertices_without_faces_go_first() -> None:
    mesh = noisy(icosphere(1), 0.05)
    alone = Mesh(np.insert(mesh.verts, [0, 20], 9.0, axis=0), np.where(mesh.faces < 20, 1, 2) + mesh.faces)
    np.testing.assert_array_equal(decimate(alone, 43).kept, np.setdiff1d(np.arange(44), 21))
    np.testing.assert_array_equal(decimate(alone, 42).mesh.faces, mesh.faces)
    np.testing.assert_array_equal(decimate(alone, 20).mesh.verts, decimate(mesh, 20).mesh.verts)


@pytest.mark.parametrize("target", [19, 12, 11, 8, 7, 5, 4, 3])
def test_components_vanish_only_when_they_must(target: int) -> None:
    mesh = joined(TETRAHEDRON, TETRAHEDRON.with_verts(TETRAHEDRON.verts * 10 + 30), icosphere(0))
    result = decimate(mesh, target)
    assert result.mesh.num_vertices == target
    assert result.mesh.num_faces >= 1
    if target >= 12:
        assert euler_characteristic(as_faces(result.mesh)) == 6


def test_rules_are_relaxed_in_order() -> None:
    # Topology is given up only below what it needs: 4 vertices a closed part, 3 an open one.
    mesh = joined(noisy(icosphere(1), 0.3), noisy(grid(5, 5), 0.3), TETRAHEDRON)
    faces = as_faces(decimate(mesh, 11).mesh)
    assert is_oriented_manifold(faces)
    assert (euler_characteristic(faces), len(faces)) == (2 + 1 + 2, 4 + 1 + 4)
    assert euler_characteristic(as_faces(decimate(mesh, 10).mesh)) < 5
    assert decimate(TETRAHEDRON, 3).mesh.num_faces == 1
    # Even a speck of a triangle stays while the sphere can still give.
    speck = joined(noisy(icosphere(1), 0.1), TRIANGLE.with_verts(1e-4 * TRIANGLE.verts))
    assert set(decimate(speck, 8).kept.tolist()) >= {42, 43, 44}


def test_the_last_triangle_stays() -> None:
    two = joined(TRIANGLE, TRIANGLE.with_verts(TRIANGLE.verts + 5))
    for target in (5, 4, 3):
        result = decimate(two, target)
        assert result.mesh.num_faces == 1
        assert result.mesh.num_vertices == target
    # All faces share the edge 0–1: its collapse would leave none.
    fin = Mesh(np.random.default_rng(0).standard_normal((6, 3)), np.array([[0, 1, k] for k in (2, 3, 4, 5)]))
    assert decimate(fin, 3).mesh.num_faces == 1
    assert MutableMesh(fin).plan(0, 1, Rules.ANY_EDGE) is None
    assert MutableMesh(fin).plan(2, 1, Rules.ANY_EDGE) is not None


def test_zero_area_and_doubled_faces_are_taken() -> None:
    line = Mesh(np.outer(np.arange(6.0), [1, 2, 3]), np.array([[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]))
    assert decimate(line, 4).mesh.num_vertices == 4
    assert decimate(line.with_verts(np.ones((6, 3))), 3).cost == 0
    mesh = noisy(icosphere(1), 0.05)
    doubled = Mesh(mesh.verts, np.concatenate([mesh.faces, mesh.faces[:30, ::-1]]))
    np.testing.assert_array_equal(decimate(doubled, 20).mesh.faces, decimate(mesh, 20).mesh.faces)


@st.composite
def soups(draw: st.DrawFn) -> Mesh:
    """Any triangles at all over a few vertices, some of which coincide."""
    num_vertices = draw(st.integers(4, 14))
    corner = st.integers(0, num_vertices - 1)
    face = st.tuples(corner, corner, corner).filter(lambda f: len(set(f)) == 3)
    faces = draw(st.lists(face, min_size=1, max_size=30))
    coordinate = st.sampled_from([0.0, 1.0, 2.0, 0.3, -1.7])
    verts = draw(st.lists(st.tuples(coordinate, coordinate, coordinate), min_size=num_vertices, max_size=num_vertices))
    return Mesh(np.array(verts), np.array(faces))


@settings(max_examples=150, deadline=None)
@given(soups(), st.data())
def test_any_soup_meets_any_target(mesh: Mesh, data: st.DataObject) -> None:
    target = data.draw(st.integers(3, mesh.num_vertices))
    result = decimate(mesh, target)
    assert result.mesh.num_vertices == target
    assert result.mesh.num_faces >= 1
    assert 0 <= result.cost < np.inf
    np.testing.assert_array_equal(result.mesh.verts, mesh.verts[result.kept])
    assert len({frozenset(face) for face in as_faces(result.mesh)}) == result.mesh.num_faces


@pytest.mark.parametrize("target", [-1, 0, 2, 5])
def test_impossible_targets_are_rejected(target: int) -> None:
    with pytest.raises(MeshError, match=rf"target: must be from 3 to 4 \(the number of vertices\), got {target}"):
        decimate(TETRAHEDRON, target)


def test_points_without_faces_are_rejected() -> None:
    points = Mesh(np.zeros((5, 3)), np.zeros((0, 3), dtype=np.int64))
    with pytest.raises(MeshError, match="cannot decimate 5 vertices without faces"):
        decimate(points, 3)
    assert decimate(points, 5).mesh.num_vertices == 5
