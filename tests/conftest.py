"""Fixtures for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import jaxtyping
import pytest
import torch

# Without a GPU, Triton's kernels run in its interpreter; it must know before it is imported.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_configure(config: pytest.Config) -> None:
    """PyTorch Geometric, and inductor, meet torch's own deprecation of TorchScript when they are imported. On a GPU,
    inductor recommends TensorFloat32, which the tests do without."""
    config.addinivalue_line("filterwarnings", r"ignore:`torch\.jit\.\w+` is deprecated:DeprecationWarning")
    config.addinivalue_line("filterwarnings", r"ignore:TensorFloat32 tensor cores:UserWarning")


@pytest.fixture(autouse=True)
def small_inputs_are_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels are tested with small inputs, for which users get the formulas on the CPU."""
    monkeypatch.setattr("geoskip.kernels.paths.SMALL", 0)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Without the shape checker, which would refuse bad input before the code under test sees it."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
