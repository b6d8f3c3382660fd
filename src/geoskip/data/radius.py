"""Radius graphs over many point sets of one size: join two points that are no further apart than r."""

import numpy as np

from geoskip.data.bitmaps import bitmap_edges
from geoskip.shapes import Bool, Float, Int, Shaped

# Sets at once, of up to ``POINTS`` points each; of larger ones as many fewer as keeps the memory the same.
SAMPLE = 4096
CHUNK = 64  # what fits into a core's own cache
POINTS = 75
EPSILON = float(np.finfo(np.float32).eps)


def calibrated_radius(pos: Float[np.ndarray, "graphs points dim"], mean_degree: float) -> float:
    """The radius at which points have ``mean_degree`` neighbours on the average, over (a sample of) the sets.

    With G sets of n points, G n mean_degree / 2 pairs are joined: r is the distance of the last of them. Where many
    pairs are as far apart as that (the empty parts of images all look alike), it is just above or just below it,
    whichever comes nearer to the mean.
    """
    if not 0 < mean_degree <= pos.shape[1] - 1:
        raise ValueError(f"{pos.shape[1]} points cannot have {mean_degree} neighbours each on the average")
    # Drawn, not every k-th: the order of MNIST is such that strides differ by more than chance.
    drawn = np.random.default_rng(0).choice(len(pos), min(len(pos), _at_once(SAMPLE, pos)), replace=False)
    sample = pos[np.sort(drawn)]
    pairs = np.triu_indices(pos.shape[1], 1)
    squares = _squared_distances(sample)[:, pairs[0], pairs[1]].ravel()
    wanted = max(round(len(sample) * pos.shape[1] * mean_degree / 2), 1)
    last = np.sqrt(np.partition(squares, wanted - 1)[wanted - 1])
    # A few units in the last place, so that squaring does not round across the distance itself.
    candidates = [last * np.float32(1 + 4 * EPSILON), last * np.float32(1 - 4 * EPSILON)]
    return float(min(candidates, key=lambda r: abs(np.count_nonzero(squares <= r * r) - wanted)))


def neighbours(pos: Float[np.ndarray, "graphs points dim"], radius: float) -> Bool[np.ndarray, "graphs points points"]:
    """Which points of each set are joined; no point to itself."""
    joined = _squared_distances(pos) <= np.float32(radius) ** 2
    joined[:, np.arange(pos.shape[1]), np.arange(pos.shape[1])] = False
    return joined


def radius_edges(
    pos: Float[np.ndarray, "graphs points dim"], radius: float
) -> tuple[Shaped[np.ndarray, "2 edges"], Int[np.ndarray, " graphs_plus_1"]]:
    """Edges of all sets, numbered within each set and sorted by receiver, and where each set's edges begin."""
    step = _at_once(CHUNK, pos)
    parts = [bitmap_edges(neighbours(pos[start : start + step], radius)) for start in range(0, len(pos), step)]
    edges, counts = zip(*parts, strict=True) if parts else ([np.zeros((2, 0), np.uint8)], [np.zeros(0, np.int64)])
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    return np.concatenate(edges, axis=1), offsets


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
