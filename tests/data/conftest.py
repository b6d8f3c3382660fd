"""Fixtures of the generated data sets."""

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for the sets of one module."""
    return tmp_path_factory.mktemp("cache")
