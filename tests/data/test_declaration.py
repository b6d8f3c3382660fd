"""A data set of another package: declared by one function, used by name in every command, in another process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from geoskip.data import DATA_SETS, DataSet, data_set, find_data_set
from geoskip.data.catalog import absolute, check_data, load_data
from tests.cli.test_cli import run
from tests.packages import importable, install

OWN = """
from pathlib import Path

import torch

from geoskip.data import MeshSet, Split, StoredShapes, data_set
from geoskip.meshes import icosphere


@data_set(task="reconstruction", title="Spheres stretched at random")
def spheres(count: int = 12, seed: int = 0, scale: float = 0.2, place: Path | None = None) -> MeshSet:
    sphere = icosphere(2)
    stretch = torch.randn(count, 1, 3, generator=torch.Generator().manual_seed(seed))
    verts = torch.tensor(sphere.verts).float() * (scale * stretch).exp()
    names = tuple(f"{number:03d}" for number in range(count))
    return MeshSet(sphere, StoredShapes(verts), names, Split.blocks(count, 4, 1), unit_mm=100.0)


def undeclared():
    return 3
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package with a data set, and an entry point for it."""
    folder = tmp_path / "packages"
    folder.mkdir()
    install(folder, "ownpackage", {"geoskip.data": {"spheres": "ownpackage.data:spheres"}})
    monkeypatch.setenv("GEOSKIP_CACHE", str(tmp_path / "cache"))
    with importable(folder, "ownpackage.data", OWN, monkeypatch):
        yield folder


@pytest.mark.parametrize("name", ["spheres", "ownpackage.data:spheres"])
def test_it_is_found_and_loaded_by_name(package: Path, name: str) -> None:
    declared = find_data_set(name)
    assert (declared.name, declared.task) == ("spheres", "reconstruction")
    assert declared.title == "Spheres stretched at random"
    described = {option.name: (option.kind, option.default) for option in declared.options}
    assert described == {"count": (int, 12), "seed": (int, 0), "scale": (float, 0.2), "place": (Path, None)}
    assert len(load_data(name, {"count": 8}, "reconstruction")) == len(declared(count=8)) == 8


def test_what_does_not_fit_is_named(package: Path) -> None:
    name = "ownpackage.data:spheres"
    for options, fault in (
        ({"count": "ten"}, r"data_options\.count: expected a whole number, got 'ten'"),
        ({"radius": 3}, r"data_options\.radius: spheres has no such option; it has count, seed, scale, place"),
    ):
        with pytest.raises(ValueError, match=fault):
            load_data(name, options, "reconstruction")
    with pytest.raises(ValueError, match="is for reconstruction; correspondence trains on bodies"):
        load_data(name, {}, "correspondence")
    with pytest.raises(ValueError, match="undeclared is not a data set; declare it with the decorator"):
        load_data("ownpackage.data:undeclared", {}, "reconstruction")
    with pytest.raises(ValueError, match=r"data: cannot import 'ownpackage.missing:spheres'"):
        load_data("ownpackage.missing:spheres", {}, "reconstruction")


def test_paths_among_its_options_become_absolute(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "ownpackage.data:spheres"
    assert absolute(name, {"place": "packages", "seed": 1}) == (name, {"place": str(package), "seed": 1})


def test_its_status(package: Path) -> None:
    status = {status.name: status for status in check_data()}["spheres"]
    assert (status.path, status.message) == (package / "ownpackage" / "data.py", "Spheres stretched at random")


def test_facts_are_declared_and_registered() -> None:
    @data_set(task="correspondence", title="Shapes", name="my-shapes", files=("shapes.zip",), how="Fetch shapes.zip.")
    def shapes(count: int) -> int:
        return count

    assert isinstance(shapes, DataSet)
    assert shapes(3) == 3
    assert shapes.about == "Shapes, read from shapes.zip."
    with pytest.raises(ValueError, match=r"data_options\.count: required for my-shapes"):
        shapes.read({})
    try:
        assert DATA_SETS.register(shapes) is shapes
        assert find_data_set("my-shapes") is shapes
        assert {status.name: status.path for status in check_data()}["my-shapes"] is None
    finally:
        del DATA_SETS._entries["my-shapes"]


def test_making_it_says_how_to_train_on_it(package: Path) -> None:
    """tests/test_contributing.py runs the other commands, each in a process of its own that only knows the run."""
    name = "ownpackage.data:spheres"
    made = run("data", "make", name, "--count", "16")
    assert made.exit_code == 0, made.output
    assert "16 meshes of 162 vertices" in made.stdout
    assert f"--data {name} --set data_options.count=16" in made.stdout
    options = run("data", "make", name, "--help").stdout
    assert "--count" in options
    assert "completion" not in options
