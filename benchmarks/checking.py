"""Is the result right, and is it the same twice? Nothing is timed that is not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.cases import Case, Contender, names_of, training_step
from geoskip.kernels import use_path

# Ours has to reach what float32 can do. Of a peer only the function is in question, not its rounding.
TOLERANCE, PEER_TOLERANCE = 1e-5, 1e-3


@dataclass(frozen=True)
class Verdict:
    """Largest relative error over y and all gradients, of which of them, and whether two runs agree bitwise."""

    error: float
    worst: str
    repeats: bool

    def passes(self, tolerance: float) -> bool:
        """NaN never passes."""
        return self.error <= tolerance


def reference_results(case: Case) -> dict[str, Tensor]:
    """Output and gradients for the first set of inputs from the reference path in float64, item by item, so that
    its edge-sized intermediates fit."""
    block, graph = deepcopy(case.block).double(), case.graph.to(torch.float64)
    x, grad_y = case.inputs[0]
    names = names_of(block)
    items = []
    with use_path("reference"):
        for x_item, grad_item in zip(*(_items(values.double()) for values in (x, grad_y)), strict=True):
            items.append(training_step(block, x_item, grad_item, graph)())
    columns = dict(zip(names, zip(*items, strict=True), strict=True))
    y, grad_x = (torch.stack(columns.pop(name)).view(*x.shape[:-1], -1) for name in ("y", "x"))
    return {"y": y, "x": grad_x, **{name: torch.stack(values).sum(0) for name, values in columns.items()}}


def check(contender: Contender, reference: Mapping[str, Tensor]) -> Verdict:
    """Two runs on the first set of inputs, against the reference and against each other."""
    expected = contender.expected(dict(reference))
    with contender.on_path():
        results = contender.steps[0]()
        first = [result.clone() for result in results]
        if contender.path == "captured":
            # A replay writes where the last one wrote.
            for result in results:
                result.fill_(float("nan"))
        del results
        poison(first[0].device)
        second = contender.steps[0]()
    return compare(first, second, expected)


def compare(
    first: list[Tensor] | tuple[Tensor, ...], second: list[Tensor] | tuple[Tensor, ...], expected: Mapping[str, Tensor]
) -> Verdict:
    """Errors of both runs, since what one run leaves unwritten may look right in the other."""
    errors = {
        name: max((relative_error(run[k], value) for run in (first, second)), key=_nan_last)
        for k, (name, value) in enumerate(expected.items())
    }
    worst = max(errors, key=lambda name: _nan_last(errors[name]))
    repeats = all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    return Verdict(errors[worst], worst, repeats)


def relative_error(result: Tensor, expected: Tensor) -> float:
    r""":math:`\lVert r - e \rVert / \lVert e \rVert`; NaN if anything is not finite."""
    if result.shape != expected.shape:
        raise ValueError(f"result: has shape {list(result.shape)}, the reference {list(expected.shape)}")
    size = expected.norm().clamp(min=torch.finfo(torch.float64).tiny)
    error = float((result.double() - expected).norm() / size)
    return error if math.isfinite(error) else math.nan


def _nan_last(error: float) -> float:
    """NaN compares with nothing; here it is the largest."""
    return math.inf if math.isnan(error) else error


def poison(device: torch.device, num_bytes: int = 1 << 30) -> None:
    """Fill memory that CUDA's allocator will hand out next with NaN, so that an output left unwritten shows."""
    if device.type == "cuda":
        torch.full((num_bytes // 4,), float("nan"), device=device)


def _items(values: Tensor) -> Tensor:
    return values.unsqueeze(0) if values.dim() == 2 else values.flatten(0, -3)
