"""Where a run computes, and in what precision."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from geoskip.training.config import Config


def choose_device(name: str) -> str:
    """``"auto"`` made definite; ValueError where there is no such device. One of several GPUs becomes the current one,
    since that is where Triton compiles and where graphs are captured."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device: unknown name {name!r}; choose auto, cpu, cuda or cuda:1") from error
    kind = found.type
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"device: training runs on cpu and cuda, not on {kind}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: cuda was asked for, and torch sees no CUDA device; choose cpu")
    if kind == "cuda" and found.index is not None:
        if found.index >= (count := torch.cuda.device_count()):
            raise ValueError(f"device: there is no {name}; the last of torch's CUDA devices is cuda:{count - 1}")
        torch.cuda.set_device(found)
    return name


def own_device(name: str, local: int, size: int) -> torch.device:
    """The device of one process: with several, each has a GPU of its own."""
    if name == "cuda" and size > 1:
        return torch.device("cuda", local)
    return torch.device("cuda", torch.cuda.current_device()) if name == "cuda" else torch.device(name)


def device_words(device: torch.device) -> str:
    """A device as records and people read it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} of {os.cpu_count()} cores"


@contextmanager
def arithmetic(config: Config) -> Iterator[None]:
    """Matrix products in float32 or, if the configuration allows it, in TensorFloat-32."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32" if config.tf32 else "ieee"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
