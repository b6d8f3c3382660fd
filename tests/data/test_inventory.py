"""What is there of every data set, and what to do for the rest."""

from pathlib import Path

import numpy as np
import pytest

from geoskip.data import inventory
from geoskip.data.cache import cached
from geoskip.data.entries import Stored
from geoskip.data.inventory import GENERATED, NAMES, Status, brief, check_data
from geoskip.data.mnist import PARTS


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEOSKIP_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("GEOSKIP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "data"


def states() -> dict[str, Status]:
    return {status.name: status for status in check_data()}


def test_nothing_is_there_at_first_and_each_says_what_to_do(data: Path) -> None:
    found = states()
    assert tuple(found) == NAMES
    assert all(status.place is None for status in found.values())
    for name, place in (("coma", "COMA_data.zip"), ("faust", "MPI-FAUST.zip")):
        assert "registration at https://" in found[name].message
        assert f"Put it at {data / name / place}" in found[name].message
    for name in ("mnist", "fashion-mnist"):
        assert "fetch https://" in found[name].message
        assert f"not found in {data / name}" in found[name].message
    assert "https://data.pyg.org" in found["published-superpixels"].message
    for name in GENERATED:
        assert f"geoskip data make {name}" in found[name].message


def test_archives_are_found_where_they_belong(data: Path) -> None:
    for place in ("coma/COMA_data.zip", "faust/MPI-FAUST", "published-superpixels/MNISTSuperpixels.pt"):
        (data / place).parent.mkdir(parents=True)
        (data / place).touch()
        assert states()[place.split("/")[0]].place == data / place


@pytest.mark.parametrize("below", ["", "raw", "MNIST/raw"])
def test_images_are_there_when_all_four_files_are(data: Path, below: str) -> None:
    (data / "mnist" / below).mkdir(parents=True)
    for part in PARTS[:3]:
        (data / "mnist" / below / f"{part}.gz").touch()
    assert states()["mnist"].place is None
    assert "MNIST: t10k-labels-idx1-ubyte not found" in states()["mnist"].message
    (data / "mnist" / below / PARTS[3]).touch()
    assert states()["mnist"].place == data / "mnist" / below


def test_generated_people_are_looked_for_in_the_cache(data: Path, tmp_path: Path) -> None:
    recipe = {"subjects": 2, "expressions": ["a", "b"], "seed": 0, "version": 1}
    for root in (tmp_path / "cache", tmp_path / "other"):
        cached("faces", recipe, lambda: Stored({"verts": np.zeros(3)}), root=root)
    faces = states()["faces"]
    assert faces.message == "Generated faces: subjects=2 expressions=2 seed=0"
    assert faces.place is not None
    assert faces.place.parent == tmp_path / "cache"
    assert faces.place.is_dir()
    (faces.place / "manifest.json").write_text("{")
    assert states()["faces"].place is None
    assert {status.name: status.place for status in check_data(tmp_path / "other")}["faces"] is not None


def test_a_missing_package_is_named_with_its_extra(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any("pip install" in status.message for status in check_data())
    monkeypatch.setattr(inventory, "find_spec", lambda name: None)
    wanting = {status.name for status in check_data() if "first: pip install geoskip[" in status.message}
    assert wanting == {"mnist", "fashion-mnist", *GENERATED}


def test_recipes_in_a_few_words() -> None:
    recipe = {
        "version": 3,
        "slic": {"num_segments": 75, "compactness": 0.25},
        "images": "ab" * 32,
        "classes": list("xyz"),
        "wanted": r"((?:[^/.][^/]*/)*[^/.][^/]*)\.(?:ply|obj)",
    }
    assert brief(recipe) == "num_segments=75 compactness=0.25 images=abababababab classes=3"
