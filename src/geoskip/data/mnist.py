"""MNIST and Fashion-MNIST as superpixel graphs, from a folder of IDX files or downloaded."""

from pathlib import Path
from typing import Any

import numpy as np

from geoskip.data.catalog import FASHION_MNIST, MNIST
from geoskip.data.declaration import IDX_FILES, IdxDataSet, MissingData
from geoskip.data.download import Remote
from geoskip.data.download import download as fetch
from geoskip.data.graph_set import GraphSet
from geoskip.data.idx import IdxError, read_idx
from geoskip.data.slic import Slic
from geoskip.data.split import Split
from geoskip.data.superpixels import MNIST_DEGREE, Recipe, superpixel_set
from geoskip.shapes import Int, Shaped

# Bytes and sha256 of the four files.
CHECKSUMS = {
    "mnist": [
        (9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        (28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        (1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        (4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ],
    "fashion-mnist": [
        (26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        (29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        (4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        (5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    ],
}
CLASSES = {
    "mnist": tuple("0123456789"),
    "fashion-mnist": (
        *("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
    ),
}


def mnist(
    folder: str | Path | None = None,
    *,
    nodes: int = 75,
    degree: float = MNIST_DEGREE,
    compactness: float = 0.25,
    download: bool = True,
    workers: int | None = None,
    cache: Path | None = None,
    data_set: IdxDataSet = MNIST,
) -> GraphSet:
    """MNIST as graphs of superpixels; its test images are the test set.

    ``folder`` contains the four IDX files, gzipped or not. By default they are looked for in the data folder, and
    downloaded to it if they are missing. ``nodes``, ``degree`` and ``compactness`` as in
    :class:`geoskip.data.superpixels.Recipe`.
    """
    recipe = Recipe(Slic(nodes, compactness), degree)  # before any download: it checks the options
    images, labels, split = read_images(folder, data_set, download)
    return superpixel_set(images, labels, CLASSES[data_set.name], split, recipe, workers=workers, cache=cache)


def fashion_mnist(folder: str | Path | None = None, **options: Any) -> GraphSet:
    """Fashion-MNIST as graphs of superpixels, with the options of :func:`mnist`."""
    return mnist(folder, data_set=FASHION_MNIST, **options)


def read_images(
    folder: str | Path | None = None, data_set: IdxDataSet = MNIST, download: bool = True
) -> tuple[Shaped[np.ndarray, "images height width"], Int[np.ndarray, " images"], Split]:
    """The images with their labels, training images first."""
    try:
        paths = data_set.find_all(folder)
    except MissingData:
        if folder is not None or not download:
            raise
        for name, checksum in zip(IDX_FILES, CHECKSUMS[data_set.name], strict=True):
            fetch(Remote(f"{data_set.url}/{name}.gz", *checksum), data_set.folder / f"{name}.gz")
        paths = data_set.find_all()
    train, train_labels, test, test_labels = (read_idx(path, 3 if "images" in path.name else 1) for path in paths)
    _check(paths, train, train_labels, test, test_labels, len(CLASSES[data_set.name]))
    labels = np.concatenate([train_labels, test_labels]).astype(np.int64)
    return np.concatenate([train, test]), labels, Split.leading(len(labels), len(train))


def _check(
    paths: list[Path],
    train: np.ndarray,
    train_labels: np.ndarray,
    test: np.ndarray,
    test_labels: np.ndarray,
    num_classes: int,
) -> None:
    for path, images, labels in ((paths[1], train, train_labels), (paths[3], test, test_labels)):
        if len(images) != len(labels):
            raise IdxError(f"{path}: {len(labels)} labels for {len(images)} images")
        if labels.max(initial=0) >= num_classes:
            raise IdxError(f"{path}: label {labels.max()}, but there are {num_classes} classes")
    if train.shape[1:] != test.shape[1:]:
        raise IdxError(f"{paths[2]}: images of {test.shape[1:]} pixels, but {train.shape[1:]} for training")
