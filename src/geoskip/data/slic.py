"""Images to exactly n superpixels each: SLIC, then splits or merges until the count is right.

Achanta et al., "SLIC superpixels compared to state-of-the-art superpixel methods" (PAMI 2012), as scikit-image has
it. Asked for n segments, it starts from a grid, which for 75 on 28 × 28 pixels gives 81; with a mask, here a full
one, it starts from n spread points (Irving, arXiv:1606.09518), and few of them end empty. Connectivity is not
enforced: that would merge segments again.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from os import cpu_count

import numpy as np

from geoskip.data.progress import ProgressBar
from geoskip.shapes import Float, Int, Shaped

CHUNK = 250


@dataclass(frozen=True)
class Slic:
    """num_segments: superpixels per image, exactly. compactness: weight of distance (in cells) against
    intensity (image scaled to [0, 1]); small values follow the strokes, large ones give a grid."""

    num_segments: int = 75
    compactness: float = 0.25

    def __post_init__(self) -> None:
        if self.num_segments < 1 or not 0 < self.compactness < float("inf"):
            raise ValueError(f"superpixels need a count of at least 1 and a positive compactness, not {self}")


def superpixels(
    images: Shaped[np.ndarray, "images *shape"], slic: Slic, workers: int | None = None
) -> tuple[Float[np.ndarray, "images segments 2"], Float[np.ndarray, "images segments channels"]]:
    """Centroid (x to the right, y down, in pixels) and mean intensity in [0, 1] of each superpixel of 8-bit images.

    ``images`` is [images, height, width], or with channels as a last axis.
    ``workers`` processes (all cores, unless said) share the images; the result does not depend on their number.
    """
    _check(images, slic)
    chunks = [images[start : start + CHUNK] for start in range(0, len(images), CHUNK)]
    workers = min(workers or cpu_count() or 1, len(chunks))
    with ProgressBar("superpixels", len(images)) as progress:
        parts = []
        for part in _in_turn(chunks, slic, workers):
            parts.append(part)
            progress.advance(len(part[0]))
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def segment(image: Float[np.ndarray, "height width *channels"], slic: Slic) -> Int[np.ndarray, "height width"]:
    """Which superpixel, from 0 to ``num_segments - 1``, each pixel belongs to; none is empty."""
    segmentation = _skimage_slic()(
        image,
        n_segments=slic.num_segments,
        compactness=slic.compactness,
        channel_axis=None if image.ndim == 2 else -1,
        mask=np.ones(image.shape[:2], dtype=bool),
        enforce_connectivity=False,
    )
    return with_exactly(segmentation, slic.num_segments)


def with_exactly(segments: Int[np.ndarray, "height width"], count: int) -> Int[np.ndarray, "height width"]:
    """The same segments renumbered from 0, the largest cut in two or the smallest joined to the nearest, until
    there are ``count``."""
    labels = np.unique(segments, return_inverse=True)[1].reshape(segments.shape)
    while (present := labels.max() + 1) != count:
        labels = _cut_largest(labels) if present < count else _join_smallest(labels)
    return labels


def describe(
    image: Float[np.ndarray, "height width *channels"], labels: Int[np.ndarray, "height width"]
) -> tuple[Float[np.ndarray, "segments 2"], Float[np.ndarray, "segments channels"]]:
    """Centroid (x, y) and mean of each segment."""
    places = np.indices(labels.shape)[::-1]
    channels = image.reshape(labels.size, -1).T
    return _means(labels, places), _means(labels, channels)


def _means(labels: np.ndarray, quantities: Iterable[np.ndarray]) -> np.ndarray:
    flat = labels.ravel()
    counts = np.bincount(flat)
    return np.stack([np.bincount(flat, np.ravel(q)) / counts for q in quantities], axis=1)


def _cut_largest(labels: np.ndarray) -> np.ndarray:
    """Cut across the longer side, at the median pixel."""
    rows, cols = np.nonzero(labels == np.bincount(labels.ravel()).argmax())
    along, across = (rows, cols) if np.ptp(rows) >= np.ptp(cols) else (cols, rows)
    half = np.lexsort((across, along))[len(rows) // 2 :]
    cut = labels.copy()
    cut[rows[half], cols[half]] = labels.max() + 1
    return cut


def _join_smallest(labels: np.ndarray) -> np.ndarray:
    smallest = np.bincount(labels.ravel()).argmin()
    centroids = _means(labels, np.indices(labels.shape))
    distances = np.linalg.norm(centroids - centroids[smallest], axis=1)
    distances[smallest] = np.inf
    joined = np.where(labels == smallest, distances.argmin(), labels)
    return joined - (joined > smallest)


def _in_turn(chunks: list[np.ndarray], slic: Slic, workers: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    if workers <= 1:
        yield from (_chunk(chunk, slic) for chunk in chunks)
        return
    # Spawned, not forked: torch may hold threads, which a fork would leave locked.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        try:
            yield from pool.map(_chunk, chunks, [slic] * len(chunks))
        except BrokenProcessPool as error:
            raise RuntimeError(
                "a worker process ended early. A script must start its work under \"if __name__ == '__main__':\", as "
                "workers import it; or there was not enough memory. With workers=1 there are none."
            ) from error


def _chunk(images: np.ndarray, slic: Slic) -> tuple[np.ndarray, np.ndarray]:
    scaled = images / 255.0
    described = [describe(image, segment(image, slic)) for image in scaled]
    return np.stack([d[0] for d in described]), np.stack([d[1] for d in described])


def _skimage_slic() -> Callable[..., np.ndarray]:
    try:
        from skimage.segmentation import slic
    except ImportError as error:
        raise ImportError("superpixels need scikit-image: pip install geoskip[images]") from error
    return slic


def _check(images: np.ndarray, slic: Slic) -> None:
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or len(images) == 0:
        raise ValueError(f"superpixels take 8-bit images [images, height, width], not {images.dtype} {images.shape}")
    if images.shape[1] * images.shape[2] < slic.num_segments:
        raise ValueError(f"images of {images.shape[1:3]} pixels do not have {slic.num_segments} superpixels")
