"""Images as graphs of superpixels, for classification.

Each image becomes exactly n vertices: centroids in pixels as positions, mean intensity in [0, 1] as the feature, and
edges between vertices no further apart than one radius, the same for the whole set, chosen so that the training
graphs have a wanted mean degree. The 75-superpixel MNIST of Monti et al. (CVPR 2017) that PyTorch Geometric passes
on has the same form (75 vertices, one intensity, positions in pixels, 1,393 directed edges a graph on the average),
but how it was made is not published: figures on the two sets are comparable, not equal.

The set is kept as 16-bit fixed-point positions and intensities and 8-bit clusters; edges and levels follow from
them and are rebuilt at each load. 70,000 graphs of 75 vertices take 37 MiB on disk.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch

from geoskip.data.cache import cached, fingerprint
from geoskip.data.entries import CacheFault, Stored, entry_name, read_entry
from geoskip.data.graph_set import GraphLevel, GraphSet
from geoskip.data.levels import find_clusters, gaussian_weights, with_levels
from geoskip.data.radius import calibrated_radius, radius_edges
from geoskip.data.slic import Slic, superpixels
from geoskip.data.split import Split
from geoskip.shapes import Int, Shaped

VERSION = 1
FULL = 65535  # the largest 16-bit number stands for the image's side, and for intensity 1
MNIST_DEGREE = 1393 / 75


@dataclass(frozen=True)
class Recipe:
    """How images become graphs.

    slic: superpixels per image and their compactness.
    mean_degree: neighbours of a vertex on the average over the training graphs; fixes the radius.
    num_coarsenings: coarser levels to prepare, each two Graclus matchings (about a factor of 4) coarser, with edges
        weighted by exp(-d² / 2σ²), σ half the radius.
    seed: of the matchings.
    """

    slic: Slic = field(default_factory=Slic)
    mean_degree: float = MNIST_DEGREE
    num_coarsenings: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        # Said here: the radius is chosen only when all images have been cut, minutes later.
        if not 0 < self.mean_degree <= self.slic.num_segments - 1:
            raise ValueError(
                f"{self.slic.num_segments} superpixels cannot have {self.mean_degree:g} neighbours each on the average"
            )


def superpixel_set(
    images: Shaped[np.ndarray, "images height width *channels"],
    labels: Int[np.ndarray, " images"],
    class_names: Sequence[str],
    split: Split,
    recipe: Recipe | None = None,
    *,
    workers: int | None = None,
    cache: Path | None = None,
    files: str = "",
) -> GraphSet:
    """The graphs of 8-bit images; made before, they come from the cache (the folder ``cache``, or the usual one).

    ``files`` is a hash of the files that the images come from, if their pixels depend on who decodes them (JPEG).
    """
    recipe = recipe or Recipe()
    key = {
        "version": VERSION,
        "recipe": asdict(recipe),
        "images": fingerprint(images, labels, split.train.numpy(), split.test.numpy()),
        "class_names": list(class_names),
    }
    content = entry_name("superpixels", key | {"images": files or key["images"]})
    build = partial(_build, images, labels, class_names, split, recipe, workers, content)
    return _graph_set(cached("superpixels", key, build, root=cache), content)


def read_superpixels(entry: Path) -> GraphSet:
    """A set out of a folder of the cache, here or carried from elsewhere; the images are not needed."""
    stored = read_entry(entry)
    try:
        return _graph_set(stored, stored.meta.get("content", ""))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise CacheFault(f"{entry}: not a set of superpixels ({error!r:.200})") from error


def _build(
    images: np.ndarray,
    labels: np.ndarray,
    class_names: Sequence[str],
    split: Split,
    recipe: Recipe,
    workers: int | None,
    content: str,
) -> Stored:
    centroids, means = superpixels(images, recipe.slic, workers)
    side = float(max(images.shape[1:3]))
    pos = np.rint(centroids * (FULL / side)).astype(np.uint16)
    radius = calibrated_radius(_scaled(pos, side)[split.train.numpy()], recipe.mean_degree)
    finest = _finest(_scaled(pos, side), radius)
    clusters = find_clusters(
        finest, lambda level: gaussian_weights(level, radius / 2), recipe.num_coarsenings, seed=recipe.seed
    )
    arrays = {"pos": pos, "x": np.rint(means * FULL).astype(np.uint16), "labels": labels}
    arrays |= {"train": split.train.numpy(), "test": split.test.numpy()}
    arrays |= {f"clusters{depth}": chosen.numpy() for depth, chosen in enumerate(clusters)}
    meta = {"side": side, "radius": radius, "class_names": list(class_names), "coarsenings": recipe.num_coarsenings}
    return Stored(arrays, meta | {"content": content})


def _graph_set(stored: Stored, content: str) -> GraphSet:
    arrays, meta = stored.arrays, stored.meta
    if arrays["pos"].ndim != 3 or arrays["pos"].shape[:2] != arrays["x"].shape[:2] or arrays["pos"].dtype != np.uint16:
        raise ValueError("positions and features do not fit together")
    if any(arrays[name].ndim != 1 or arrays[name].dtype.kind not in "iu" for name in ("labels", "train", "test")):
        raise ValueError("labels and splits must be lists of whole numbers")
    if not 0 <= meta["radius"] <= 2 * meta["side"] < 1 << 20:
        raise ValueError(f"radius {meta['radius']} of images with a side of {meta['side']}")
    finest = _finest(_scaled(arrays["pos"], meta["side"]), meta["radius"])
    clusters = [torch.from_numpy(arrays[f"clusters{depth}"]) for depth in range(meta["coarsenings"])]
    return GraphSet(
        torch.from_numpy(_scaled(arrays["x"], 1.0)).flatten(0, 1),
        with_levels(finest, clusters),
        torch.from_numpy(arrays["labels"]).long(),
        tuple(meta["class_names"]),
        Split(torch.from_numpy(arrays["train"]), torch.from_numpy(arrays["test"])),
        content,
    )


def _scaled(fixed: np.ndarray, full: float) -> np.ndarray:
    return fixed.astype(np.float32) * np.float32(full / FULL)


def _finest(pos: np.ndarray, radius: float) -> GraphLevel:
    edges, edge_offsets = radius_edges(pos, radius)
    offsets = torch.arange(len(pos) + 1) * pos.shape[1]
    return GraphLevel(
        torch.from_numpy(pos).flatten(0, 1), offsets, torch.from_numpy(edges), torch.from_numpy(edge_offsets)
    )
