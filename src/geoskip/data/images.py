"""A folder of images, one subfolder per class, as superpixel graphs."""

import math
import warnings
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from geoskip.data.cache import fingerprint_files
from geoskip.data.graph_set import GraphSet
from geoskip.data.slic import Slic
from geoskip.data.split import Split
from geoskip.data.superpixels import MNIST_DEGREE, Recipe, read_superpixels, superpixel_set
from geoskip.records.reading import ReadError, read_bytes
from geoskip.shapes import Shaped

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
MAX_PIXELS = 1 << 26


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
    """Images in ``folder/<class>/…`` as graphs; the class is the name of the subfolder.

    A folder with the subfolders ``train`` and ``test`` (classes below) is split as it says; otherwise every
    ``test_every``-th image of each class, in sorted order, is for the test. Images are gray unless ``color`` (three
    features, the mean of each channel), and must be of one size unless they are scaled to a ``size`` (height, width).
    ``nodes``, ``degree`` and ``compactness`` as in :class:`geoskip.data.superpixels.Recipe`.
    """
    recipe = Recipe(Slic(nodes, compactness), degree)
    paths, labels, class_names, test = _listing(Path(folder), test_every)
    images = np.stack([read_image(path, size, color) for path in paths]) if size else _read_equal(paths, color)
    split = Split.by_mask(torch.tensor(test))
    content = fingerprint_files(paths, Path(folder))
    return superpixel_set(
        images, np.array(labels), class_names, split, recipe, workers=workers, cache=cache, files=content
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


def _listing(folder: Path, test_every: int) -> tuple[list[Path], list[int], list[str], list[bool]]:
    if test_every < 2:
        raise ValueError(f"test_every={test_every} leaves nothing to train on: at least 2")
    split_by_folder = (folder / "train").is_dir() and (folder / "test").is_dir()
    parts = [folder / "train", folder / "test"] if split_by_folder else [folder]
    names = sorted({entry.name for part in parts for entry in part.iterdir() if entry.is_dir()})
    paths: list[Path] = []
    labels: list[int] = []
    test: list[bool] = []
    for part in parts:
        for label, name in enumerate(names):
            found = sorted(path for path in (part / name).rglob("*") if path.suffix.lower() in SUFFIXES)
            paths += found
            labels += [label] * len(found)
            test += [part.name == "test" if split_by_folder else i % test_every == 0 for i in range(len(found))]
    if not paths:
        raise ValueError(f"{folder}: no images in subfolders, one subfolder per class")
    return paths, labels, names, test


def _read_equal(paths: list[Path], color: bool) -> Shaped[np.ndarray, "images height width *channels"]:
    images = [read_image(path, None, color) for path in paths]
    for path, image in zip(paths, images, strict=True):
        if image.shape != images[0].shape:
            shapes = f"{image.shape[:2]} pixels, but {paths[0].name} has {images[0].shape[:2]}"
            raise ValueError(f"{path}: {shapes}; pass size=(height, width) to scale all images to one size")
    return np.stack(images)


def read_image(path: Path, size: Sequence[int] | None, color: bool) -> Shaped[np.ndarray, "height width *channels"]:
    """The 8-bit pixels of an image of at most ``MAX_PIXELS``, scaled to ``size`` (height, width) if it is given.

    The only reader of images in the package. ValueError, naming the file, for what is not an image of a format in
    ``FORMATS``, is damaged, or is too large; the size is compared before any pixel is decoded.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("reading images needs Pillow: pip install geoskip[images]") from error
    if size is not None and not (len(size) == 2 and min(size) >= 1 and math.prod(size) <= MAX_PIXELS):
        raise ValueError(f"size: images are scaled to a height and a width, {MAX_PIXELS:,} pixels at most, not {size}")
    try:
        # Pillow warns of large images, and of oddities in a file, as soon as it opens it.
        with warnings.catch_warnings(action="ignore"), Image.open(BytesIO(read_bytes(path)), formats=FORMATS) as image:
            if math.prod(image.size) > MAX_PIXELS:
                raise ReadError(f"{image.width} × {image.height} pixels, and at most {MAX_PIXELS:,} are read")
            pixels = image.convert("RGB" if color else "L")
            return np.asarray(pixels if size is None else pixels.resize(size[::-1], Image.Resampling.BILINEAR))
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # of many kinds: Pillow's decoders do not agree on any
        raise ValueError(f"{path}: not an image that can be read: {error}") from error
