"""What a run leaves behind: rows, and the machine they were measured on, as JSON."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from geoskip import __version__
from geoskip.records.files import atomic_write
from geoskip.training.loop import commit

OURS = ("geoskip", "compiled", "reduce-overhead", "captured")
# In the order in which tables show them.
PATHS = (*OURS, "PyG", "PyG compiled", "PyG reduce-overhead", "reference")


@dataclass(frozen=True)
class Row:
    """One contender on one problem.

    Attributes:
        workload: name of the workload.
        operator: name of the operator.
        slots: M; 1 for operators with one matrix.
        skip: whether the block has an affine skip.
        path: who did the work; see :class:`~benchmarks.cases.Contender`.
        call: the call that was timed.
        milliseconds: median time of a step, forward and backward.
        quartiles: of the time.
        samples: how many times were taken.
        peak_bytes: memory of a step above inputs, parameters and graph; none on the CPU.
        error: largest relative error of y or a gradient, against the reference in float64.
        worst: the tensor with that error.
        repeats: whether two runs agreed bitwise.
        floor_milliseconds: the roofline's limit.
        against: path of the contender that ``time_ratio`` and ``memory_ratio`` compare with.
        peer_does_more: whether that contender does the work of the skip too.
        tried: the peer's calls that were compared, with their times in a short trial; none if one failed.
        problem: why there is no time, if there is none.
        first_seconds: seconds to the end of the first step of a loop, with what it compiles.
    """

    workload: str
    operator: str
    slots: int
    skip: bool
    path: str
    call: str
    milliseconds: float | None = None
    quartiles: tuple[float, float] | None = None
    samples: int = 0
    peak_bytes: int | None = None
    error: float | None = None
    worst: str | None = None
    repeats: bool | None = None
    floor_milliseconds: float | None = None
    against: str | None = None
    peer_does_more: bool = False
    time_ratio: float | None = None
    memory_ratio: float | None = None
    tried: dict[str, float | None] | None = None
    problem: str | None = None
    first_seconds: float | None = None

    @property
    def is_ours(self) -> bool:
        return self.path in OURS

    @property
    def roofline_share(self) -> float | None:
        if self.milliseconds is None or self.floor_milliseconds is None:
            return None
        return self.floor_milliseconds / self.milliseconds


def machine(device: torch.device) -> dict[str, Any]:
    """What ran where: commit, device, versions, threads, precision of float32 products."""
    packages = ("numpy", "scipy", "triton", "torch_geometric")
    return {
        "commit": commit(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "device_type": device.type,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "versions": {
            "geoskip": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            **{package: _version(package) for package in packages},
        },
        "precision": precision(),
        "one_thread": not torch._C._is_multithreading_enabled(),
    }


def busy() -> float | None:
    """How many processes wanted the CPU in the last minute, where the system tells it; the run's own count too."""
    try:
        return round(os.getloadavg()[0], 1)
    except (AttributeError, OSError):
        return None


def precision() -> dict[str, str]:
    """The flags of torch that would allow less than float32 in products."""
    return {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cuda.matmul.fp32_precision": torch.backends.cuda.matmul.fp32_precision,
    }


def save(path: Path, record: dict[str, Any]) -> None:
    """Write a record, complete or not at all: a run that is stopped leaves the records before it."""
    atomic_write(path, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())


def rows_of(record: dict[str, Any]) -> list[Row]:
    """The rows of a record; fields that older versions wrote and nobody reads any more are dropped."""
    known = {field.name for field in fields(Row)}
    entries = [{name: value for name, value in entry.items() if name in known} for entry in record["rows"]]
    return [Row(**entry | {"quartiles": entry["quartiles"] and tuple(entry["quartiles"])}) for entry in entries]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """The processor's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
