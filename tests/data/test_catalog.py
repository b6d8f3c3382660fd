"""Options of data sets: what is declared is what the loaders take, and what commands and configurations accept."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoskip.data.bodies import bodies
from geoskip.data.catalog import DATA_SETS, FOLDERS, KINDS, OPTIONS, DataSet, absolute
from geoskip.data.coma import coma
from geoskip.data.faces import faces
from geoskip.data.faust import faust
from geoskip.data.folder import correspondence_folder, mesh_folder
from geoskip.data.images import image_folder
from geoskip.data.mixed_faces import mixed_faces
from geoskip.data.mnist import mnist
from geoskip.data.moving_bodies import moving_bodies
from geoskip.data.published import published_superpixels
from geoskip.data.remeshed_bodies import remeshed_bodies
from geoskip.data.slic import Slic
from geoskip.data.superpixels import Recipe
from tests.cli.test_cli import run

LOADERS: dict[str, Any] = {
    "faces": faces,
    "mixed-faces": mixed_faces,
    "moving-bodies": moving_bodies,
    "coma": coma,
    "bodies": bodies,
    "remeshed-bodies": remeshed_bodies,
    "faust": faust,
    "superpixels": mnist,
    "mnist": mnist,
    "fashion-mnist": mnist,
    "published-superpixels": published_superpixels,
}
FOLDER_LOADERS = {
    "reconstruction": mesh_folder,
    "correspondence": correspondence_folder,
    "classification": image_folder,
}
# Options that are parts of a recipe, and one that has another name in Python.
ELSEWHERE = {
    "nodes": Slic().num_segments,
    "compactness": Slic().compactness,
    "degree": Recipe().mean_degree,
    "download": True,
}
ALL: list[tuple[DataSet, Any]] = [(DATA_SETS[name], loader) for name, loader in LOADERS.items()]
ALL += [(FOLDERS[task], loader) for task, loader in FOLDER_LOADERS.items()]


@pytest.mark.parametrize(("data_set", "loader"), ALL)
def test_declared_options_are_those_of_the_loader(data_set: DataSet, loader: Any) -> None:
    arguments = signature(loader).parameters
    for option in data_set.options:
        if option.name in ELSEWHERE:
            continue
        assert option.name in arguments
        if isinstance(option.default, int | float):
            assert arguments[option.name].default == option.default


def test_every_set_is_checked() -> None:
    assert DATA_SETS.keys() == LOADERS.keys()
    assert FOLDERS.keys() == FOLDER_LOADERS.keys()


def test_one_name_means_the_same_everywhere() -> None:
    for data_set, _ in ALL:
        for option in data_set.options:
            assert (option.kind, option.help) == (OPTIONS[option.name].kind, OPTIONS[option.name].help)


@pytest.mark.parametrize(
    "name", ["faces", "mixed-faces", "moving-bodies", "bodies", "remeshed-bodies", "coma", "faust", "superpixels"]
)
def test_train_takes_every_option_of_make(name: str) -> None:
    """Apart from --geodesics, which only fills the cache, and the place, which is an argument there."""
    flags = [
        set(re.findall(r"(--[a-z][a-z-]*)", run(*command, "--help").output))
        for command in (("data", "make", name), ("train",))
    ]
    renamed = {"--seed": "--data-seed"}
    assert {renamed.get(flag, flag) for flag in flags[0] - {"--geodesics", "--help"}} <= flags[1]


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


@pytest.mark.parametrize("name", OPTIONS)
@given(data=st.data())
def test_values_of_the_kind_are_accepted(name: str, data: st.DataObject) -> None:
    option = OPTIONS[name]
    value = data.draw(VALUES[option.kind])
    assert option.checked(value) == (Path(value) if option.kind is Path else value)


@pytest.mark.parametrize("name", OPTIONS)
@given(value=JSON | st.dictionaries(st.text(), JSON))
def test_other_values_are_refused_by_name(name: str, value: Any) -> None:
    option = OPTIONS[name]
    try:
        option.checked(value)
    except ValueError:
        with pytest.raises(ValueError, match=rf"^data_options\.{name}: expected "):
            option.checked(value)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"nodes": 40}, r"data_options\.nodes: bodies has no such option; it has identities, poses, verts, seed"),
        ({"identities": "ten"}, r"data_options\.identities: expected a whole number, got 'ten'"),
        ({"identities": 0}, r"data_options\.identities: expected 1 or more, got 0"),
        ({"recipe": {"slic": 3}}, r"data_options\.recipe: bodies has no such option"),
        ({"idntities": 3}, "data_options: bodies: .*idntities"),
    ],
)
def test_what_does_not_fit_is_named(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        DATA_SETS["bodies"].read("bodies", options)


def test_paths_that_exist_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "meshes").mkdir()
    (tmp_path / "faces").mkdir()
    assert absolute("meshes", {"template": "meshes", "unit_mm": 1}) == (
        str(tmp_path / "meshes"),
        {"template": str(tmp_path / "meshes"), "unit_mm": 1},
    )
    assert absolute("faces", {"place": "nowhere"}) == ("faces", {"place": "nowhere"})
    assert KINDS.keys() == VALUES.keys()


def test_a_path_with_the_name_of_no_user_is_an_ordinary_name() -> None:
    from geoskip.records.files import expand_user

    assert expand_user("~nobody-of-this-name/meshes") == Path("~nobody-of-this-name/meshes")
    assert expand_user("~/meshes") == Path.home() / "meshes"
