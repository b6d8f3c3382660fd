"""Launches: what the launcher in C is called with, and which compiled version a plan picks."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from geoskip.kernels import Pattern, functional, sort_edges, use_path

launch = importlib.import_module("geoskip.kernels.triton.launch")
pytestmark = pytest.mark.compiled


class CudaLauncher:
    """As in Triton 3.6, with a stand-in for its function in C."""

    def __init__(self, scratch: int = 0) -> None:
        self.launch = Mock()
        self.global_scratch_size, self.profile_scratch_size = scratch, 0
        self.launch_cooperative_grid, self.launch_pdl = False, True

    def __call__(self, x: int, y: int, z: int, stream: int, function: int, *args: Any) -> None:
        scratch = "allocated" if self.global_scratch_size else None
        flags = self.launch_cooperative_grid, self.launch_pdl
        self.launch(x, y, z, stream, function, *flags, scratch, None, *args)


def calls_of(run: CudaLauncher, monkeypatch: pytest.MonkeyPatch, version: str) -> list[tuple[Any, ...]]:
    """What a plan passes to the function in C, the first launch left out: it goes through Triton."""
    monkeypatch.setattr(launch.triton, "__version__", version)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 7, raising=False)
    compiled = SimpleNamespace(run=run, function=11, packed_metadata=(4, 1, 0))
    kernel: dict[tuple[int, ...], Any] = {(3, 2): Mock(return_value=compiled)}
    plan = launch.LaunchPlan(kernel, (3, 2), (5, True, "tf32"), warps=2)
    x = torch.zeros(8)
    for _ in range(3):
        plan(x, None)
    assert kernel[3, 2].call_count == 1
    return [call.args for call in run.launch.call_args_list]


@pytest.mark.parametrize("scratch", [0, 16])
def test_arguments_of_the_launcher(scratch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directly or through the function in Python, they are the same."""
    calls = [calls_of(CudaLauncher(scratch), monkeypatch, version) for version in ("3.6.0", "3.5.1")]
    assert len(calls[0]) == len(calls[1]) == 2
    without_address = [[(*call[:13], *call[14:]) for call in of_version] for of_version in calls]
    assert without_address[0] == without_address[1]
    assert without_address[0][0][:5] == (3, 2, 1, 7, 11)
    assert without_address[0][0][-4:] == (0, 5, True, "tf32")


def test_the_function_in_python_runs_only_where_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, scratch, expected in (("3.6.0", 0, 0), ("3.6.0", 16, 2), ("3.9.0", 0, 2)):
        entered = Mock()
        monkeypatch.setattr(CudaLauncher, "__call__", entered)
        calls_of(CudaLauncher(scratch), monkeypatch, version)
        assert entered.call_count == expected


def test_versions_by_device_dtype_and_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, raising=False)
    compiled = SimpleNamespace(run=Mock(), function=0, packed_metadata=())
    kernel: dict[tuple[int, ...], Any] = {(1,): Mock(return_value=compiled)}
    plan = launch.LaunchPlan(kernel, (1,), ())
    whole = torch.zeros(16)
    for tensors in ((whole, None), (whole[1:], None), (whole[2:], None), (whole.double(), None), (whole, whole)):
        for _ in range(2):
            plan(*tensors)
    assert kernel[1,].call_count == 5
    assert compiled.run.call_count == 5
    plan(whole[4:], None)
    assert kernel[1,].call_count == 5, "aligned to 16 bytes as the whole is"


def test_launches_in_turn_take_the_version_of_their_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last version is looked at first, and must not run for other tensors."""
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, raising=False)
    launched: list[torch.dtype] = []

    def compiled(x: torch.Tensor, **options: Any) -> SimpleNamespace:
        return SimpleNamespace(run=lambda *arguments: launched.append(x.dtype), function=0, packed_metadata=())

    plan = launch.LaunchPlan({(1,): compiled}, (1,), ())
    dtypes = [torch.float32, torch.float64, torch.float32, torch.float32, torch.float64]
    for dtype in (torch.float32, torch.float64, *dtypes):
        plan(torch.zeros(4, dtype=dtype))
    assert launched == dtypes


def test_kernels_run_on_the_device_of_their_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """With several GPUs, another one may be the current one."""
    current, launched = [0], []

    @contextmanager
    def device(index: int) -> Iterator[None]:
        current.append(index)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: current[-1], raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: device, raising=False)

    def run(*arguments: Any) -> SimpleNamespace:
        launched.append(current[-1])
        return SimpleNamespace(run=run, function=0, packed_metadata=())

    plan = launch.LaunchPlan({(1,): lambda *arguments, **options: run(*arguments)}, (1,), ())
    for index in (1, 1, 0, 0):
        plan(Mock(get_device=lambda index=index: index, data_ptr=lambda: 64, dtype=torch.float32))
    assert launched == [1, 1, 0, 0]
    assert current == [0]


@pytest.mark.parametrize(
    "function",
    [
        functional.mean_pool,
        functional.max_pool,
        lambda x, pattern: functional.sparse_product(x, torch.ones(2), pattern),
        lambda x, _: functional.segment_mean(x, torch.tensor([0, 2])),
    ],
    ids=["mean_pool", "max_pool", "sparse_product", "segment_mean"],
)
def test_more_items_than_one_launch_takes(function: Callable[[torch.Tensor, Pattern], torch.Tensor]) -> None:
    """CUDA would only say that an argument is invalid."""
    pattern = sort_edges(torch.arange(2), torch.arange(2), 2, 2)[0]
    with use_path("interpreter"), pytest.raises(ValueError, match=r"too large for one launch .* split the batch"):
        function(torch.zeros(launch.MAX_PROGRAMS + 1, 2, 1), pattern)
