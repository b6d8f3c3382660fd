"""MNIST and Fashion-MNIST as graphs of superpixels, from their four IDX files, which are downloaded if missing."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import logging
import math
import struct
import time
import urllib.error
import urllib.request
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from geoskip.data.catalog import FASHION_MNIST, MNIST
from geoskip.data.declaration import IDX_FILES, IdxDataSet, MissingData
from geoskip.data.graph_sets import GraphSet
from geoskip.data.image_sets import MNIST_DEGREE, check_superpixels, superpixel_set
from geoskip.data.mesh_sets import Split
from geoskip.data.superpixels import COMPACTNESS
from geoskip.records.files import atomic_write
from geoskip.records.reading import ReadError
from geoskip.shapes import Int, Shaped

log = logging.getLogger(__name__)

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
CLOTHES = "T-shirt/top, trouser, pullover, dress, coat, sandal, shirt, sneaker, bag, ankle boot"
CLASSES = {"mnist": tuple("0123456789"), "fashion-mnist": tuple(CLOTHES.split(", "))}
MAX_BYTES = 4 << 30
GROWTH = 1100  # gzip cannot compress by more than 1032
ATTEMPTS = 4
PAUSE_SECONDS = 1.0
TIMEOUT_SECONDS = 30.0


class DownloadError(OSError):
    """A file that could not be downloaded; the message says why, and how to do it by hand."""


def mnist(
    folder: str | Path | None = None,
    *,
    nodes: int = 75,
    degree: float = MNIST_DEGREE,
    compactness: float = COMPACTNESS,
    download: bool = True,
    workers: int | None = None,
    cache: Path | None = None,
    data_set: IdxDataSet = MNIST,
) -> GraphSet:
    """MNIST as graphs of superpixels; its test images are the test set.

    ``folder`` contains the four IDX files, gzipped or not. By default they are looked for in the data folder, and
    downloaded to it if they are missing. ``nodes``, ``degree`` and ``compactness``: see
    :func:`geoskip.data.superpixel_set`.
    """
    check_superpixels(nodes, degree, compactness)  # before any download
    images, labels, split = read_images(folder, data_set, download)
    return superpixel_set(
        images,
        labels,
        CLASSES[data_set.name],
        split,
        nodes=nodes,
        degree=degree,
        compactness=compactness,
        workers=workers,
        cache=cache,
    )


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
            if not (target := data_set.folder / f"{name}.gz").is_file():
                fetch(f"{data_set.url}/{name}.gz", *checksum, target)
        paths = data_set.find_all()
    train, train_labels, test, test_labels = (read_idx(path, 3 if "images" in path.name else 1) for path in paths)
    num_classes = len(CLASSES[data_set.name])
    for path, images, labels in ((paths[1], train, train_labels), (paths[3], test, test_labels)):
        if len(images) != len(labels):
            raise ReadError(f"{path}: {len(labels)} labels for {len(images)} images")
        if labels.max(initial=0) >= num_classes:
            raise ReadError(f"{path}: label {labels.max()}, but there are {num_classes} classes")
    if train.shape[1:] != test.shape[1:]:
        raise ReadError(f"{paths[2]}: images of {test.shape[1:]} pixels, but {train.shape[1:]} for training")
    labels = np.concatenate([train_labels, test_labels]).astype(np.int64)
    return np.concatenate([train, test]), labels, Split.leading(len(labels), len(train))


def read_idx(path: Path, num_axes: int) -> Shaped[np.ndarray, ...]:
    """The bytes of an IDX file as an array of ``num_axes`` axes (3 for images, 1 for labels).

    The format: two zero bytes, type 8 (unsigned byte), the number of axes, each size in four bytes (big-endian), then
    the data. The data must be exactly as long as the sizes say; no more than that is ever unpacked.
    """
    with path.open("rb") as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path, "rb") if is_gzip else path.open("rb") as stream:
            return _parse_idx(stream, path, num_axes)
    except (gzip.BadGzipFile, zlib.error, EOFError, struct.error, OverflowError) as error:
        raise ReadError(f"{path}: damaged: {error}") from error


def _parse_idx(file: gzip.GzipFile | io.BufferedReader, path: Path, num_axes: int) -> np.ndarray:
    magic = file.read(4)
    if magic != bytes([0, 0, 8, num_axes]):
        raise ReadError(f"{path}: not an IDX file of bytes with {num_axes} axes (it begins with {magic.hex(' ')})")
    shape = struct.unpack(f">{num_axes}I", file.read(4 * num_axes))
    size = math.prod(shape)
    if size > min(MAX_BYTES, GROWTH * path.stat().st_size):
        raise ReadError(f"{path}: claims {size:,} bytes of data")
    data = file.read(size + 1)
    if len(data) != size:
        fault = "fewer" if len(data) < size else "more"
        raise ReadError(f"{path}: its header, shape {shape}, asks for {size:,} bytes of data, but it has {fault}")
    return np.frombuffer(bytearray(data), dtype=np.uint8).reshape(shape)


def fetch(url: str, num_bytes: int, sha256: str, target: Path) -> None:
    """Download a file and write it if its size and checksum are right; DownloadError if that fails.

    TLS certificates are verified, as Python does by default.
    """
    fault = ""
    for attempt in range(ATTEMPTS):
        log.info("%s: %s", url, f"{fault}; trying again" if attempt else f"downloading {num_bytes / 1e6:.1f} MB")
        time.sleep(PAUSE_SECONDS * attempt)
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
                data = response.read(num_bytes + 1)
        except urllib.error.HTTPError as error:
            error.close()
            fault = str(error)
            if error.code < 500:
                break
        except (OSError, http.client.HTTPException) as error:
            # <urlopen error [Errno -2] Name or service not known>
            fault = getattr(getattr(error, "reason", None), "strerror", None) or str(error)
        else:
            if len(data) == num_bytes and hashlib.sha256(data).hexdigest() == sha256:
                atomic_write(target, data)
                return
            fault = f"the {len(data):,} bytes that were received do not match the sha256"
    raise DownloadError(f"{url}: cannot be downloaded ({fault}); put the file at {target} yourself") from None
