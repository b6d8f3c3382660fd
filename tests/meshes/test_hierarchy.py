"""What holds of every hierarchy: U 1 = 1, D U = I, exact counts, linear functions on flat parts."""

import numpy as np
import pytest

from geoskip.meshes import Mesh, MeshError, grid, icosphere, torus
from geoskip.meshes.decimation import decimate
from geoskip.meshes.hierarchy import MeshHierarchy, mesh_hierarchy

RNG = np.random.default_rng(0)


def noisy(mesh: Mesh, size: float) -> Mesh:
    return mesh.with_verts(mesh.verts + size * np.random.default_rng(0).standard_normal(mesh.verts.shape))


def with_isolated_vertex(mesh: Mesh) -> Mesh:
    return Mesh(np.vstack([np.full(3, 2.0), mesh.verts]), mesh.faces + 1)


def two_parts() -> Mesh:
    one = noisy(icosphere(1), 0.02)
    return Mesh(np.vstack([one.verts, one.verts + 3]), np.vstack([one.faces, one.faces + one.num_vertices]))


def doubled_positions() -> Mesh:
    """A cut along the middle: vertices in the same place that must not be mistaken for each other."""
    left, right = grid(9, 5), grid(9, 5)
    right = right.with_verts(right.verts + np.array([4.0, 0, 0]))
    return Mesh(np.vstack([left.verts, right.verts]), np.vstack([left.faces, right.faces + left.num_vertices]))


MESHES = {
    "sphere": noisy(icosphere(2), 0.02),
    "sheet": noisy(grid(12, 12), 0.1),
    "plane": grid(12, 12),
    "isolated": with_isolated_vertex(noisy(icosphere(2), 0.02)),
    "two parts": two_parts(),
    "doubled": doubled_positions(),
}


@pytest.fixture(params=list(MESHES), scope="module")
def hierarchy(request: pytest.FixtureRequest) -> MeshHierarchy:
    return mesh_hierarchy(MESHES[request.param], factors=(2, 3))


def test_down_selects_and_up_interpolates(hierarchy: MeshHierarchy) -> None:
    steps = zip(hierarchy.levels, hierarchy.levels[1:], hierarchy.kept, hierarchy.down, hierarchy.up, strict=False)
    for fine, coarse, kept, down, up in steps:
        assert down.shape == up.shape[::-1] == (coarse.num_vertices, fine.num_vertices)
        np.testing.assert_array_equal(down.toarray(), np.eye(fine.num_vertices)[kept])
        np.testing.assert_array_equal(down @ fine.verts, coarse.verts)
        np.testing.assert_array_equal((down @ up).toarray(), np.eye(coarse.num_vertices))
        np.testing.assert_allclose(up @ np.ones(coarse.num_vertices), 1, atol=1e-15)
        assert up.data.min() > 0
        assert np.diff(up.indptr).max() <= 3


def test_up_reaches_the_nearest_point(hierarchy: MeshHierarchy) -> None:
    fine, coarse, up = hierarchy.levels[0], hierarchy.levels[1], hierarchy.up[0]
    samples = np.einsum("sfk,fkd->sfd", RNG.dirichlet(np.ones(3), (50, coarse.num_faces)), coarse.verts[coarse.faces])
    to_samples = np.linalg.norm(fine.verts[:, None] - samples.reshape(-1, 3), axis=2).min(axis=1)
    assert (np.linalg.norm(up @ coarse.verts - fine.verts, axis=1) <= to_samples + 1e-12).all()


@pytest.mark.parametrize("name", ["plane", "doubled"])
def test_linear_functions_survive_on_the_flat(name: str) -> None:
    hierarchy = mesh_hierarchy(MESHES[name], factors=(3, 4))
    matrix, shift = RNG.standard_normal((3, 5)), RNG.standard_normal(5)
    for fine, coarse, up in zip(hierarchy.levels, hierarchy.levels[1:], hierarchy.up, strict=False):
        np.testing.assert_allclose(
            up @ (coarse.verts @ matrix + shift), fine.verts @ matrix + shift, rtol=1e-12, atol=1e-12
        )


def test_counts_are_those_of_the_face_template() -> None:
    template = decimate(noisy(torus(72, 70), 0.003), 5023).mesh
    hierarchy = mesh_hierarchy(template)
    assert [mesh.num_vertices for mesh in hierarchy.levels] == [5023, 1256, 314, 79, 20]
    assert hierarchy.levels[0] is template


def test_explicit_targets_and_no_steps() -> None:
    mesh = icosphere(1)
    hierarchy = mesh_hierarchy(mesh, targets=[42, 17, 3])
    assert [level.num_vertices for level in hierarchy.levels] == [42, 42, 17, 3]
    np.testing.assert_array_equal(hierarchy.up[0].toarray(), np.eye(42))
    assert mesh_hierarchy(mesh, factors=()).levels == (mesh,)


def test_the_same_mesh_gives_the_same_matrices() -> None:
    first, second = (mesh_hierarchy(MESHES["plane"], factors=(4, 4)) for _ in range(2))
    for one, other in zip(first.up + first.down, second.up + second.down, strict=True):
        np.testing.assert_array_equal(one.toarray(), other.toarray())


def test_impossible_levels_are_rejected() -> None:
    with pytest.raises(ValueError, match="factors: a hierarchy needs a whole number of at least 1, got 0"):
        mesh_hierarchy(icosphere(1), factors=(0,))
    with pytest.raises(MeshError, match=r"\[11, 3, 1\] vertices, but a triangle needs 3"):
        mesh_hierarchy(icosphere(1), factors=(4, 4, 4))
    with pytest.raises(MeshError, match="each must be at most the one before"):
        mesh_hierarchy(icosphere(1), targets=(20, 30))
    with pytest.raises(MeshError, match="each must be at most the one before"):
        mesh_hierarchy(icosphere(1), targets=(43,))
