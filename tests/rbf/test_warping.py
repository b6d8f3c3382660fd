"""Warps by landmarks: what they keep, what they move."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from geoskip.meshes import icosphere
from geoskip.rbf import warp, warp_mesh
from tests.rbf.scattered import normal, scattered, uniform

LANDMARKS = scattered(10, 3)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("kernel", [None, "thin_plate", "cubic", "quintic"])
def test_landmarks_meet_their_targets(kernel: str | None, affine: bool) -> None:
    targets = LANDMARKS + normal(10, 3) / 10
    assert_close(warp(LANDMARKS, targets, kernel, affine=affine)(LANDMARKS), targets, rtol=0, atol=1e-7)


def test_an_affine_image_of_the_landmarks_moves_everything_by_that_map() -> None:
    matrix, offset, points = normal(3, 3), normal(3, seed=1), 4 * uniform(50, 3)
    targets = LANDMARKS @ matrix + offset
    fitted = warp(LANDMARKS, targets)
    assert_close(fitted(points), points @ matrix + offset)
    assert_close(fitted.affine(), (matrix, offset))
    bare = warp(LANDMARKS, targets, affine=False)
    assert (bare(points) - (points @ matrix + offset)).abs().max() > 0.1
    assert_close(bare.affine(), (torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)))


@pytest.mark.parametrize("affine", [True, False])
def test_landmarks_that_stay_keep_everything_in_place(affine: bool) -> None:
    points = 4 * uniform(50, 3)
    assert_close(warp(LANDMARKS, LANDMARKS, affine=affine)(points), points)


def test_a_compact_kernel_without_the_affine_part_edits_locally() -> None:
    targets = LANDMARKS + 0.1
    fitted = warp(LANDMARKS, targets, "wendland_c2", affine=False, epsilon=1 / 0.4)
    near, far = LANDMARKS[:1], LANDMARKS[:1] + 5
    assert_close(fitted(near), near + 0.1)
    assert torch.equal(fitted(far), far)
    moved_too = warp(LANDMARKS, targets, "wendland_c2", epsilon=1 / 0.4)
    assert_close(moved_too(far), far + 0.1)


def test_smoothing_misses_a_wild_landmark() -> None:
    """With a large one only the best affine map is left."""
    targets = LANDMARKS.clone()
    targets[0] += 1
    misses = [(warp(LANDMARKS, targets, smoothing=by)(LANDMARKS) - targets).norm() for by in (0.0, 0.1, 10.0)]
    assert misses[0] < 1e-9 < misses[1] < misses[2]


def test_a_mesh_keeps_its_faces() -> None:
    ball = icosphere(2)
    numbers = np.array([0, 11, 3, 40, 77])
    targets = ball.verts[numbers] * 1.5
    grown = warp_mesh(ball, ball.verts[numbers], targets)
    np.testing.assert_allclose(grown.verts[numbers], targets, atol=1e-9)
    assert grown.topology_hash() == ball.topology_hash()
    np.testing.assert_allclose(grown.verts, 1.5 * ball.verts, atol=1e-9)


@pytest.mark.usefixtures("unchecked")
def test_a_target_for_each_landmark() -> None:
    with pytest.raises(ValueError, match=r"targets: expected \[10, 3\], one point per landmark, got \[9, 3\]"):
        warp(LANDMARKS, LANDMARKS[:9])


def test_an_affine_part_needs_landmarks_enough() -> None:
    with pytest.raises(ValueError, match="landmarks: an affine part needs at least 4 of them, got 3; add some, or"):
        warp(LANDMARKS[:3], LANDMARKS[:3] + 1)
    assert_close(warp(LANDMARKS[:3], LANDMARKS[:3] + 1, affine=False)(LANDMARKS[:3]), LANDMARKS[:3] + 1)
