"""Images to graph sets: from IDX files, folders of images, and the published file; cached and carried."""

import gzip
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from geoskip.data import GraphSet, Split, idx, image_folder, image_sets, mnist, superpixel_set
from geoskip.data.cache import CacheEntry, CacheError, entries
from geoskip.data.catalog import FASHION_MNIST, MNIST
from geoskip.data.declaration import IDX_FILES, MissingData
from geoskip.data.graph_sets import gaussian_weights
from geoskip.data.idx import read_images
from geoskip.data.image_sets import read_image
from geoskip.graphs.coarsening import graclus
from geoskip.records.reading import ReadError

OPTIONS: dict[str, Any] = {"nodes": 12, "degree": 4.0, "workers": 1}


def blobs(count: int, size: int = 12, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows, cols = np.indices((size, size))
    centres = rng.uniform(2, size - 2, (count, 2, 1, 1))
    return np.rint(255 * np.exp(-((rows - centres[:, 0]) ** 2 + (cols - centres[:, 1]) ** 2) / 6)).astype(np.uint8)


def build(cache: Path, count: int = 6, **options: Any) -> GraphSet:
    labels = np.arange(count) % 2
    chosen = OPTIONS | options
    return superpixel_set(blobs(count), labels, ["a", "b"], Split.leading(count, 4), cache=cache, **chosen)


def write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    content = header + array.astype(np.uint8).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_mnist(folder: Path, suffix: str = ".gz", changes: dict[int, np.ndarray] | None = None) -> Path:
    arrays = {0: blobs(4), 1: np.array([0, 1, 2, 9]), 2: blobs(2, seed=1), 3: np.array([3, 4])}
    for number, array in (arrays | (changes or {})).items():
        write_idx(folder / f"{IDX_FILES[number]}{suffix}", array)
    return folder


def test_a_set_holds_what_was_asked_for(tmp_path: Path) -> None:
    graphs = build(tmp_path)
    finest = graphs.levels[0]
    assert len(graphs) == 6
    assert finest.offsets.diff().tolist() == [12] * 6
    assert graphs.x.shape == (72, 1)
    assert 0 <= graphs.x.min() < graphs.x.max() <= 1
    assert finest.pos.min() >= 0
    assert finest.pos.max() <= 11
    assert graphs.labels.tolist() == [0, 1] * 3
    assert graphs.split.test.tolist() == [4, 5]
    training = graphs.select(graphs.split.train).levels[0]
    assert training.edges.shape[1] / (4 * 12) == pytest.approx(4.0, abs=0.1)


def test_positions_and_intensities_are_kept_to_16_bits(tmp_path: Path) -> None:
    graphs = build(tmp_path)
    pos, mean = image_sets.superpixels(blobs(6), 12, workers=1)
    assert np.abs(graphs.levels[0].pos.numpy().reshape(pos.shape) - pos).max() <= 12 / 65535
    assert np.abs(graphs.x.numpy().reshape(mean.shape) - mean).max() <= 1 / 65535


def test_levels_are_graclus_of_the_finest(tmp_path: Path) -> None:
    graphs = build(tmp_path)
    fine, middle, coarse = graphs.levels
    radius = float((fine.pos[fine.edge_index[0]] - fine.pos[fine.edge_index[1]]).norm(dim=1).max())
    # The stored radius is the longest edge of the training graphs, up to rounding.
    expected = graclus(fine.edge_index.numpy(), gaussian_weights(fine, radius / 2), fine.offsets.numpy())
    assert (fine.clusters_in(middle).numpy() == expected.clusters).all()
    assert (middle.offsets.numpy() == expected.offsets).all()
    assert (middle.edge_index.numpy() == expected.edge_index).all()
    for finer, coarser in ((fine, middle), (middle, coarse)):
        clusters = finer.clusters_in(coarser)
        for vertex in range(len(coarser.pos)):
            torch.testing.assert_close(coarser.pos[vertex], finer.pos[clusters == vertex].mean(0))
        assert (coarser.graph_of_vertex[clusters] == finer.graph_of_vertex).all()


def test_a_second_load_is_the_same_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build(tmp_path)
    monkeypatch.setattr(image_sets, "superpixels", None)
    second = build(tmp_path)
    assert torch.equal(first.x, second.x)
    for a, b in zip(first.levels, second.levels, strict=True):
        assert torch.equal(a.pos, b.pos)
        assert torch.equal(a.edges, b.edges)
        assert torch.equal(a.edge_offsets, b.edge_offsets)


def test_other_options_are_other_entries(tmp_path: Path) -> None:
    for options in ({}, {"nodes": 13}, {"degree": 3.0}, {"compactness": 0.5}):
        build(tmp_path, **options)
    assert len(entries(tmp_path)) == 4


def test_an_entry_that_is_no_set_of_superpixels_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path)
    monkeypatch.setattr(image_sets, "cached", lambda *args, **options: CacheEntry({}))
    with pytest.raises(CacheError, match=r"the cache entry superpixels-\w+ is not a set of superpixels"):
        build(tmp_path)


@pytest.mark.parametrize(("place", "suffix"), [(".", ".gz"), (".", ""), ("raw", ""), ("MNIST/raw", ".gz")])
def test_mnist_from_a_folder(tmp_path: Path, place: str, suffix: str) -> None:
    write_mnist(tmp_path / place, suffix)
    images, labels, split = read_images(tmp_path)
    assert (images == np.concatenate([blobs(4), blobs(2, seed=1)])).all()
    assert labels.tolist() == [0, 1, 2, 9, 3, 4]
    assert split.test.tolist() == [4, 5]


def test_mnist_as_graphs(tmp_path: Path) -> None:
    graphs = mnist(write_mnist(tmp_path / "m"), **OPTIONS, cache=tmp_path / "cache")
    assert graphs.class_names == tuple("0123456789")
    assert len(graphs.split.train) == 4


def test_missing_files_are_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path)
    (tmp_path / f"{IDX_FILES[1]}.gz").unlink()
    with pytest.raises(
        MissingData, match=rf"MNIST superpixels: {IDX_FILES[1]} not found .* to do it yourself, fetch https://"
    ):
        read_images(tmp_path)
    monkeypatch.setenv("GEOSKIP_DATA", str(tmp_path / "empty"))
    with pytest.raises(MissingData, match="Fashion-MNIST superpixels: train-images"):
        read_images(data_set=FASHION_MNIST, download=False)


def test_missing_files_are_downloaded_to_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetch(url: str, num_bytes: int, sha256: str, target: Path) -> None:
        asked.append(url)
        if len(asked) == 4:
            write_mnist(target.parent)

    monkeypatch.setenv("GEOSKIP_DATA", str(tmp_path))
    monkeypatch.setattr(idx, "fetch", fetch)
    assert len(read_images()[0]) == 6
    assert asked == [f"{MNIST.url}/{name}.gz" for name in IDX_FILES]
    read_images()
    assert len(asked) == 4


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({1: np.arange(3)}, "3 labels for 4 images"),
        ({3: np.array([1, 10])}, "label 10, but there are 10 classes"),
        ({2: blobs(2, 13)}, r"images of \(13, 13\) pixels"),
    ],
)
def test_idx_files_that_do_not_fit_are_refused(tmp_path: Path, changes: dict[int, np.ndarray], fault: str) -> None:
    with pytest.raises(ReadError, match=fault):
        read_images(write_mnist(tmp_path, changes=changes))


def write_images(folder: Path, names: list[str], mode: str = "L", size: int = 12) -> Path:
    for seed, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(blobs(1, size, seed)[0]).convert(mode).save(folder / name)
    return folder


def test_a_folder_of_images_is_split_within_each_class(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", [f"{c}/{i}.png" for c in ("cat", "dog") for i in range(6)])
    graphs = image_folder(folder, **OPTIONS, test_every=3, cache=tmp_path / "cache")
    assert graphs.class_names == ("cat", "dog")
    assert graphs.labels.tolist() == [0] * 6 + [1] * 6
    assert graphs.split.test.tolist() == [0, 3, 6, 9]
    assert graphs.names == tuple(f"{c}/{i}.png" for c in ("cat", "dog") for i in range(6))


def test_hidden_files_and_folders_are_no_images_and_no_classes(tmp_path: Path) -> None:
    """As Jupyter and macOS leave them; links to folders are followed."""
    names = [*(f"cat/{i}.png" for i in range(3)), ".ipynb_checkpoints/0-checkpoint.png", "cat/.ipynb_checkpoints/0.png"]
    folder = write_images(tmp_path / "images", names)
    (folder / "cat" / "._0.png").write_bytes(b"resource fork")
    (folder / "dog").symlink_to(write_images(tmp_path / "elsewhere", [f"more/{i}.png" for i in range(3)]))
    (folder / "cat" / "linked").symlink_to(folder / "dog" / "more")
    graphs = image_folder(folder, **OPTIONS, cache=tmp_path / "cache")
    assert graphs.class_names == ("cat", "dog")
    assert graphs.labels.tolist() == [0] * 6 + [1] * 3


def test_a_folder_with_train_and_test_is_split_as_it_says(tmp_path: Path) -> None:
    names = ["train/cat/0.png", "train/dog/0.png", "train/dog/1.png", "test/dog/0.png"]
    graphs = image_folder(write_images(tmp_path / "i", names), **OPTIONS, cache=tmp_path / "cache")
    assert graphs.labels.tolist() == [0, 1, 1, 1]
    assert graphs.split.test.tolist() == [3]


def test_colours_and_sizes(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "i", ["a/0.png", "b/1.png"], "RGB")
    write_images(folder, ["a/2.png"], "RGB", size=16)
    with pytest.raises(ValueError, match=r"^size: .*2\.png has .*16.* pixels, but .*0\.png .*12"):
        image_folder(folder, **OPTIONS)
    graphs = image_folder(folder, **OPTIONS, size=(10, 14), color=True, cache=tmp_path / "cache")
    assert graphs.x.shape == (36, 3)
    assert graphs.levels[0].pos[:, 0].max() > 10 > graphs.levels[0].pos[:, 1].max()


def test_folders_that_hold_no_images_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(ValueError, match="no images in subfolders"):
        image_folder(tmp_path)
    (tmp_path / "a" / "x.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"x\.png: not an image that can be read: cannot identify image file$"):
        image_folder(tmp_path)
    with pytest.raises(ValueError, match="test_every: expected 2 or more"):
        image_folder(tmp_path, test_every=1)


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_sixteen_bits_keep_their_intensities(tmp_path: Path, suffix: str) -> None:
    pixels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    path = tmp_path / f"deep.{suffix}"
    Image.fromarray(pixels.astype(np.uint16) * 257).save(path)
    np.testing.assert_array_equal(read_image(path, None, color=False), pixels)
    assert read_image(path, None, color=True).shape == (16, 16, 3)


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_photographs_are_turned_as_they_say(tmp_path: Path, suffix: str, orientation: int) -> None:
    upright = np.arange(6, dtype=np.uint8).reshape(2, 3).repeat(16, 0).repeat(16, 1) * 40
    # How a camera stores an upright image, by the number in its EXIF data.
    stored = [upright, upright[:, ::-1], upright[::-1, ::-1], upright[::-1], upright.T]
    stored += [upright.T[::-1], upright.T[::-1, ::-1], upright.T[:, ::-1]]
    exif = Image.Exif()
    exif[0x112] = orientation
    Image.fromarray(np.ascontiguousarray(stored[orientation - 1])).save(tmp_path / f"a.{suffix}", exif=exif)
    pixels = read_image(tmp_path / f"a.{suffix}", None, color=False)
    np.testing.assert_allclose(pixels, upright, atol=4)


def test_sixteen_bits_are_turned_too(tmp_path: Path) -> None:
    upright = np.arange(6).reshape(2, 3) * 40
    exif = Image.Exif()
    exif[0x112] = 6
    Image.fromarray(upright.T[::-1].astype(np.uint16) * 257).save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(read_image(tmp_path / "a.png", None, color=False), upright)


@pytest.mark.parametrize("suffix", ["gif", "tif", "webp", "png"])
def test_images_of_several_frames_are_refused(tmp_path: Path, suffix: str) -> None:
    first, second = (Image.new("L", (8, 8), value) for value in (10, 200))
    first.save(tmp_path / f"a.{suffix}", save_all=True, append_images=[second])
    with pytest.raises(ValueError, match=rf"a\.{suffix}: .* it has several frames; store each in a file of its own"):
        read_image(tmp_path / f"a.{suffix}", None, color=False)


def test_pixels_without_a_known_intensity_are_refused(tmp_path: Path) -> None:
    """Pillow would show them all as black."""
    Image.fromarray(np.full((4, 4), 0.5, np.float32)).save(tmp_path / "real.tif")
    Image.new("RGBA", (4, 4), (0, 0, 0, 10)).save(tmp_path / "clear.png")
    Image.new("RGBA", (4, 4), (9, 9, 9, 255)).save(tmp_path / "opaque.png")
    for name, fault in {"real.tif": "32 bits", "clear.png": "transparent pixels"}.items():
        with pytest.raises(ValueError, match=rf"{name}: .*{fault}"):
            read_image(tmp_path / name, None, color=False)
    assert (read_image(tmp_path / "opaque.png", None, color=False) == 9).all()


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        (["train/a/0.png", "val/b/1.png"], r"subfolders train, val must be called train and test"),
        (["all/a/0.png", "all/b/1.png"], r"all images are in all; name the folder that contains the classes"),
        (["train/all/a/0.png", "test/all/b/1.png"], r"all images are in all"),
    ],
)
def test_subfolders_that_are_not_classes_are_refused(tmp_path: Path, files: list[str], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        image_folder(write_images(tmp_path / "i", files), **OPTIONS)


def test_large_images_are_refused_without_a_warning(tmp_path: Path) -> None:
    """Pillow warns of them when it opens them; training and ``geoskip apply`` have the same limit."""
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / "0.png"
    Image.new("1", (12_000, 12_000)).save(path)
    for read in (lambda: image_folder(tmp_path), lambda: read_image(path, None, color=False)):
        with (
            warnings.catch_warnings(record=True, action="always") as warned,
            pytest.raises(ValueError, match=r"0\.png: .* at most"),
        ):
            read()
        assert not warned


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("size", [(1,), (0, 5), (1 << 20, 1 << 20), (1, 2, 3)])
def test_sizes_that_no_image_has_are_refused(tmp_path: Path, size: Any) -> None:
    folder = write_images(tmp_path, ["a/0.png"])
    with pytest.raises(ValueError, match="size: expected a height and a width"):
        read_image(folder / "a" / "0.png", size, color=False)


def test_an_image_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_images(tmp_path, ["a/0.png"])
    monkeypatch.setattr(image_sets, "MAX_PIXELS", 100)
    with pytest.raises(ValueError, match=r"0\.png: not an image that can be read: .* pixels, and at most 100 are read"):
        image_folder(folder)


def test_content_is_that_of_the_image_files(tmp_path: Path) -> None:
    """Not of their pixels, which depend on the version of the decoder."""
    names = [f"{c}/{i}.png" for c in ("cat", "dog") for i in range(3)]
    cache = tmp_path / "cache"
    folders = [write_images(tmp_path / "one", names), write_images(tmp_path / "same", names)]
    folders.append(write_images(tmp_path / "other", [*names[1:], names[0]]))
    contents = [image_folder(folder, **OPTIONS, cache=cache).content for folder in folders]
    assert contents[0] == contents[1] != contents[2]
    assert image_folder(folders[0], nodes=12, degree=3.0, workers=1, cache=cache).content not in contents
