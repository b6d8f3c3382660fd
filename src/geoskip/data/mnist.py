"""MNIST and Fashion-MNIST as superpixel graphs, from a folder of IDX files or downloaded."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geoskip.data.download import Remote, download
from geoskip.data.graph_set import GraphSet
from geoskip.data.idx import IdxError, read_idx
from geoskip.data.sources import MissingData, Source
from geoskip.data.split import Split
from geoskip.data.superpixels import Recipe, superpixel_set
from geoskip.shapes import Int, Shaped

PARTS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@dataclass(frozen=True)
class IdxSet:
    """Images and labels in four IDX files: where they lie, where they can be had, what the classes are called."""

    source: Source
    class_names: tuple[str, ...]
    remotes: tuple[Remote, ...]


def _idx_set(name: str, title: str, base: str, files: list[tuple[int, str]], class_names: tuple[str, ...]) -> IdxSet:
    remotes = [Remote(f"{base}/{part}.gz", *file) for part, file in zip(PARTS, files, strict=True)]
    how = f"It is downloaded on first use unless that is turned off; by hand, fetch {base}/{{{','.join(PARTS)}}}.gz."
    source = Source(name, title, (f"{PARTS[0]}.gz", PARTS[0]), how)
    return IdxSet(source, class_names, tuple(remotes))


MNIST = _idx_set(
    "mnist",
    "MNIST",
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    [
        (9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        (28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        (1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        (4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ],
    tuple("0123456789"),
)
FASHION = _idx_set(
    "fashion-mnist",
    "Fashion-MNIST",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    [
        (26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        (29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        (4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        (5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    ],
    ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
)


def mnist(
    folder: str | Path | None = None,
    recipe: Recipe | None = None,
    *,
    idx_set: IdxSet = MNIST,
    allow_download: bool = True,
    workers: int | None = None,
    cache: Path | None = None,
) -> GraphSet:
    """MNIST, or with ``idx_set=FASHION`` Fashion-MNIST, as graphs of superpixels; the test images are the test set.

    ``folder`` holds the four IDX files, gzipped or not. Without it they are looked for in the data folder, and
    downloaded to it when they are not there.
    """
    images, labels, split = read_images(folder, idx_set, allow_download)
    return superpixel_set(images, labels, idx_set.class_names, split, recipe, workers=workers, cache=cache)


def read_images(
    folder: str | Path | None = None, idx_set: IdxSet = MNIST, allow_download: bool = True
) -> tuple[Shaped[np.ndarray, "images height width"], Int[np.ndarray, " images"], Split]:
    """The images with their labels, training images first."""
    place = idx_set.source.folder if folder is None else Path(folder)
    if folder is None and allow_download and None in (_find(place, part) for part in PARTS):
        for part, remote in zip(PARTS, idx_set.remotes, strict=True):
            download(remote, place / f"{part}.gz")
    paths = find_parts(place, idx_set)
    train, train_labels, test, test_labels = (read_idx(path, 3 if "images" in path.name else 1) for path in paths)
    _check(paths, train, train_labels, test, test_labels, len(idx_set.class_names))
    labels = np.concatenate([train_labels, test_labels]).astype(np.int64)
    return np.concatenate([train, test]), labels, Split.leading(len(labels), len(train))


def find_parts(folder: Path, idx_set: IdxSet) -> list[Path]:
    """The four files of ``PARTS`` in a folder; MissingData names those that are not there."""
    found = {part: _find(folder, part) for part in PARTS}
    if missing := [part for part, path in found.items() if path is None]:
        fault = f"{idx_set.source.title}: {', '.join(missing)} not found in {folder}"
        raise MissingData(f"{fault}. {idx_set.source.how} Put them in that folder.")
    return [path for path in found.values() if path is not None]


def _find(folder: Path, part: str) -> Path | None:
    """The file under any of its usual names, in the folder or where torchvision keeps it below."""
    for place in (folder, folder / "raw", folder / "MNIST" / "raw", folder / "FashionMNIST" / "raw"):
        for name in (part, f"{part}.gz", part.replace("-idx", ".idx")):
            if (place / name).is_file():
                return place / name
    return None


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
