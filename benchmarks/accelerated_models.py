"""Finished PyTorch Geometric models before and after ``geoskip.accelerate``: equal results, time and peak memory."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.cases import Step
from benchmarks.checking import relative_error
from benchmarks.surfaces import sphere_graph
from benchmarks.timing import peak_bytes, release, time_steps
from geoskip.pyg import accelerate

NUM_VERTICES, IN, HIDDEN, OUT, KERNEL_SIZE = 6890, 64, 128, 64, 10


class MoNet(nn.Module):
    """Three layers of GMMConv, as its users write them."""

    def __init__(self) -> None:
        from torch_geometric.nn import GMMConv

        super().__init__()
        widths = [IN, HIDDEN, HIDDEN, OUT]
        self.convs = nn.ModuleList(GMMConv(a, b, 3, KERNEL_SIZE) for a, b in pairwise(widths))

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index, edge_attr).relu()
        return x


def _models() -> dict[str, Callable[[], nn.Module]]:
    from torch_geometric import nn as pyg

    return {
        "GCN": lambda: pyg.GCN(IN, HIDDEN, num_layers=3, out_channels=OUT),
        "GraphSAGE": lambda: pyg.GraphSAGE(IN, HIDDEN, num_layers=3, out_channels=OUT),
        "GIN": lambda: pyg.GIN(IN, HIDDEN, num_layers=3, out_channels=OUT, norm=None),
        "GraphUNet": lambda: pyg.GraphUNet(IN, HIDDEN, OUT, depth=2, pool_ratios=0.5),
        "RECT_L": lambda: pyg.RECT_L(IN, HIDDEN, dropout=0.0),
        "MoNet": MoNet,
    }


@dataclass(frozen=True)
class AcceleratedRow:
    """A model before and after: milliseconds and peak bytes of forward and backward, and how far results differ.

    ``error_f32`` and ``error_f64`` are the largest relative differences of the output and of any gradient.
    """

    model: str
    layers: int
    pyg_milliseconds: float
    milliseconds: float
    pyg_peak_bytes: int
    peak_bytes: int
    error_f32: float
    error_f64: float

    @property
    def time_ratio(self) -> float:
        return self.pyg_milliseconds / self.milliseconds

    @property
    def memory_ratio(self) -> float:
        return self.pyg_peak_bytes / max(self.peak_bytes, 1)


def measure_models(device: torch.device, seconds: float, names: list[str] | None = None) -> Iterator[AcceleratedRow]:
    for name in names or list(_models()):
        plain, fast = _pair(name, device, torch.float32)
        inputs = _inputs(name, device, torch.float32)
        error_f32 = _difference(plain, fast, inputs)
        error_f64 = _difference(*_pair(name, device, torch.float64), _inputs(name, device, torch.float64))
        steps = [_step(model, inputs) for model in (plain, fast)]
        # Both are warm before either is timed, and they are timed in turn.
        timings = [time_steps([step], device, seconds).milliseconds for step in (*steps, *steps)]
        slow, quick = min(timings[0], timings[2]), min(timings[1], timings[3])
        if device.type == "cuda":
            peaks = [peak_bytes(step, device) or 0 for step in steps]
        else:
            peaks = [_resident_bytes(name, side) for side in ("plain", "fast")]
        layers = len(accelerate(fast, undo=True).replaced)
        yield AcceleratedRow(name, layers, slow, quick, peaks[0], peaks[1], error_f32, error_f64)
        release(device)


def _pair(name: str, device: torch.device, dtype: torch.dtype) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    plain = _models()[name]().to(device, dtype)
    fast = copy.deepcopy(plain)
    accelerate(fast)
    return plain, fast


def _inputs(name: str, device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    graph = sphere_graph(NUM_VERTICES, 1)
    torch.manual_seed(1)
    x = torch.randn(NUM_VERTICES, IN, dtype=dtype).to(device).requires_grad_()
    inputs = [x, graph.edge_index.to(device)]
    if name == "MoNet":
        assert graph.pseudo is not None
        inputs.append(graph.pseudo.to(device, dtype))
    return inputs


def _step(model: nn.Module, inputs: list[Tensor]) -> Step:
    def step() -> tuple[Tensor, ...]:
        for tensor in (inputs[0], *model.parameters()):
            tensor.grad = None
        out = model(*inputs)
        out.square().mean().backward()
        return (out,)

    return step


def _difference(plain: nn.Module, fast: nn.Module, inputs: list[Tensor]) -> float:
    results = []
    for model in (plain, fast):
        (out,) = _step(model, inputs)()
        gradients = [t.grad.clone() for t in (inputs[0], *model.parameters()) if t.grad is not None]
        results.append([out.detach(), *gradients])
    return max(relative_error(ours, theirs) for theirs, ours in zip(*results, strict=True))


def _resident_bytes(name: str, side: str) -> int:
    """On the CPU: by how much a step raises the resident memory of a fresh process (Linux only)."""
    command = [sys.executable, "-m", "benchmarks.accelerated_models", name, side]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _print_resident_bytes(name: str, side: str) -> None:
    cpu = torch.device("cpu")
    model = _pair(name, cpu, torch.float32)[side == "fast"]
    inputs = _inputs(name, cpu, torch.float32)
    # A small pass loads the libraries.
    model(inputs[0][:8], torch.zeros(2, 4, dtype=torch.long), *(value[:4] for value in inputs[2:]))
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # sets the peak to what is resident now
    before = _peak_resident()
    _step(model, inputs)()
    print(_peak_resident() - before)


def _peak_resident() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.search(r"VmHWM:\s*(\d+)", status)[1])  # type: ignore[index]


def acceleration_section(record: dict[str, Any]) -> Iterator[str]:
    """The record as a table in Markdown."""
    rows = [AcceleratedRow(**row) for row in record["rows"]]
    yield f"Forward and backward on a mesh of {NUM_VERTICES:,} vertices, eager, with `edge_index` as PyTorch Geometric"
    yield f"takes it; {IN} → {HIDDEN} → {HIDDEN} → {OUT} channels, M = {KERNEL_SIZE} for MoNet."
    yield ""
    yield "| model | layers | PyG, ms | geoskip, ms | faster | PyG, MB | geoskip, MB | less memory | error f32 | f64 |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        times = f"{row.pyg_milliseconds:.3g} | {row.milliseconds:.3g} | {row.time_ratio:.1f}×"
        peaks = f"{row.pyg_peak_bytes / 1e6:.0f} | {row.peak_bytes / 1e6:.0f} | {row.memory_ratio:.1f}×"
        yield f"| {row.model} | {row.layers} | {times} | {peaks} | {row.error_f32:.0e} | {row.error_f64:.0e} |"
    yield ""


if __name__ == "__main__":
    _print_resident_bytes(*sys.argv[1:3])
