"""Workloads so small that a whole benchmark takes a moment."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from benchmarks.cases import Case, make_case
from benchmarks.surfaces import sphere_graph, superpixel_graphs
from benchmarks.workloads import Problem, Workload
from torch import Tensor

from geoskip.kernels import cpu
from geoskip.operators import operator_info

CPU = torch.device("cpu")
MESHES = Workload("meshes", "40 vertices", 3, 4, 5, (4,), 3, lambda: sphere_graph(40, 6))
PACKED = Workload("packed", "3 graphs", 1, 4, 5, (4,), 2, lambda: superpixel_graphs(3, 12, 25), has_spirals=False)
ALL_OPERATORS = ("cheb", "feast", "gcn", "gin", "monet", "spiral", "spline")


def case(operator: str, skip: bool, workload: Workload = MESHES) -> Case:
    problem = Problem(
        workload, operator, workload.kernel_sizes[0] if operator_info(operator).has_kernel_size else 1, skip
    )
    return make_case(problem, workload.make_graph(), CPU)


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fast kernel whose gradient of Θ is off by one part in ten thousand."""
    right = cpu.basis_convolution_gradients

    def wrong(*args: Any) -> tuple[Tensor | None, ...]:
        grad_x, grad_weights, grad_theta, *others = right(*args)
        return grad_x, grad_weights, None if grad_theta is None else grad_theta * (1 + 1e-4), *others

    monkeypatch.setattr(cpu, "basis_convolution_gradients", wrong)
