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
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from geoskip.data.archives import list_files
from geoskip.data.cache import CacheEntry, CacheError, cached, entry_name, fingerprint, fingerprint_files
from geoskip.data.graph_sets import GraphSet, find_clusters, with_levels
from geoskip.data.mesh_sets import Split
from geoskip.data.superpixels import COMPACTNESS, calibrated_radius, radius_graphs, superpixels
from geoskip.records.reading import ReadError, read_bytes
from geoskip.shapes import Int, Shaped

# Part of the cache key: raise it when the same images give other graphs.
VERSION = 1
# Two coarser levels, each two Graclus matchings (about a factor of 4) coarser than the one before. The weight of an
# edge is exp(-d² / 2σ²), where σ is half the radius.
COARSENINGS, SEED = 2, 0
FULL = 65535  # the largest 16-bit number stands for the image's side, and for intensity 1
MNIST_DEGREE = 1393 / 75
ANY_IMAGE = re.compile(r"(?:[^/.][^/]*/)*[^/.][^/]*\.(?:png|jpe?g|bmp|gif|tiff?|webp|pgm|ppm)", re.IGNORECASE)
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
MAX_PIXELS = 1 << 26
PARTS = {"train", "training", "test", "testing", "val", "valid", "validation"}


def superpixel_set(
    images: Shaped[np.ndarray, "images height width *channels"],
    labels: Int[np.ndarray, " images"],
    class_names: Sequence[str],
    split: Split,
    *,
    nodes: int = 75,
    degree: float = MNIST_DEGREE,
    compactness: float = COMPACTNESS,
    workers: int | None = None,
    cache: Path | None = None,
    files: str = "",
) -> GraphSet:
    """8-bit images as graphs of superpixels, kept in the cache.

    Args:
        images: one image per graph, with or without channels.
        labels: the class of each image.
        class_names: the names of the classes.
        split: which images are for training and which for the test.
        nodes: superpixels per image, exactly.
        degree: mean number of neighbors of a vertex over the training graphs; determines the radius.
        compactness: weight of distance (in cells) against intensity (from 0 to 1) in SLIC. Small values follow the
            strokes, large ones give a grid.
        workers: number of processes, by default one per core.
        cache: another folder than the usual one.
        files: a hash of the image files, if their pixels depend on the decoder (JPEG).
    """
    check_superpixels(nodes, degree, compactness)
    slic = {"num_segments": nodes, "compactness": compactness}
    key = {
        "version": VERSION,
        "recipe": {"slic": slic, "mean_degree": degree, "num_coarsenings": COARSENINGS, "seed": SEED},
        "images": fingerprint(images, labels, split.train.numpy(), split.test.numpy()),
        "class_names": list(class_names),
    }
    content = entry_name("superpixels", key | {"images": files or key["images"]})

    def build() -> CacheEntry:
        centroids, means = superpixels(images, nodes, compactness, workers)
        side = float(max(images.shape[1:3]))
        pos = np.rint(centroids * (FULL / side)).astype(np.uint16)
        radius = calibrated_radius(_scaled(pos, side)[split.train.numpy()], degree)
        finest = radius_graphs(_scaled(pos, side), radius)
        clusters = find_clusters(finest, radius / 2, COARSENINGS, seed=SEED)
        arrays = {"pos": pos, "x": np.rint(means * FULL).astype(np.uint16), "labels": labels}
        arrays |= {"train": split.train.numpy(), "test": split.test.numpy()}
        arrays |= {f"clusters{depth}": chosen.numpy() for depth, chosen in enumerate(clusters)}
        meta = {"side": side, "radius": radius, "coarsenings": COARSENINGS, "class_names": list(class_names)}
        return CacheEntry(arrays, meta)

    try:
        return _graph_set(cached("superpixels", key, build, root=cache), content)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise CacheError(f"the cache entry {entry_name('superpixels', key)} is not a set of superpixels") from error


def check_superpixels(nodes: int, degree: float, compactness: float) -> None:
    """ValueError for options that no superpixels have. The radius is computed minutes after the start, too late."""
    if nodes < 1 or not 0 < compactness < math.inf:
        raise ValueError(
            f"superpixels need 1 or more nodes and a positive compactness, got {nodes} nodes and {compactness}"
        )
    if not 0 < degree <= nodes - 1:
        raise ValueError(f"degree: {nodes} superpixels cannot have {degree:g} neighbors each on average")


def _graph_set(stored: CacheEntry, content: str) -> GraphSet:
    arrays, meta = stored.arrays, stored.meta
    if arrays["pos"].ndim != 3 or arrays["pos"].shape[:2] != arrays["x"].shape[:2] or arrays["pos"].dtype != np.uint16:
        raise ValueError("positions and features do not fit together")
    if any(arrays[name].ndim != 1 or arrays[name].dtype.kind not in "iu" for name in ("labels", "train", "test")):
        raise ValueError("labels and splits must be lists of whole numbers")
    if not 0 <= meta["radius"] <= 2 * meta["side"] < 1 << 20:
        raise ValueError(f"radius {meta['radius']} of images with a side of {meta['side']}")
    finest = radius_graphs(_scaled(arrays["pos"], meta["side"]), meta["radius"])
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


def image_folder(
    folder: str | Path,
    *,
    nodes: int = 75,
    degree: float = MNIST_DEGREE,
    compactness: float = COMPACTNESS,
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
    Graphs are named by their paths in the folder. ``nodes``, ``degree`` and ``compactness``: :func:`superpixel_set`.
    """
    check_superpixels(nodes, degree, compactness)  # before reading thousands of images
    paths, labels, class_names, test = _list_images(Path(folder), test_every)
    images = [read_image(path, size, color) for path in paths]
    if len(set(labels)) == 1:
        only = class_names[labels[0]]
        raise ValueError(f"{folder}: all images are in {only}; name the folder that contains the classes")
    for path, image in zip(paths, images, strict=True):
        if image.shape != images[0].shape:
            shapes = f"{image.shape[:2]} pixels, but {paths[0]} {images[0].shape[:2]}"
            raise ValueError(f"size: {path} has {shapes}; choose a height and a width, to which all are scaled")
    graphs = superpixel_set(
        np.stack(images),
        np.array(labels),
        class_names,
        Split.by_mask(torch.tensor(test)),
        nodes=nodes,
        degree=degree,
        compactness=compactness,
        workers=workers,
        cache=cache,
        files=fingerprint_files(paths, Path(folder)),
    )
    return replace(graphs, names=tuple(path.relative_to(folder).as_posix() for path in paths))


def _list_images(folder: Path, test_every: int) -> tuple[list[Path], list[int], list[str], list[bool]]:
    """Path, label and whether it is for the test, for each image; and the names of the classes."""
    if test_every < 2:
        raise ValueError(f"test_every: expected 2 or more, so that images are left to train on, got {test_every}")
    split_by_folder = (folder / "train").is_dir() and (folder / "test").is_dir()
    parts = [folder / "train", folder / "test"] if split_by_folder else [folder]
    folders = {entry.name for part in parts for entry in part.iterdir() if entry.is_dir()}
    names = sorted(name for name in folders if not name.startswith("."))
    if not split_by_folder and names and set(names) <= PARTS:
        raise ValueError(f"{folder}: its subfolders {', '.join(names)} must be called train and test")
    images: list[tuple[Path, int, bool]] = []
    for part in parts:
        for label, name in enumerate(names):
            inside = list_files(part / name, ANY_IMAGE) if (part / name).is_dir() else {}
            for i, path in enumerate(sorted(inside.values())):
                images.append((path, label, part.name == "test" if split_by_folder else i % test_every == 0))
    if not images:
        raise ValueError(f"{folder}: no images in subfolders, one subfolder per class")
    paths, labels, test = map(list, zip(*images, strict=True))
    return paths, labels, names, test


def read_image(path: Path, size: Sequence[int] | None, color: bool) -> Shaped[np.ndarray, "height width *channels"]:
    """The 8-bit pixels of an image of at most ``MAX_PIXELS``, turned as its EXIF data say, and scaled to ``size``
    (height, width) if given.

    ValueError, naming the file, if it is damaged, too large, of several frames, or not in one of ``FORMATS``; the size
    is checked before any pixel is decoded.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise ImportError("reading images needs Pillow: pip install 'geoskip[images]'") from error
    if size is not None and not (len(size) == 2 and min(size) >= 1 and math.prod(size) <= MAX_PIXELS):
        raise ValueError(f"size: expected a height and a width, {MAX_PIXELS:,} pixels at most, got {size}")
    try:
        # Pillow warns about large images, and about oddities in a file, as soon as it opens it.
        with warnings.catch_warnings(action="ignore"), Image.open(BytesIO(read_bytes(path)), formats=FORMATS) as image:
            if math.prod(image.size) > MAX_PIXELS:
                raise ReadError(f"{image.width} × {image.height} pixels, and at most {MAX_PIXELS:,} are read")
            if getattr(image, "is_animated", False) and image.format != "MPO":  # a photograph with its thumbnail
                raise ReadError("it has several frames; store each in a file of its own")
            ImageOps.exif_transpose(image, in_place=True)
            pixels = _eight_bits(image).convert("RGB" if color else "L")
            scaled = pixels if size is None else pixels.resize((size[1], size[0]), Image.Resampling.BILINEAR)
            return np.asarray(scaled)
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # of many types: Pillow's decoders do not agree on any
        # Pillow names the buffer that it has read.
        fault = re.sub(r" <_io.BytesIO.*", "", str(error))
        raise ValueError(f"{path}: not an image that can be read: {fault}") from error


def _eight_bits(image: Any) -> Any:
    """The image with 8 bits per channel. Pillow's ``convert`` would clip other ranges, and show hidden colors."""
    from PIL import Image

    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ReadError("its pixels have 32 bits, whose range is unknown; store it with 8 or 16 bits")
    if image.has_transparency_data and image.convert("RGBA").getextrema()[3][0] < 255:
        raise ReadError("it has transparent pixels, which have no intensity; store it with a background")
    return image
