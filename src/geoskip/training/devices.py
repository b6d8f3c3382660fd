"""The device of a run, its precision, and how several processes share the work."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from geoskip.shapes import Int
from geoskip.training.config import Config


def choose_device(name: str) -> str:
    """Resolve ``"auto"``, which is never an Apple GPU; ValueError if there is no such device. A chosen CUDA device
    becomes the current one, because Triton compiles and CUDA graphs are captured there."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device: unknown name {name!r}; choose auto, cpu, cuda, cuda:1 or mps") from error
    kind = device.type
    if kind not in ("cpu", "cuda", "mps"):
        raise ValueError(f"device: training runs on cpu, cuda and mps, not on {kind}")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ValueError("device: torch finds no Apple GPU; choose cpu")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: torch finds no CUDA device; choose cpu")
    if kind == "cuda" and device.index is not None:
        if device.index >= (count := torch.cuda.device_count()):
            raise ValueError(f"device: there is no {name}; the last of torch's CUDA devices is cuda:{count - 1}")
        torch.cuda.set_device(device)
    return name


def own_device(name: str) -> torch.device:
    """The device of this process: for ``"cuda"`` the current one, which :func:`process_group` sets."""
    return torch.device("cuda", torch.cuda.current_device()) if name == "cuda" else torch.device(name)


def device_name(device: torch.device, count: int = 1) -> str:
    """The name of a device for records and people: ``2 × NVIDIA H200``."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    elif device.type == "mps":
        name = f"{platform.machine()} Apple GPU"
    else:
        name = f"{platform.machine()} CPU, {torch.get_num_threads()} of {os.cpu_count()} cores"
    return name if count == 1 else f"{count} × {name}"


@contextmanager
def arithmetic(config: Config) -> Iterator[None]:
    """Compute matrix products in float32 or, if the configuration allows it, in TensorFloat-32."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32" if config.tf32 else "ieee"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


# A dead process is noticed at once; after this time, so is one that hangs.
TIMEOUT = timedelta(minutes=5)


class LostProcess(RuntimeError):
    """Another process of the run died or hangs."""


@dataclass(frozen=True)
class Group:
    """The processes of a run, and the rank of this one. A single process is a group of one and never waits."""

    rank: int = 0
    size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def share(self, items: Int[Tensor, " items"]) -> Int[Tensor, " _"]:
        """The items of a batch that this process takes; none if there are fewer items than processes."""
        return items.tensor_split(self.size)[self.rank]

    def sum_all(self, tensors: Sequence[Tensor]) -> None:
        """Add up tensors of one dtype over all processes, in place."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        with _lost_process():
            dist.all_reduce(flat)
        for tensor, summed in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(summed.view_as(tensor))

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether the flag is set in any process."""
        if self.size == 1:
            return flag
        flags = torch.tensor([float(flag)], device=device)
        self.sum_all([flags])
        return bool(flags.item() > 0)

    def gather(self, tensor: Tensor, device: torch.device) -> list[Tensor]:
        """The tensor of each process, all of one shape, on the CPU."""
        if self.size == 1:
            return [tensor.cpu()]
        gathered = [torch.empty_like(tensor, device=device) for _ in range(self.size)]
        with _lost_process():
            dist.all_gather(gathered, tensor.to(device))
        return [one.cpu() for one in gathered]


@contextmanager
def process_group(device: str = "cpu") -> Iterator[Group]:
    """Join the group of processes that ``torchrun`` started, for the duration of the context."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Group()
        return
    if device == "mps":
        raise ValueError("device: several processes train on cpu or cuda, not on mps")
    backend = "nccl" if device.startswith("cuda") else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    with _lost_process():
        dist.init_process_group(backend, timeout=TIMEOUT)
    try:
        yield Group(int(os.environ["RANK"]), size)
    finally:
        dist.destroy_process_group()


@contextmanager
def _lost_process() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        first = str(error).splitlines()[0]
        raise LostProcess(
            f"another process of this run died or hangs, so this one stops too ({first}); the same command resumes the "
            "run from its last checkpoint"
        ) from error
