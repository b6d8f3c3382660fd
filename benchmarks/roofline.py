r"""The least that a step has to do, and how fast this machine can do it.

Bytes: every input of the forward pass and of the backward pass is read once, every result written once. Operations (a
multiplication and an addition are two): for M slots on E edges and V vertices of B items, C channels in and O out,

- forward: the sums over neighbours, 2·B·E·M·C, and the products with Θ, 2·B·V·M·C·O;
- gradient of x: the same products the other way, and the sums over the reversed edges;
- gradient of Θ: the products once more; gradient of learned weights: a scalar product for each edge and slot.

The values of the basis functions are not counted, nor what an implementation computes again instead of keeping it.
The floor of a step is the larger of bytes over the rate of a copy and operations over the rate of a float32 matrix
product, both measured in the same run; the share of the roofline is the floor over the time. Products on tensor
cores that make float32 out of several TF32 ones may beat the float32 rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.cases import Case, training_step
from benchmarks.timing import time_steps
from benchmarks.workloads import Problem
from geoskip.graphs import Graph
from geoskip.operators import operator_info

# Bytes of the copy and side of the product that are timed.
SIZES = {"cuda": (1 << 30, 8192), "cpu": (1 << 28, 1536)}


@dataclass(frozen=True)
class Work:
    """What a step has to move and to compute."""

    num_bytes: int
    operations: int


@dataclass(frozen=True)
class Ceilings:
    """Rates of this machine: bytes of a copy (read and written) and float32 operations of a product, a second.

    eager_milliseconds: what forward and backward of an autograd function in Python take if each runs one small kernel.
        No eager step of a block in Python can be faster; PyTorch's engine and the host take most of it.
    """

    bytes_per_second: float
    operations_per_second: float
    eager_milliseconds: float

    def floor_milliseconds(self, work: Work) -> float:
        return 1e3 * max(work.num_bytes / self.bytes_per_second, work.operations / self.operations_per_second)


def work_of(case: Case) -> Work:
    """Of one forward and backward pass."""
    problem, graph = case.problem, case.graph
    parameters = sum(parameter.numel() for parameter in case.block.parameters())
    x, grad_y = case.inputs[0]
    # Forward: x in, y out. Backward: x and the gradient of y in, the gradient of x out. Parameters: in, in, out.
    features = 4 * (3 * x.numel() + 2 * grad_y.numel() + 3 * parameters)
    return Work(features + _graph_bytes(problem, graph), _operations(problem, graph))


def measure_ceilings(device: torch.device, seconds: float = 0.2) -> Ceilings:
    """A large copy and a large product, on random values."""
    size, side = SIZES[device.type]
    source = torch.rand(size // 4, device=device)
    target = torch.empty_like(source)
    copy = time_steps([lambda: (target.copy_(source),)], device, seconds)
    del source, target
    a, b = torch.rand(2, side, side, device=device)
    out = torch.empty_like(a)
    product = time_steps([lambda: (torch.mm(a, b, out=out),)], device, seconds)
    x, grad_y = torch.rand(2, 1024, device=device)
    eager = time_steps([training_step(_OneKernel(), x, grad_y)], device, seconds)
    rates = 2 * size / (copy.milliseconds / 1e3), 2 * side**3 / (product.milliseconds / 1e3)
    return Ceilings(*rates, eager.milliseconds)


class _Doubled(torch.autograd.Function):
    """One kernel forward, one backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> Tensor:
        return grad_y * 2


class _OneKernel(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return _Doubled.apply(x)


def _graph_bytes(problem: Problem, graph: Graph) -> int:
    """Connectivity and what is fixed on its edges, forward and backward."""
    size = graph.pattern.senders.element_size()
    if operator_info(problem.operator).needs_spirals:
        return size * 3 * problem.slots * graph.num_vertices
    indices = size * (3 * graph.num_edges + 3 * graph.num_vertices)
    return indices + 2 * _num_bytes(graph.pseudo) * operator_info(problem.operator).uses_pseudo


def _num_bytes(values: Tensor | None) -> int:
    return 0 if values is None else values.numel() * values.element_size()


def _operations(problem: Problem, graph: Graph) -> int:
    w, slots = problem.workload, problem.slots
    vertices, edges = w.batch * graph.num_vertices, w.batch * graph.num_edges
    one = 2 * vertices * w.in_channels * w.out_channels
    products = 3 * one * (slots + problem.skip)
    if problem.operator == "gin":
        products += 3 * 2 * vertices * w.out_channels**2
    if problem.operator == "cheb":
        sums = 2 * edges * (slots - 1) * (w.in_channels + w.out_channels)
    else:
        sums = 2 * edges * w.in_channels * (3 if problem.operator in ("monet", "feast") else 2)
        sums *= _slots_of_an_edge(problem)
    return products + sums


def _slots_of_an_edge(problem: Problem) -> int:
    """To how many slots an edge contributes; a step along a spiral is no arithmetic."""
    if operator_info(problem.operator).needs_spirals:
        return 0
    if problem.operator == "spline":
        assert isinstance(problem.kernel_size, tuple)
        return math.prod(min(size, 2) for size in problem.kernel_size)
    return problem.slots
