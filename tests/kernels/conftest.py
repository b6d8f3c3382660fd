"""Fixtures of the tests of kernels."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pkgutil import iter_modules

import pytest
import torch

from geoskip.kernels import triton


@pytest.fixture
def poisoned() -> Iterator[None]:
    """Memory that nobody has written holds NaN."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def fresh_plans() -> Iterator[None]:
    """Tiles and launches are chosen again, and what the test makes of them is forgotten."""
    _forget_plans()
    yield
    _forget_plans()


def _forget_plans() -> None:
    for module in iter_modules(triton.__path__, f"{triton.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


@pytest.fixture
def in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products in halves however small they are, and in chunks that are small as well."""
    halves = importlib.import_module("geoskip.kernels.triton.halves")
    monkeypatch.setattr(halves, "ENOUGH_PRODUCTS", 0)
    monkeypatch.setattr(halves, "CHUNK", 64)
