"""How time and memory grow with the number of vertices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from benchmarks.cases import Case, make_problem_block, ours, seeded
from benchmarks.checking import TOLERANCE, check, reference_results
from benchmarks.measure_blocks import failed
from benchmarks.surfaces import PATCH, sheet_graph, tiled, with_sheet_spirals
from benchmarks.timing import peak_bytes, release, time_steps
from benchmarks.workloads import Problem, Workload
from geoskip.operators import operator_info

CHANNELS, SLOTS = 32, 9
FITTED_FROM = 1 << 16
SMALLEST, LARGEST = PATCH**2, 1 << 22
SHEET = Workload("sheet", "sheets of triangles", 1, CHANNELS, CHANNELS, (SLOTS,), 3, lambda: sheet_graph(SMALLEST))


@dataclass(frozen=True)
class Point:
    """One size of one operator; the same fields as a row of the benchmark."""

    operator: str
    vertices: int
    edges: int
    milliseconds: float | None = None
    peak_bytes: int | None = None
    error: float | None = None
    repeats: bool | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Growth:
    """Exponents of time and peak memory in the number of vertices, fitted from 64k vertices up."""

    operator: str
    time: float | None
    memory: float | None


def sizes_up_to(largest: int) -> list[int]:
    """Powers of two from 1024."""
    if largest < SMALLEST:
        raise ValueError(f"max-vertices: at least {SMALLEST}, got {largest}")
    return [1 << k for k in range(SMALLEST.bit_length() - 1, largest.bit_length())]


def measure_scaling(operator: str, sizes: Sequence[int], device: torch.device, seconds: float = 0.5) -> Iterator[Point]:
    """A block with affine skip, batch 1, 32 → 32, M = 9, at each size; a result that is off has no time."""
    problem = Problem(SHEET, operator, SLOTS if operator_info(operator).has_kernel_size else 1, skip=True)
    patch = _case(problem, SMALLEST, device)
    reference = reference_results(patch)
    for size in sizes:
        yield _measured(_case(problem, size, device), reference, seconds)
        release(device)


def _case(problem: Problem, size: int, device: torch.device) -> Case:
    graph = sheet_graph(size, device)
    graph = with_sheet_spirals(graph, SLOTS) if operator_info(problem.operator).needs_spirals else graph
    with seeded(0):
        block = make_problem_block(problem).to(device)
        patches = [torch.randn(SMALLEST, CHANNELS) for _ in range(2)]
    x, grad_y = (tiled(patch, size).to(device) for patch in patches)
    return Case(problem, block, graph, [(x, grad_y)])


def expected_at(size: int, reference: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of a signal that repeats, output and gradient of x repeat, and gradients of parameters add up."""
    times = size // SMALLEST
    return {name: tiled(value, size) if name in ("y", "x") else value * times for name, value in reference.items()}


def _measured(case: Case, reference: dict[str, Tensor], seconds: float) -> Point:
    size, device = case.graph.num_vertices, case.device
    named = case.problem.operator, size, case.graph.num_edges
    contender = ours(case)
    try:
        verdict = check(contender, expected_at(size, reference))
        if not verdict.passes(TOLERANCE):
            off = f"wrong result: {verdict.worst} is off by {verdict.error:.1e}"
            return Point(*named, error=verdict.error, repeats=verdict.repeats, problem=off)
        with contender.on_path():
            peak = peak_bytes(contender.steps[0], device)
            timing = time_steps(contender.steps, device, seconds)
    except Exception as error:
        return Point(*named, problem=failed(error))
    return Point(*named, timing.milliseconds, peak, verdict.error, verdict.repeats)


def growth(operator: str, points: Sequence[Point]) -> Growth:
    """Least squares in logarithms."""
    large = [point for point in points if point.operator == operator and point.vertices >= FITTED_FROM]
    times = [(point.vertices, point.milliseconds) for point in large if point.milliseconds is not None]
    peaks = [(point.vertices, point.peak_bytes) for point in large if point.peak_bytes is not None]
    return Growth(operator, exponent(times), exponent(peaks))


def exponent(pairs: Sequence[tuple[float | int, float | int]]) -> float | None:
    """p of the power law v^p nearest to pairs (v, value); none of fewer than three."""
    if len(pairs) < 3:
        return None
    sizes, values = np.log(np.array(pairs, dtype=np.float64)).T
    return float(np.polyfit(sizes, values, 1)[0])
