"""docs/api.md lists the public names, no more and no less."""

from __future__ import annotations

import inspect
import re
from importlib import import_module

import pytest

import geoskip
from tests.docs.pages import DOCS

PAGE = (DOCS / "api.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"^## `([\w.]+)`\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)


def listed(section: str) -> list[str]:
    """The names in the first column of a section's table."""
    return [name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]


def test_public_packages_are_listed() -> None:
    names = [
        "blocks",
        "data",
        "graphs",
        "inference",
        "kernels",
        "meshes",
        "models",
        "operators",
        "pyg",
        "rbf",
        "training",
    ]
    assert {package for package, _ in SECTIONS} == {"geoskip", *(f"geoskip.{name}" for name in names)}


@pytest.mark.parametrize(("package", "section"), SECTIONS, ids=[package for package, _ in SECTIONS])
def test_the_page_lists_what_is_public(package: str, section: str) -> None:
    module, names = import_module(package), listed(section)
    assert sorted(names) == sorted(module.__all__)
    assert all(hasattr(module, name) for name in names)


@pytest.mark.parametrize("name", sorted(set(geoskip.__all__) - {"__version__", "Graph"}))
def test_help_explains_every_argument(name: str) -> None:
    """``Graph`` is made by its class methods."""
    documented = inspect.getdoc(getattr(geoskip, name)) or ""
    for argument in inspect.signature(getattr(geoskip, name)).parameters:
        assert f"\n    {argument}: " in documented


def test_top_level_names_are_the_classes_of_their_packages() -> None:
    from geoskip.blocks import AffineSkip
    from geoskip.models import MeshAutoencoder
    from geoskip.operators import OPERATORS

    assert geoskip.AffineSkip is AffineSkip
    assert geoskip.MeshAutoencoder is MeshAutoencoder
    assert {getattr(OPERATORS.get(name), "__name__", "") for name in OPERATORS.names()} <= set(geoskip.__all__)
    assert set(dir(geoskip)) == set(geoskip.__all__)
    with pytest.raises(AttributeError, match="module 'geoskip' has no attribute 'Missing'"):
        _ = geoskip.Missing
