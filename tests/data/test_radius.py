"""Radius graphs against the definition, and the calibration of the radius."""

import numpy as np
import pytest

from geoskip.data import superpixels
from geoskip.data.superpixels import SAMPLE, calibrated_radius, neighbors, radius_graphs


def radius_edges(pos: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    graphs = radius_graphs(pos, radius)
    return graphs.edges.numpy(), graphs.edge_offsets.numpy()


def points(num_graphs: int, num_points: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((num_graphs, num_points, 2)).astype(np.float32)


def test_edges_equal_the_definition() -> None:
    pos = points(3, 12)
    edges, offsets = radius_edges(pos, 0.4)
    for g in range(3):
        found = set(map(tuple, edges[:, offsets[g] : offsets[g + 1]].T.tolist()))
        distance = np.linalg.norm(pos[g][:, None].astype(float) - pos[g], axis=2)
        assert found == {(j, i) for i in range(12) for j in range(12) if i != j and distance[i, j] <= 0.4}


def test_edges_are_sorted_by_receiver_and_stand_in_both_directions() -> None:
    pos = points(2, 20)
    edges, offsets = radius_edges(pos, 0.3)
    first = edges[:, : offsets[1]].astype(int)
    keys = first[1] * 20 + first[0]
    assert (np.diff(keys) > 0).all()
    assert set(map(tuple, first.T)) == set(map(tuple, first[::-1].T))
    assert (neighbors(pos, 0.3) == neighbors(pos, 0.3).transpose(0, 2, 1)).all()


@pytest.mark.parametrize("degree", [0.1, 3.0, 18.0])
def test_the_mean_degree_is_met(degree: float) -> None:
    pos = points(50, 40)
    edges, _ = radius_edges(pos, calibrated_radius(pos, degree))
    assert edges.shape[1] / (50 * 40) == pytest.approx(degree, abs=2 / (50 * 40))


@pytest.mark.parametrize(("wanted", "nearest"), [(0.5, 0), (1.5, 2), (2.9, 3)])
def test_among_equal_distances_the_nearer_mean_is_taken(wanted: float, nearest: int) -> None:
    """The corners of a square have 0 neighbors, 2 along the sides, or 3 with the diagonals; nothing between."""
    square = np.array([[[0, 0], [1, 0], [0, 1], [1, 1]]], dtype=np.float32)
    edges, _ = radius_edges(square, calibrated_radius(square, wanted))
    assert edges.shape[1] == 4 * nearest


def test_a_sample_calibrates_a_large_set() -> None:
    pos = points(3 * SAMPLE, 4)
    edges, _ = radius_edges(pos, calibrated_radius(pos, 1.0))
    assert edges.shape[1] / (3 * SAMPLE * 4) == pytest.approx(1.0, abs=0.02)


def test_larger_sets_take_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 300 points only a sixteenth as many sets at once, and the edges are those of the sets one by one."""
    monkeypatch.setattr(superpixels, "SETS_AT_ONCE", 32)
    monkeypatch.setattr(superpixels, "SAMPLE", 64)
    real, seen = superpixels._squared_distances, []

    def noted(pos: np.ndarray) -> np.ndarray:
        seen.append(len(pos))
        return real(pos)

    monkeypatch.setattr(superpixels, "_squared_distances", noted)
    pos = points(9, 300)
    near = calibrated_radius(pos, 6.0)
    edges, _ = radius_edges(pos, near)
    assert seen == [4, 2, 2, 2, 2, 1]
    np.testing.assert_array_equal(edges, np.concatenate([radius_edges(one[None], near)[0] for one in pos], axis=1))


def test_many_points_are_numbered_in_larger_integers() -> None:
    edges, _ = radius_edges(points(1, 300), 2.0)
    assert edges.shape[1] == 300 * 299
    assert edges.max() == 299


@pytest.mark.parametrize("degree", [0.0, -1.0, 4.1])
def test_degrees_that_cannot_be_are_refused(degree: float) -> None:
    with pytest.raises(ValueError, match="5 points cannot have"):
        calibrated_radius(points(2, 5), degree)
