"""The z-buffer against a loop over pixels and triangles."""

import numpy as np
import pytest

from geoskip.report import pictures
from geoskip.report.pictures import visible


def random_corners(num_faces: int, seed: int = 0) -> np.ndarray:
    """Triangles in and around a picture 24 rows high and 31 columns wide, with two that have no area."""
    corners = np.random.default_rng(seed).uniform(-12, 40, (num_faces, 3, 3))
    corners[1, 2] = corners[1, 1]
    corners[2] = corners[2, :1] + np.array([[0.0, 0, 0], [1, 2, 0], [2, 4, 0]])
    return corners


def weights_at(column: float, row: float, corners: np.ndarray) -> list[float]:
    """Barycentric coordinates by ratios of signed areas."""
    (ax, ay, _), (bx, by, _), (cx, cy, _) = corners.tolist()
    whole = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay)
    if abs(whole) < 1e-9:
        return [-1.0, -1.0, -1.0]
    second = ((column - ax) * (cy - ay) - (cx - ax) * (row - ay)) / whole
    third = ((bx - ax) * (row - ay) - (column - ax) * (by - ay)) / whole
    return [1 - second - third, second, third]


def nearest_face(column: float, row: float, corners: np.ndarray) -> int:
    best, nearest = -np.inf, -1
    for face, triangle in enumerate(corners):
        weights = weights_at(column, row, triangle)
        depth = float(np.dot(weights, triangle[:, 2]))
        if min(weights) >= 0 and depth > best:
            best, nearest = depth, face
    return nearest


@pytest.mark.parametrize("step", [7, pictures.FRAGMENTS_PER_STEP])
def test_every_pixel_shows_the_nearest_triangle(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "FRAGMENTS_PER_STEP", step)
    corners, shown = random_corners(25), np.full(24 * 31, -1)
    seen = visible(corners, 24, 31)
    shown[seen.pixel] = seen.face
    expected = [nearest_face(c + 0.5, r + 0.5, corners) for r in range(24) for c in range(31)]
    assert len(set(expected)) > 10
    assert shown.tolist() == expected


def test_weights_locate_the_centre_of_the_pixel() -> None:
    corners = random_corners(25)
    seen = visible(corners, 24, 31)
    place = np.einsum("pk,pkc->pc", seen.weights, corners[seen.face, :, :2])
    row, column = np.divmod(seen.pixel, 31)
    assert np.allclose(place, np.stack([column + 0.5, row + 0.5], axis=1))
    assert np.allclose(seen.weights.sum(axis=1), 1)


def test_neighbors_leave_no_gap_where_edges_pass_through_pixel_centres() -> None:
    square = np.array([[0.5, 0.5, 0], [8.5, 0.5, 0], [8.5, 8.5, 0], [0.5, 8.5, 0]])
    seen = visible(square[[[0, 1, 2], [0, 2, 3]]], 9, 9)
    assert seen.pixel.tolist() == list(range(81))


def test_nothing_to_see() -> None:
    assert len(visible(np.zeros((0, 3, 3)), 4, 4).pixel) == 0
    assert len(visible(random_corners(5) + 100, 4, 4).pixel) == 0
