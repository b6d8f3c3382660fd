"""Every operator with every option, beside its oracle."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from geoskip.operators import (
    ChebConv,
    FeaStConv,
    GCNConv,
    GINConv,
    MoNetConv,
    Operator,
    RBFConv,
    SpiralConv,
    SplineConv,
)
from tests.operators import oracles
from tests.operators.oracles import Lists, Matrix, Vector
from tests.specimens import Specimen, edgeless, specimen

IN, OUT = 3, 2


@dataclass(frozen=True)
class Case:
    """An operator's class and options, and names for the symbols in the docstring's parameter count.

    ``weighted`` cases run on graphs with edge weights.
    """

    operator: Callable[..., Operator]
    options: dict[str, Any]
    symbols: dict[str, int]
    optional_term: bool = False
    weighted: bool = False

    def make(self, dtype: torch.dtype = torch.float64, seed: int = 0) -> Operator:
        """With parameters away from 0, so that each of them matters."""
        torch.manual_seed(seed)
        conv = self.operator(IN, OUT, **self.options).to(torch.float64)
        with torch.no_grad():
            for parameter in conv.parameters():
                signs = torch.where(torch.rand_like(parameter) < 0.5, -1.0, 1.0)
                parameter.copy_(signs * (0.3 + 0.7 * torch.rand_like(parameter)))
        return conv.to(dtype)

    @property
    def name(self) -> str:
        options = ",".join(f"{key}={value}".replace(" ", "") for key, value in self.options.items())
        return f"{self.operator.__name__}({options}){' weighted' * self.weighted}"

    @property
    def dim(self) -> int:
        """Dimension of the pseudo-coordinates to try it on."""
        return int(self.options.get("dim", 3))

    def specimen(self, **given: Any) -> Specimen:
        """A graph that the case runs on."""
        made = specimen(dim=self.dim, **given)
        return made.weighted() if self.weighted else made

    def edgeless(self, num_vertices: int) -> Specimen:
        made = edgeless(num_vertices, self.dim)
        return made.weighted() if self.weighted else made

    @property
    def sees_pseudo(self) -> bool:
        return self.operator in (MoNetConv, RBFConv, SplineConv)

    @property
    def sees_edge_weight(self) -> bool:
        return self.operator in (ChebConv, GCNConv, GINConv)

    @property
    def counted(self) -> int:
        """The parameter count that the docstring's formula gives."""
        found = re.search(r"Parameters: (.*?)(?: \(and (.*?) for .*?\))?\.$", self.operator.__doc__ or "", re.MULTILINE)
        assert found is not None, f"{self.operator.__name__} states no parameter count"
        formula = f"{found[1]} + {found[2]}" if self.optional_term else found[1]
        formula = re.sub(r"\bin\b", "in_", formula.replace("·", "*"))
        names = {"in_": IN, "out": OUT} | self.symbols
        total = int(eval(formula, {"__builtins__": {}}, names))
        return total if self.options.get("bias", True) else total - OUT


CASES = [
    Case(MoNetConv, {"kernel_size": 4, "dim": 2}, {"M": 4, "dim": 2}),
    Case(MoNetConv, {"kernel_size": 1, "dim": 1, "bias": False}, {"M": 1, "dim": 1}),
    Case(MoNetConv, {"kernel_size": 3}, {"M": 3, "dim": 3}),
    Case(FeaStConv, {"kernel_size": 4}, {"M": 4}),
    Case(FeaStConv, {"kernel_size": 3, "self_loops": False}, {"M": 3}),
    Case(FeaStConv, {"kernel_size": 3, "translation_invariant": False}, {"M": 3}, optional_term=True),
    Case(
        FeaStConv,
        {"kernel_size": 2, "self_loops": False, "translation_invariant": False, "bias": False},
        {"M": 2},
        optional_term=True,
    ),
    Case(ChebConv, {"kernel_size": 5}, {"M": 5}),
    Case(ChebConv, {"kernel_size": 4, "center": False}, {"M": 4}),
    Case(ChebConv, {"kernel_size": 1, "bias": False}, {"M": 1}),
    Case(ChebConv, {"kernel_size": 1, "center": False}, {"M": 1}),
    Case(GCNConv, {}, {}),
    Case(GCNConv, {"bias": False}, {}),
    Case(GCNConv, {"renormalize": False}, {}),
    Case(GINConv, {}, {"hidden": OUT}),
    Case(GINConv, {"hidden_channels": 5, "epsilon": 0.25}, {"hidden": 5}),
    Case(GINConv, {"hidden_channels": 4, "epsilon": -0.5, "train_epsilon": True}, {"hidden": 4}, optional_term=True),
    Case(SpiralConv, {"kernel_size": 5}, {"M": 5}),
    Case(SpiralConv, {"kernel_size": 7, "center": False}, {"M": 7}),
    Case(SpiralConv, {"kernel_size": 3, "dilation": 2}, {"M": 3}),
    Case(SpiralConv, {"kernel_size": 3, "dilation": 3, "center": False, "bias": False}, {"M": 3}),
    Case(SplineConv, {"kernel_size": 3, "dim": 2}, {"M": 9}),
    Case(SplineConv, {"kernel_size": 2}, {"M": 8}),
    Case(SplineConv, {"kernel_size": 1, "dim": 2}, {"M": 1}),
    Case(SplineConv, {"kernel_size": 4, "dim": 1, "degree": 2, "bias": False}, {"M": 4}),
    Case(SplineConv, {"kernel_size": (4, 5), "dim": 2, "degree": 3}, {"M": 20}),
    Case(SplineConv, {"kernel_size": 3, "dim": 2, "closed": True}, {"M": 9}),
    Case(SplineConv, {"kernel_size": (5, 3), "dim": 2, "degree": 2, "closed": (False, True)}, {"M": 15}),
    Case(SplineConv, {"kernel_size": 2, "dim": 1, "degree": 3, "closed": True}, {"M": 2}),
    Case(RBFConv, {"kernel_size": 4, "dim": 2}, {"M": 4, "dim": 2}),
    Case(RBFConv, {"kernel_size": 3, "kernel": "thin_plate", "bias": False}, {"M": 3, "dim": 3}),
    Case(RBFConv, {"kernel_size": 2, "dim": 1, "kernel": "inverse_multiquadric"}, {"M": 2, "dim": 1}),
    Case(ChebConv, {"kernel_size": 5}, {"M": 5}, weighted=True),
    Case(ChebConv, {"kernel_size": 4, "center": False}, {"M": 4}, weighted=True),
    Case(GCNConv, {}, {}, weighted=True),
    Case(GCNConv, {"renormalize": False, "bias": False}, {}, weighted=True),
    Case(GINConv, {"epsilon": 0.25, "train_epsilon": True}, {"hidden": OUT}, optional_term=True, weighted=True),
]
WEIGHTED = [case for case in CASES if case.weighted]
# One of each class, where every option would cost too much.
FIRST = list({case.operator: case for case in reversed(CASES)}.values())[::-1]


def expected(case: Case, conv: Operator, x: Tensor, graph: Lists, skip: Tensor | None = None) -> Tensor:
    """What the oracle says."""
    features = x.tolist()
    parameters = {name: value.tolist() for name, value in conv.state_dict().items()}
    y = _oracle(case, parameters, features, graph)
    if skip is not None:
        y = oracles.skip(y, features, skip.tolist())
    return torch.tensor(y, dtype=torch.float64).reshape(graph.num_vertices, OUT)


def _oracle(case: Case, p: dict[str, Any], x: Matrix, graph: Lists) -> Matrix:
    options = case.options
    b: Vector = p.get("bias", [0.0] * OUT)
    if case.operator is MoNetConv:
        return oracles.monet(x, graph, p["theta"], p["mean"], p["scale"], b)
    if case.operator is RBFConv:
        return oracles.rbf(x, graph, p["theta"], p["mean"], p["scale"], b, options.get("kernel", "gaussian"))
    if case.operator is FeaStConv:
        receiver = None if options.get("translation_invariant", True) else p["receiver_attention"]
        self_loops = options.get("self_loops", True)
        return oracles.feast(x, graph, p["theta"], p["attention"], p["offset"], b, receiver, self_loops)
    if case.operator is ChebConv:
        return oracles.cheb(x, graph, p["theta"], b, options.get("center", True))
    if case.operator is GCNConv:
        return oracles.gcn(x, graph, p["theta"], b, options.get("renormalize", True))
    if case.operator is GINConv:
        epsilon = p["epsilon"] if options.get("train_epsilon") else options.get("epsilon", 0.0)
        return oracles.gin(x, graph, p["theta"], p["hidden_bias"], p["theta_out"], b, epsilon)
    if case.operator is SpiralConv:
        return oracles.spiral(x, graph, p["theta"], b, options.get("dilation", 1), options.get("center", True))
    if case.operator is SplineConv:
        sizes, closed = (_each(options.get(key), case.dim) for key in ("kernel_size", "closed"))
        return oracles.spline(x, graph, p["theta"], b, sizes, options.get("degree", 1), closed)
    raise AssertionError(f"no oracle for {case.name}")


def _each(value: Any, dim: int) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value or False,) * dim
