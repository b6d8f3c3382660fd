"""The built-in data sets: what they declare is what their functions take, where they are found, how they are loaded."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from geoskip.cli import app
from geoskip.data import DATA_SETS, DataSet, catalog, find_data_set
from geoskip.data.cache import CacheEntry, cached
from geoskip.data.catalog import BUILT_IN, COMA, FOLDERS, OPTIONS, Status, absolute, check_data, describe_recipe
from geoskip.data.declaration import IDX_FILES, KINDS, MissingData, Option, data_root, expand_path
from tests.cli.test_cli import run

ALL = [*BUILT_IN.values(), *FOLDERS.values()]
GENERATED = [name for name, data_set in BUILT_IN.items() if data_set.extra == "people"]


@pytest.mark.parametrize("data_set", ALL, ids=lambda data_set: data_set.name)
def test_declared_options_are_arguments_with_the_same_default(data_set: DataSet) -> None:
    path = {
        "geoskip.data.idx:fashion_mnist": "geoskip.data.idx:mnist",
    }.get(str(data_set.function), str(data_set.function))
    module, _, name = path.partition(":")
    arguments = signature(getattr(import_module(module), name)).parameters
    for option in data_set.options:
        assert option.name in arguments
        if isinstance(option.default, int | float):
            assert arguments[option.name].default == option.default


def test_one_name_means_the_same_everywhere() -> None:
    for data_set in ALL:
        for option in data_set.options:
            assert OPTIONS[option.name].kind == option.kind
            assert OPTIONS[option.name].help.startswith(f"{option.help} (")


def test_facts() -> None:
    assert GENERATED == ["faces", "mixed-faces", "moving-bodies", "bodies", "remeshed-bodies"]
    assert find_data_set("superpixels") is find_data_set("mnist")
    assert DATA_SETS.names() == tuple(sorted([*BUILT_IN, "superpixels"]))


@pytest.mark.parametrize(
    "name", ["faces", "mixed-faces", "moving-bodies", "bodies", "remeshed-bodies", "coma", "faust", "superpixels"]
)
def test_train_takes_every_option_of_make(name: str) -> None:
    """Apart from --geodesics, which only fills the cache, and the place, which is an argument there."""
    flags = set(re.findall(r"(--[a-z][a-z-]*)", run("data", "make", name, "--help").output))
    command: Any = typer.main.get_command(app)
    taken = {flag for entry in command.commands["train"].params for flag in (*entry.opts, *entry.secondary_opts)}
    renamed = {"--seed": "--data-seed"}
    assert {renamed.get(flag, flag) for flag in flags - {"--geodesics", "--help"}} <= taken


def test_the_help_of_train_has_the_options_of_own_files_only() -> None:
    """Those of a data set are in the help of ``geoskip data make``."""
    shown = set(re.findall(r"(--[a-z][a-z-]*)", run("train", "--help").output))
    assert {"--unit-mm", "--test", "--template", "--nodes", "--size"} <= shown
    assert not {"--people", "--poses", "--takes", "--data-seed", "--num-vertices", "--download"} & shown


VALUES: dict[Any, Any] = {
    int: st.integers(4, 10**6),
    float: st.floats(0.1, 100) | st.integers(1, 100),
    str: st.text(),
    bool: st.booleans(),
    Path: st.just("somewhere"),
    list[int]: st.lists(st.integers()),
    list[str]: st.lists(st.text()),
}
JSON = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers() | st.text())


@given(option=st.sampled_from(list(OPTIONS.values())), data=st.data())
def test_values_of_the_kind_are_accepted(option: Option, data: st.DataObject) -> None:
    value = data.draw(VALUES[option.kind])
    assert option.checked(value) == (Path(value) if option.kind is Path else value)


@settings(max_examples=300)
@given(option=st.sampled_from(list(OPTIONS.values())), value=JSON | st.dictionaries(st.text(), JSON))
def test_other_values_are_refused_by_name(option: Option, value: Any) -> None:
    expected = refused = f"data_options.{option.name}: expected "
    try:
        option.checked(value)
    except ValueError as error:
        refused = str(error)
    assert refused.startswith(expected)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            {"nodes": 40},
            r"data_options\.nodes: bodies has no such option; it has people, poses, num_vertices",
        ),
        ({"people": "ten"}, r"data_options\.people: expected a whole number, got 'ten'"),
        ({"people": 0}, r"data_options\.people: expected 1 or more, got 0"),
        ({"recipe": {"slic": 3}}, r"data_options\.recipe: bodies has no such option"),
        ({"idntities": 3}, r"data_options\.idntities: bodies has no such option"),
    ],
)
def test_what_does_not_fit_is_named(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        BUILT_IN["bodies"].read(options)


def test_paths_that_exist_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "meshes").mkdir()
    (tmp_path / "faces").mkdir()
    assert absolute("meshes", {"template": "meshes", "unit_mm": 1}) == (
        str(tmp_path / "meshes"),
        {"template": str(tmp_path / "meshes"), "unit_mm": 1},
    )
    assert absolute("faces", {"path": "nowhere"}) == ("faces", {"path": "nowhere"})
    assert set(KINDS) == set(VALUES)


def test_a_path_with_the_name_of_no_user_is_an_ordinary_name() -> None:
    assert expand_path("~nobody-of-this-name/meshes") == Path("~nobody-of-this-name/meshes")
    assert expand_path("~/meshes") == Path.home() / "meshes"


def test_where_the_data_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEOSKIP_DATA", str(tmp_path / "chosen"))
    assert data_root() == tmp_path / "chosen"
    monkeypatch.delenv("GEOSKIP_DATA")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert data_root() == tmp_path / "xdg" / "geoskip"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")  # the standard says to ignore it
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root() == tmp_path / ".local" / "share" / "geoskip"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEOSKIP_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("GEOSKIP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "data"


def test_the_best_file_that_exists_is_found(data: Path) -> None:
    with pytest.raises(MissingData, match=r"COMA_data\.zip or .*COMA_data\. Free for research"):
        COMA.find()
    (data / "coma" / "COMA_data").mkdir(parents=True)
    assert COMA.find() == data / "coma" / "COMA_data"
    (data / "coma" / "COMA_data.zip").touch()
    assert COMA.find() == data / "coma" / "COMA_data.zip"
    assert COMA.find(data) == data


def states() -> dict[str, Status]:
    return {status.name: status for status in check_data()}


def test_nothing_is_there_at_first_and_each_says_what_to_do(data: Path) -> None:
    found = states()
    assert tuple(found) == tuple(BUILT_IN)
    assert all(status.path is None for status in found.values())
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
        assert states()[place.split("/")[0]].path == data / place


@pytest.mark.parametrize("below", ["", "raw", "MNIST/raw"])
def test_images_are_there_when_all_four_files_are(data: Path, below: str) -> None:
    (data / "mnist" / below).mkdir(parents=True)
    for part in IDX_FILES[:3]:
        (data / "mnist" / below / f"{part}.gz").touch()
    assert states()["mnist"].path is None
    assert "MNIST superpixels: t10k-labels-idx1-ubyte not found" in states()["mnist"].message
    (data / "mnist" / below / IDX_FILES[3]).touch()
    assert states()["mnist"].path == data / "mnist" / below


def test_generated_people_are_looked_for_in_the_cache(data: Path, tmp_path: Path) -> None:
    recipe = {"subjects": 2, "expressions": ["a", "b"], "seed": 0, "version": 1}
    for root in (tmp_path / "cache", tmp_path / "other"):
        cached("faces", recipe, lambda: CacheEntry({"verts": np.zeros(3)}), root=root)
    faces = states()["faces"]
    assert faces.message == "Generated faces like those of CoMA: subjects=2 expressions=2 seed=0"
    assert faces.path is not None
    assert faces.path.parent == tmp_path / "cache"
    assert faces.path.is_dir()
    (faces.path / "manifest.json").write_text("{")
    assert states()["faces"].path is None
    assert {status.name: status.path for status in check_data(cache=tmp_path / "other")}["faces"] is not None


def test_a_missing_package_is_named_with_its_extra(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any("pip install" in status.message for status in check_data())
    monkeypatch.setattr(catalog, "find_spec", lambda name: None)
    wanting = {status.name for status in check_data() if "first: pip install 'geoskip[" in status.message}
    assert wanting == {"mnist", "fashion-mnist", *GENERATED}


def test_recipes_in_a_few_words() -> None:
    recipe = {
        "version": 3,
        "slic": {"num_segments": 75, "compactness": 0.25},
        "images": "ab" * 32,
        "classes": list("xyz"),
        "wanted": r"((?:[^/.][^/]*/)*[^/.][^/]*)\.(?:ply|obj)",
    }
    assert describe_recipe(recipe) == "num_segments=75 compactness=0.25 images=abababababab classes=3"
