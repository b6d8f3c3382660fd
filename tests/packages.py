"""Packages of other people, installed in a folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest


def install(folder: Path, name: str, entry_points: Mapping[str, Mapping[str, str]]) -> None:
    """What pip would leave in ``folder`` for a package ``name``: its entry points, by group and name."""
    installed = folder / f"{name}-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    groups = [
        f"[{group}]\n" + "".join(f"{short} = {path}\n" for short, path in names.items())
        for group, names in entry_points.items()
    ]
    (installed / "entry_points.txt").write_text("\n".join(groups))


@contextmanager
def importable(folder: Path, module: str, source: str, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Within the context, ``module`` (``package.name``) with this source can be imported from ``folder``."""
    package, _, name = module.partition(".")
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").write_text("")
    (folder / package / f"{name}.py").write_text(source)
    patch.syspath_prepend(folder)
    yield
    for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == package]:
        del sys.modules[loaded]
