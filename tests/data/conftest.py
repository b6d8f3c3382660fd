"""Fixtures of the generated data sets."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from geoskip.data import MeshSet


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for the sets of one module."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def check_without_anny(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Checks that a set that was made in ``folder`` is read from there without anny, and that another one needs it."""

    def verts(made: Any) -> np.ndarray:
        return np.asarray(made.verts(torch.arange(3)) if isinstance(made, MeshSet) else made.meshes[-1].verts)

    def check(make: Callable[..., Any], made: Any, **options: Any) -> None:
        assert made.content in {entry.name for entry in folder.iterdir()}
        monkeypatch.setitem(sys.modules, "anny", None)
        assert np.array_equal(verts(make(**options, cache=folder)), verts(made))
        with pytest.raises(ImportError, match=r"pip install 'geoskip\[people\]"):
            make(**options, seed=5, cache=folder)

    return check
