"""Which device a name stands for."""

from __future__ import annotations

import pytest
import torch

from geoskip.training.devices import choose_device


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """A machine that seems to have two GPUs, and the devices that were made the current one."""
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    return chosen


def test_a_gpu_that_is_named_becomes_the_current_one(current: list[torch.device]) -> None:
    """Kernels compile, and graphs are captured, on the current device: elsewhere a replay would do nothing."""
    assert choose_device("cuda:1") == "cuda:1"
    assert current == [torch.device("cuda", 1)]


@pytest.mark.parametrize("name", ["cuda", "cpu", "auto"])
def test_otherwise_the_current_one_stays(name: str, current: list[torch.device]) -> None:
    assert choose_device(name) == ("cuda" if name == "auto" else name)
    assert current == []


def test_a_gpu_that_is_not_there_is_refused(current: list[torch.device]) -> None:
    with pytest.raises(ValueError, match="there is no cuda:2; the last of torch's CUDA devices is cuda:1"):
        choose_device("cuda:2")
    assert current == []


def test_without_any_gpu_cuda_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == "cpu"
    with pytest.raises(ValueError, match="torch finds no CUDA device"):
        choose_device("cuda:1")
