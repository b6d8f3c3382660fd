"""Sets of images as graphs of superpixels, for classification.

Each image becomes exactly n vertices: centroids in pixels as positions, mean intensity in [0, 1] as the feature, and
edges between vertices that are no further apart than a radius. The radius is the same for the whole set, chosen so that
the training graphs have a given mean degree. The 75-superpixel MNIST of Monti et al. (CVPR 2017), which PyTorch
Geometric distributes, has the same form (75 vertices, one intensity, positions in pixels, 1,393 directed edges per
graph on average). How it was made is not published: figures on the two sets are comparable, not equal.

The cache stores positions and intensities as 16-bit and clusters as 8-bit integers; edges and levels follow from them
and are rebuilt at each load. 70,000 graphs of 75 vertices take 37 MiB.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from geoskip.data.cache import CacheEntry, CacheError, cached, entry_name, fingerprint, fingerprint_files, read_entry
from geoskip.data.graph_sets import GraphLevel, GraphSet, find_clusters, gaussian_weights, with_levels
from geoskip.data.mesh_sets import Split
from geoskip.data.superpixels import Slic, calibrated_radius, radius_edges, superpixels
from geoskip.records.reading import ReadError, read_bytes
from geoskip.shapes import Int, Shaped

# Part of the cache key: raise it when the same images give other graphs.
VERSION = 1
FULL = 65535  # the largest 16-bit number stands for the image's side, and for intensity 1
MNIST_DEGREE = 1393 / 75
SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
MAX_PIXELS = 1 << 26


@dataclass(frozen=True)
class SuperpixelRecipe:
    """How images become graphs.

    slic: superpixels per image and their compactness.
    mean_degree: mean number of neighbors of a vertex over the training graphs; determines the radius.
    num_coarsenings: number of coarser levels, each two Graclus matchings (about a factor of 4) coarser, with edges
        weighted by exp(-d² / 2σ²), σ half the radius.
    seed: of the matchings.
    """

    slic: Slic = field(default_factory=Slic)
    mean_degree: float = MNIST_DEGREE
    num_coarsenings: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        # Checked here: the radius is computed only after all images have been segmented, minutes later.
        if not 0 < self.mean_degree <= self.slic.num_segments - 1:
            raise ValueError(
                f"{self.slic.num_segments} superpixels cannot have {self.mean_degree:g} neighbors each on average"
            )


def superpixel_set(
    images: Shaped[np.ndarray, "images height width *channels"],
    labels: Int[np.ndarray, " images"],
    class_names: Sequence[str],
    split: Split,
    recipe: SuperpixelRecipe | None = None,
    *,
    workers: int | None = None,
    cache: Path | None = None,
    files: str = "",
) -> GraphSet:
    """The graphs of 8-bit images, kept in the cache (the folder ``cache``, or the usual one).

    ``files`` is a hash of the image files, if their pixels depend on the decoder (JPEG).
    """
    recipe = recipe or SuperpixelRecipe()
    key = {
        "version": VERSION,
        "recipe": asdict(recipe),
        "images": fingerprint(images, labels, split.train.numpy(), split.test.numpy()),
        "class_names": list(class_names),
    }
    content = entry_name("superpixels", key | {"images": files or key["images"]})

    def build() -> CacheEntry:
        described = {"class_names": list(class_names), "content": content}
        return _build(images, labels, split, recipe, workers, described)

    return _graph_set(cached("superpixels", key, build, root=cache), content)


def read_superpixels(entry: Path) -> GraphSet:
    """A set from a cache entry, which may come from another machine; the images are not needed."""
    stored = read_entry(entry)
    try:
        return _graph_set(stored, stored.meta.get("content", ""))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise CacheError(f"{entry}: not a set of superpixels ({error!r:.200})") from error


def _build(
    images: np.ndarray,
    labels: np.ndarray,
    split: Split,
    recipe: SuperpixelRecipe,
    workers: int | None,
    described: dict[str, Any],
) -> CacheEntry:
    centroids, means = superpixels(images, recipe.slic, workers)
    side = float(max(images.shape[1:3]))
    pos = np.rint(centroids * (FULL / side)).astype(np.uint16)
    radius = calibrated_radius(_scaled(pos, side)[split.train.numpy()], recipe.mean_degree)
    clusters = find_clusters(
        _finest(_scaled(pos, side), radius),
        lambda level: gaussian_weights(level, radius / 2),
        recipe.num_coarsenings,
        seed=recipe.seed,
    )
    arrays = {"pos": pos, "x": np.rint(means * FULL).astype(np.uint16), "labels": labels}
    arrays |= {"train": split.train.numpy(), "test": split.test.numpy()}
    arrays |= {f"clusters{depth}": chosen.numpy() for depth, chosen in enumerate(clusters)}
    return CacheEntry(arrays, {"side": side, "radius": radius, "coarsenings": recipe.num_coarsenings, **described})


def _graph_set(stored: CacheEntry, content: str) -> GraphSet:
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


def image_folder(
    folder: str | Path,
    *,
    nodes: int = 75,
    degree: float = MNIST_DEGREE,
    compactness: float = 0.25,
    size: Sequence[int] | None = None,
    color: bool = False,
    test_every: int = 5,
    workers: int | None = None,
    cache: Path | None = None,
) -> GraphSet:
    """Images in ``folder/<class>/…`` as graphs of superpixels; the class is the name of the subfolder.

    If the folder has the subfolders ``train`` and ``test`` (with classes below), they are the split; otherwise every
    ``test_every``-th image of each class, in sorted order, is for the test. Images are gray unless ``color`` (three
    features, the mean of each channel), and must have one size unless they are scaled to a ``size`` (height, width).
    ``nodes``, ``degree`` and ``compactness``: see :class:`SuperpixelRecipe`.
    """
    recipe = SuperpixelRecipe(Slic(nodes, compactness), degree)
    paths, labels, class_names, test = _list_images(Path(folder), test_every)
    images = [read_image(path, size, color) for path in paths]
    for path, image in zip(paths, images, strict=True):
        if image.shape != images[0].shape:
            shapes = f"{image.shape[:2]} pixels, but {paths[0].name} has {images[0].shape[:2]}"
            raise ValueError(f"{path}: {shapes}; pass size=(height, width) to scale all images to one size")
    split = Split.by_mask(torch.tensor(test))
    files = fingerprint_files(paths, Path(folder))
    return superpixel_set(
        np.stack(images), np.array(labels), class_names, split, recipe, workers=workers, cache=cache, files=files
    )


def image_or_graph_folder(folder: Path, **options: Any) -> GraphSet:
    """The images of a folder as graphs; or the graphs of a cache entry, which may come from another machine."""
    if not (folder / "manifest.json").is_file():
        return image_folder(folder, **options)
    if options:
        raise ValueError(
            f"data_options.{min(options)}: {folder} contains graphs that are already made; give the folder of images, "
            "or leave the option out"
        )
    return read_superpixels(folder)


def _list_images(folder: Path, test_every: int) -> tuple[list[Path], list[int], list[str], list[bool]]:
    """Path, label and whether it is for the test, for each image; and the names of the classes."""
    if test_every < 2:
        raise ValueError(f"test_every={test_every} leaves nothing to train on: at least 2")
    split_by_folder = (folder / "train").is_dir() and (folder / "test").is_dir()
    parts = [folder / "train", folder / "test"] if split_by_folder else [folder]
    names = sorted({entry.name for part in parts for entry in part.iterdir() if entry.is_dir()})
    images: list[tuple[Path, int, bool]] = []
    for part in parts:
        for label, name in enumerate(names):
            paths = sorted(path for path in (part / name).rglob("*") if path.suffix.lower() in SUFFIXES)
            for i, path in enumerate(paths):
                images.append((path, label, part.name == "test" if split_by_folder else i % test_every == 0))
    if not images:
        raise ValueError(f"{folder}: no images in subfolders, one subfolder per class")
    paths, labels, test = map(list, zip(*images, strict=True))
    return paths, labels, names, test


def read_image(path: Path, size: Sequence[int] | None, color: bool) -> Shaped[np.ndarray, "height width *channels"]:
    """The 8-bit pixels of an image of at most ``MAX_PIXELS``, scaled to ``size`` (height, width) if given.

    ValueError, naming the file, if it is damaged, too large, or not in one of ``FORMATS``; the size is checked before
    any pixel is decoded.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("reading images needs Pillow: pip install geoskip[images]") from error
    if size is not None and not (len(size) == 2 and min(size) >= 1 and math.prod(size) <= MAX_PIXELS):
        raise ValueError(f"size: images are scaled to a height and a width, {MAX_PIXELS:,} pixels at most, not {size}")
    try:
        # Pillow warns about large images, and about oddities in a file, as soon as it opens it.
        with warnings.catch_warnings(action="ignore"), Image.open(BytesIO(read_bytes(path)), formats=FORMATS) as image:
            if math.prod(image.size) > MAX_PIXELS:
                raise ReadError(f"{image.width} × {image.height} pixels, and at most {MAX_PIXELS:,} are read")
            pixels = image.convert("RGB" if color else "L")
            scaled = pixels if size is None else pixels.resize((size[1], size[0]), Image.Resampling.BILINEAR)
            return np.asarray(scaled)
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # of many types: Pillow's decoders do not agree on any
        raise ValueError(f"{path}: not an image that can be read: {error}") from error
