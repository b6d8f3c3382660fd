"""Superpixels: exactly n, none empty, means and centroids as defined, any number of workers."""

import sys
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext

import numpy as np
import pytest

from geoskip.data import superpixels as module
from geoskip.data.image_sets import check_superpixels
from geoskip.data.superpixels import IMAGES_AT_ONCE, describe, segment, superpixels, with_exactly


def stroke(seed: int = 0, size: int = 28) -> np.ndarray:
    """An 8-bit image with a bright blob on black."""
    centre = np.random.default_rng(seed).uniform(8, 20, 2)
    rows, cols = np.indices((size, size))
    blob = np.exp(-((rows - centre[0]) ** 2 + 0.2 * (cols - centre[1]) ** 2) / 8)
    return np.rint(255 * blob).astype(np.uint8)


@pytest.mark.parametrize("count", [1, 2, 10, 75, 200])
def test_there_are_exactly_n_and_none_is_empty(count: int) -> None:
    for image in (stroke(), np.zeros((28, 28), dtype=np.uint8)):
        labels = segment(image / 255.0, count)
        assert np.bincount(labels.ravel(), minlength=count).min() >= 1
        assert labels.max() == count - 1


def test_every_pixel_can_be_a_superpixel() -> None:
    labels = segment(stroke(size=28)[10:14, 10:15] / 255.0, 20)
    assert sorted(labels.ravel()) == list(range(20))


def test_the_largest_is_cut_across_its_longer_side() -> None:
    labels = with_exactly(np.zeros((2, 5), dtype=int), 2)
    assert [set(row) for row in (labels[:, :2].ravel(), labels[:, 3:].ravel())] == [{0}, {1}]
    assert sorted(np.bincount(labels.ravel())) == [5, 5]


def test_the_smallest_joins_the_nearest() -> None:
    segments = np.array([[3, 3, 3, 7, 9, 9, 9, 9]])
    assert with_exactly(segments, 2).tolist() == [[0, 0, 0, 0, 1, 1, 1, 1]]
    assert with_exactly(segments, 3).tolist() == [[0, 0, 0, 1, 2, 2, 2, 2]]


def test_means_are_those_of_the_pixels() -> None:
    image = np.arange(12.0).reshape(2, 3, 2)
    pos, mean = describe(image, np.array([[0, 0, 1], [0, 1, 1]]))
    assert pos.tolist() == [[1 / 3, 1 / 3], [5 / 3, 2 / 3]]
    assert mean[0].tolist() == [np.mean([0, 2, 6]), np.mean([1, 3, 7])]


def test_totals_survive() -> None:
    image = stroke() / 255.0
    labels = segment(image, 75)
    pos, mean = describe(image, labels)
    sizes = np.bincount(labels.ravel())
    assert sizes @ mean[:, 0] == pytest.approx(image.sum())
    np.testing.assert_allclose(sizes @ pos / sizes.sum(), [13.5, 13.5])


def test_superpixels_follow_the_stroke_when_they_may() -> None:
    image = stroke() / 255.0

    def spread(compactness: float) -> float:
        labels = segment(image, 75, compactness)
        return float(((image - describe(image, labels)[1][labels, 0]) ** 2).mean())

    assert spread(0.05) < 0.5 * spread(100.0)


def test_the_number_of_workers_does_not_matter() -> None:
    images = np.stack([stroke(seed, 8) for seed in range(IMAGES_AT_ONCE + 3)])
    alone = superpixels(images, 5, workers=1)
    together = superpixels(images, 5, workers=2)
    assert all((a == b).all() for a, b in zip(alone, together, strict=True))
    assert alone[0].shape == (IMAGES_AT_ONCE + 3, 5, 2)


def test_a_worker_that_dies_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ProcessPoolExecutor", DyingPool)
    images = np.zeros((IMAGES_AT_ONCE + 1, 4, 4), dtype=np.uint8)
    with pytest.raises(RuntimeError, match=r"if __name__ == '__main__'.*workers=1"):
        superpixels(images, 2, workers=2)


class DyingPool(nullcontext[object]):
    def __init__(self, workers: int, mp_context: object) -> None:
        super().__init__(self)

    def map(self, *args: object) -> Iterator[object]:
        raise BrokenProcessPool


def test_colours_have_a_mean_each() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 10, 10, 3)).astype(np.uint8)
    pos, mean = superpixels(images, 8, workers=1)
    assert pos.shape == (2, 8, 2)
    assert mean.shape == (2, 8, 3)


@pytest.mark.parametrize(
    ("shape", "dtype", "fault"),
    [
        ((2, 8, 8), float, "8-bit"),
        ((8, 8), "u1", "8-bit"),
        ((0, 8, 8), "u1", "8-bit"),
        ((1, 4, 4), "u1", "do not have"),
    ],
)
def test_bad_images_are_refused(shape: tuple[int, ...], dtype: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        superpixels(np.zeros(shape, dtype=dtype), 75)


@pytest.mark.parametrize(("count", "compactness"), [(0, 0.1), (5, 0.0), (5, float("nan"))])
def test_bad_settings_are_refused(count: int, compactness: float) -> None:
    with pytest.raises(ValueError, match="positive compactness"):
        check_superpixels(count, 1.0, compactness)


def test_without_scikit_image_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skimage.segmentation", None)
    with pytest.raises(ImportError, match=r"pip install 'geoskip\[images\]"):
        segment(np.zeros((4, 4)), 2)
