"""Images to graphs of superpixels: SLIC, then edges between superpixels that are no further apart than a radius.

Achanta et al., "SLIC superpixels compared to state-of-the-art superpixel methods" (PAMI 2012), as in scikit-image.
Asked for n segments, it starts from a grid, which for 75 on 28 × 28 pixels gives 81. With a mask (here: everything) it
starts from n spread points (Irving, arXiv:1606.09518), few of which end empty. Segments are then cut or merged until
there are exactly n. Connectivity is not enforced: that would merge segments again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from os import cpu_count

import numpy as np
import torch

from geoskip.data.graph_sets import GraphLevel, adjacency_edges
from geoskip.data.progress_bar import progress_bar
from geoskip.shapes import Bool, Float, Int, Shaped

COMPACTNESS = 0.25
IMAGES_AT_ONCE = 250
# Point sets at a time, of up to ``POINTS`` points each; fewer of larger ones, so that the memory stays the same.
SAMPLE = 4096
SETS_AT_ONCE = 64  # fits into the cache of a core
POINTS = 75
EPSILON = float(np.finfo(np.float32).eps)


def superpixels(
    images: Shaped[np.ndarray, images * shape],
    num_segments: int,
    compactness: float = COMPACTNESS,
    workers: int | None = None,
) -> tuple[Float[np.ndarray, "images segments 2"], Float[np.ndarray, "images segments channels"]]:
    """Centroid (x to the right, y down, in pixels) and mean intensity in [0, 1] of each superpixel of 8-bit images.

    ``images`` is [images, height, width], or with channels as a last axis. ``workers`` processes (by default one per
    core) share the images; the result does not depend on their number.
    """
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or len(images) == 0:
        raise ValueError(f"superpixels take 8-bit images [images, height, width], not {images.dtype} {images.shape}")
    if images.shape[1] * images.shape[2] < num_segments:
        raise ValueError(f"images of {images.shape[1:3]} pixels do not have {num_segments} superpixels")
    chunks = [images[start : start + IMAGES_AT_ONCE] for start in range(0, len(images), IMAGES_AT_ONCE)]
    workers = min(workers or cpu_count() or 1, len(chunks))
    with progress_bar("superpixels", len(images)) as advance:
        parts = []
        for part in _process(chunks, num_segments, compactness, workers):
            parts.append(part)
            advance(len(part[0]))
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _process(
    chunks: list[np.ndarray], num_segments: int, compactness: float, workers: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    process = partial(_process_chunk, num_segments=num_segments, compactness=compactness)
    if workers <= 1:
        yield from map(process, chunks)
        return
    # Spawned, not forked: a fork would copy locks that threads of torch may hold.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        try:
            yield from pool.map(process, chunks)
        except BrokenProcessPool as error:
            raise RuntimeError(
                "a worker process ended early, for lack of memory or because a script starts its work outside of "
                "\"if __name__ == '__main__':\" (workers import it). workers=1 uses no other processes."
            ) from error


def _process_chunk(images: np.ndarray, num_segments: int, compactness: float) -> tuple[np.ndarray, np.ndarray]:
    described = [describe(image, segment(image, num_segments, compactness)) for image in images / 255.0]
    return np.stack([centroids for centroids, _ in described]), np.stack([means for _, means in described])


def segment(
    image: Float[np.ndarray, "height width *channels"], num_segments: int, compactness: float = COMPACTNESS
) -> Int[np.ndarray, "height width"]:
    """The superpixel of each pixel, from 0 to ``num_segments - 1``; none is empty."""
    try:
        from skimage.segmentation import slic
    except ImportError as error:
        raise ImportError("superpixels need scikit-image: pip install 'geoskip[images]'") from error
    segmentation = slic(
        image,
        n_segments=num_segments,
        compactness=compactness,
        channel_axis=None if image.ndim == 2 else -1,
        mask=np.ones(image.shape[:2], dtype=bool),
        enforce_connectivity=False,
    )
    return with_exactly(segmentation, num_segments)


def with_exactly(segments: Int[np.ndarray, "height width"], count: int) -> Int[np.ndarray, "height width"]:
    """Renumber the segments from 0, and cut the largest or merge the smallest until there are ``count``."""
    labels = np.unique(segments, return_inverse=True)[1].reshape(segments.shape)
    while (present := labels.max() + 1) != count:
        labels = _cut_largest(labels) if present < count else _merge_smallest(labels)
    return labels


def describe(
    image: Float[np.ndarray, "height width *channels"], labels: Int[np.ndarray, "height width"]
) -> tuple[Float[np.ndarray, "segments 2"], Float[np.ndarray, "segments channels"]]:
    """Centroid (x, y) and mean of each segment."""
    return _means(labels, np.indices(labels.shape)[::-1]), _means(labels, image.reshape(labels.size, -1).T)


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


def _merge_smallest(labels: np.ndarray) -> np.ndarray:
    """Merge the smallest segment with the one whose centroid is nearest."""
    smallest = np.bincount(labels.ravel()).argmin()
    centroids = _means(labels, np.indices(labels.shape))
    distances = np.linalg.norm(centroids - centroids[smallest], axis=1)
    distances[smallest] = np.inf
    merged = np.where(labels == smallest, distances.argmin(), labels)
    return merged - (merged > smallest)


def calibrated_radius(pos: Float[np.ndarray, "graphs points dim"], mean_degree: float) -> float:
    """The radius at which points have ``mean_degree`` neighbors on average, over a sample of the point sets.

    G sets of n points need G n mean_degree / 2 edges: r is the length of the last of them. If many pairs have this very
    distance (the empty parts of images all look alike), r is just above or just below it, whichever gives a mean nearer
    to the wanted one.
    """
    if not 0 < mean_degree <= pos.shape[1] - 1:
        raise ValueError(f"{pos.shape[1]} points cannot have {mean_degree} neighbors each on average")
    # Drawn at random: in MNIST, every k-th image differs from the others by more than chance.
    drawn = np.random.default_rng(0).choice(len(pos), min(len(pos), _at_once(SAMPLE, pos)), replace=False)
    sample = pos[np.sort(drawn)]
    pairs = np.triu_indices(pos.shape[1], 1)
    squares = _squared_distances(sample)[:, pairs[0], pairs[1]].ravel()
    num_pairs = max(round(len(sample) * pos.shape[1] * mean_degree / 2), 1)
    last = np.sqrt(np.partition(squares, num_pairs - 1)[num_pairs - 1])
    # A few units in the last place, so that squaring does not round across the distance itself.
    candidates = [last * np.float32(1 + 4 * EPSILON), last * np.float32(1 - 4 * EPSILON)]
    return float(min(candidates, key=lambda r: abs(np.count_nonzero(squares <= r * r) - num_pairs)))


def radius_graphs(pos: Float[np.ndarray, "graphs points dim"], radius: float) -> GraphLevel:
    """One graph per point set: edges between points that are at most ``radius`` apart, sorted by receiver."""
    step = _at_once(SETS_AT_ONCE, pos)
    parts = [adjacency_edges(neighbors(pos[start : start + step], radius)) for start in range(0, len(pos), step)]
    edges, counts = zip(*parts, strict=True) if parts else ([np.zeros((2, 0), np.uint8)], [np.zeros(0, np.int64)])
    return GraphLevel(
        torch.from_numpy(pos).flatten(0, 1),
        torch.arange(len(pos) + 1) * pos.shape[1],
        torch.from_numpy(np.concatenate(edges, axis=1)),
        torch.from_numpy(np.concatenate([[0], np.cumsum(np.concatenate(counts))])),
    )


def neighbors(pos: Float[np.ndarray, "graphs points dim"], radius: float) -> Bool[np.ndarray, "graphs points points"]:
    """Which points of each set are at most ``radius`` apart; no point is its own neighbor."""
    adjacency = _squared_distances(pos) <= np.float32(radius) ** 2
    adjacency[:, np.arange(pos.shape[1]), np.arange(pos.shape[1])] = False
    return adjacency


def _at_once(count: int, pos: np.ndarray) -> int:
    return max(1, min(count, count * POINTS**2 // pos.shape[1] ** 2))


def _squared_distances(pos: np.ndarray) -> np.ndarray:
    """In float32, one operation at a time: the same bits, and so the same edges, on every machine."""
    squares = np.zeros((*pos.shape[:2], pos.shape[1]), dtype=np.float32)
    for axis in range(pos.shape[2]):
        coordinate = pos[:, :, axis].astype(np.float32)
        difference = coordinate[:, :, None] - coordinate[:, None, :]
        squares += difference * difference
    return squares
