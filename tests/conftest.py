"""Fixtures for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import jaxtyping
import pytest


def pytest_configure(config: pytest.Config) -> None:
    """PyTorch Geometric, and inductor, meet torch's own deprecation of TorchScript when they are imported."""
    config.addinivalue_line("filterwarnings", r"ignore:`torch\.jit\.\w+` is deprecated:DeprecationWarning")


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Without the shape checker, which would refuse bad input before the code under test sees it."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
