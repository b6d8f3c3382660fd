"""What all operators have in common: the base class, initial values, and how to make an operator by name."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from geoskip.arguments import whole_number
from geoskip.graphs import Graph
from geoskip.graphs.checks import as_tensor, check_device
from geoskip.operators.input_checks import (
    check_device_and_dtype,
    check_features,
    check_is_tensor,
    check_order,
    first_tensor,
    refuse_to_hetero,
)
from geoskip.registry import Registry
from geoskip.shapes import Float, Int, Shaped

OPERATORS: Registry[Callable[..., nn.Module]] = Registry("operator", entry_points="geoskip.operators")


class Operator(nn.Module, ABC):
    r"""A graph convolution: a choice of basis :math:`w_m(i,j)`.

    .. math:: y_i = \sum_m \Big( \sum_{j \in \mathcal N(i)} w_m(i,j)\, x_j \Big) \Theta_m + b

    Call it as ``conv(x, graph)``, or as in PyTorch Geometric, ``conv(x, edge_index, edge_values)``. The latter sorts
    the edges on every call, so build the :class:`~geoskip.graphs.Graph` once if you can. ``x`` is
    ``[vertices, channels]``, or ``[*batch, vertices, channels]`` for items that share the graph.

    ``edge_values`` are the edge weights ``[edges]`` of an operator that uses them, or the pseudo-coordinates
    ``[edges, dim]``; they may be passed by name too, as ``edge_weight`` or ``pseudo``. They are in the order of
    ``edge_index`` and replace those of the graph. Passing edge weights to an operator that does not use them is an
    error.

    ``skip`` is the matrix :math:`A` of an affine skip, ``[in, out]``: it adds :math:`x_i A` to :math:`y_i`.
    :class:`~geoskip.blocks.AffineSkip` passes it, because one more basis function costs less than one more pass over
    memory.

    A subclass declares what the rest of the package needs to know about it, and ``@OPERATORS.register`` makes it
    available by name.

    Attributes:
        name: what users write: ``--operator monet``.
        title: what tables print: ``"MoNet"``.
        uses_edge_weight: whether the formula has edge weights.
        uses_pseudo: whether the formula has pseudo-coordinates.
        adds_self_loops: whether it adds a self-loop to each vertex, so that graphs should store them.
        needs_spirals: whether the graph must have spirals, which are made from a mesh.
        needs_batch_norm: whether a classifier normalizes its output by default.
        without_center: the options that remove the center vertex's own term, the paper's †.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    uses_edge_weight: ClassVar[bool] = False
    uses_pseudo: ClassVar[bool] = False
    adds_self_loops: ClassVar[bool] = False
    needs_spirals: ClassVar[bool] = False
    needs_batch_norm: ClassVar[bool] = False
    without_center: ClassVar[Mapping[str, Any]] = {}

    theta: nn.Parameter
    bias: nn.Parameter | None

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int = 1) -> None:
        super().__init__()
        name = type(self).__name__
        self.in_channels = whole_number("in_channels", in_channels, name)
        self.out_channels = whole_number("out_channels", out_channels, name)
        self.kernel_size = whole_number("kernel_size", kernel_size, name)

    def add_bias(self, bias: bool) -> None:
        """Register the parameter b, or None."""
        self.register_parameter("bias", nn.Parameter(torch.empty(self.out_channels)) if bias else None)

    @classmethod
    def spiral_length(cls, kernel_size: int, **options: Any) -> int | None:
        """How long the graph's spirals must be for an operator with these options; None if it needs none."""
        return None

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        glorot(self.theta)
        zeros(self.bias)

    @abstractmethod
    def convolve(
        self,
        x: Float[Tensor, "*batch vertices channels"],
        graph: Graph,
        skip: Float[Tensor, "channels out"] | None,
    ) -> Float[Tensor, "*batch vertices out"]:
        """The formula, on checked input."""

    def _tensors(self, *names: str) -> list[Any]:
        """The parameters and buffers of these names. As attributes, each would be looked up in Python, which takes as
        long as allocating a tensor."""
        parameters = self._parameters
        # Buffers and parametrized parameters are attributes alone.
        return [parameters[name] if name in parameters else getattr(self, name) for name in names]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not args or not isinstance(args[0], Tensor):
            advice = "Build the model with PyTorch Geometric's convolutions, transform it, then call add_skips"
            refuse_to_hetero(self._label, advice, args, kwargs)
        return super().__call__(*args, **kwargs)

    def forward(
        self,
        x: Float[Tensor, "*batch vertices channels"],
        graph: Graph | Int[Tensor, "2 edges"] | Int[np.ndarray, "2 edges"],
        edge_values: Float[Tensor, " edges"] | Float[Tensor, "edges dim"] | Shaped[np.ndarray, ...] | None = None,
        *,
        edge_weight: Float[Tensor, " edges"] | Float[np.ndarray, " edges"] | None = None,
        pseudo: Float[Tensor, "edges dim"] | Float[np.ndarray, "edges dim"] | None = None,
        skip: Float[Tensor, "channels out"] | None = None,
    ) -> Float[Tensor, "*batch vertices out"]:
        if not (edge_values is edge_weight is pseudo is None and self._fits(x, graph, skip)):
            check_order(x, graph, "conv")
            check_features("x", x, self.in_channels, self, self._label())
            graph = self._with_edge_values(self._as_graph(graph, x), edge_values, edge_weight, pseudo)
            if skip is not None:
                self._check_skip(skip)
        return self.convolve(x, cast(Graph, graph), skip)

    def _fits(self, x: Any, graph: Any, skip: Any) -> bool:
        """Whether every check of :meth:`forward` passes, and nothing is to be done to the graph: the ordinary case,
        tested at once, because small graphs wait for the host."""
        if not (isinstance(graph, Graph) and isinstance(x, Tensor) and (skip is None or isinstance(skip, Tensor))):
            return False
        own, offsets, shape, dtype, device = first_tensor(self), graph.pattern.offsets, x.shape, x.dtype, x.device
        return (
            len(shape) > 1
            and shape[-1] == self.in_channels
            and shape[-2] == offsets.shape[1] - 1
            and dtype is own.dtype
            and dtype.is_floating_point
            and x.layout is torch.strided
            and device == own.device
            and device == offsets.device
            and (graph.given_edge_weight is None or self.uses_edge_weight)
            and (skip is None or skip.shape == (self.in_channels, self.out_channels))
            and (skip is None or (skip.dtype is dtype and skip.device == device))
        )

    def _as_graph(self, graph: Any, x: Tensor) -> Graph:
        if isinstance(graph, np.ndarray):
            graph = as_tensor("edge_index", graph, x.device)
        if isinstance(graph, Tensor):
            graph = Graph.from_edge_index(graph, x.shape[-2])
        elif not isinstance(graph, Graph):
            raise TypeError(
                f"graph: expected a Graph or an edge_index, got {type(graph).__name__}; see Graph.from_edge_index, "
                "from_faces and from_pyg"
            )
        if graph.num_vertices != x.shape[-2]:
            raise ValueError(
                f"x: has {x.shape[-2]} vertices, the graph {graph.num_vertices}; pass the graph that x belongs to"
            )
        check_device("graph", graph.device, x.device, "x")
        return graph

    def _with_edge_values(self, graph: Graph, edge_values: Any, edge_weight: Any, pseudo: Any) -> Graph:
        """``graph`` with the edge weights and pseudo-coordinates of the call.

        A graph may carry pseudo-coordinates that the operator does not use. Edge weights that it does not use are an
        error, because without them it is a different graph.
        """
        given = {"edge_weight": edge_weight, "pseudo": pseudo}
        used = {"edge_weight": self.uses_edge_weight, "pseudo": self.uses_pseudo}
        if edge_values is not None:
            name = next((name for name in used if used[name]), None)
            if name is None:
                raise ValueError(
                    f"edge_values: {self._label()} uses neither edge weights nor pseudo-coordinates; leave the third "
                    "argument out"
                )
            if given[name] is not None:
                raise ValueError(f"{name}: was given twice, by position and by name; pass it once")
            given[name] = as_tensor("edge_values", edge_values, graph.device)
            if name == "edge_weight" and given[name].dim() == 2 and given[name].shape[1] != 1:
                raise ValueError(
                    f"edge_values: {self._label()} takes edge weights of shape [edges], got {list(given[name].shape)}; "
                    "it does not use pseudo-coordinates"
                )
        for name, words in {"edge_weight": "edge weights", "pseudo": "pseudo-coordinates"}.items():
            if given[name] is not None and not used[name]:
                raise ValueError(f"{name}: {self._label()} does not use {words}; leave {name} out")
        if graph.given_edge_weight is not None and not self.uses_edge_weight:
            raise ValueError(
                f"graph: has edge weights, which {self._label()} does not use; pass graph.without_edge_weight()"
            )
        if given["pseudo"] is not None:
            graph = graph.with_pseudo(given["pseudo"])
        return graph if given["edge_weight"] is None else graph.with_edge_weight(given["edge_weight"])

    def _check_skip(self, skip: Tensor) -> None:
        check_is_tensor("skip", skip, self, self._label())
        expected = [self.in_channels, self.out_channels]
        if list(skip.shape) != expected:
            raise ValueError(f"skip: {self._label()} expects a matrix of shape {expected}, got {list(skip.shape)}")
        check_device_and_dtype("skip", skip, self, self._label())

    def _label(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels})"

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"


def weight_dtype(x: Tensor) -> torch.dtype:
    """Precision of the basis weights: that of ``x``, but at least float32."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


@torch.no_grad()
def glorot(matrix: Tensor) -> None:
    r"""Uniform in :math:`\pm\sqrt{6 / (\text{fan in} + \text{fan out})}`.

    A stack :math:`\Theta` of shape ``[slots, in, out]`` counts as the one matrix ``[slots · in, out]`` that it
    is in the product, so that the spread of y does not grow with the kernel size.
    """
    bound = math.sqrt(6 / (matrix.numel() / matrix.shape[-1] + matrix.shape[-1]))
    matrix.uniform_(-bound, bound)


def zeros(parameter: Tensor | None) -> None:
    """0, unless there is no such parameter."""
    if parameter is not None:
        nn.init.zeros_(parameter)


# Initial values of the paper's text, and of the authors' public code.
INITS = ("paper", "authors")


@dataclass(frozen=True)
class OperatorInfo:
    """What an operator declares about itself; see :class:`Operator`.

    Any module class that is called as ``conv(x, graph)`` can be used by ``module:Name``. If it is not a subclass of
    :class:`Operator`, the facts that it does not declare have that class's defaults.

    Attributes:
        make: the class, called with ``in_channels``, ``out_channels`` and options.
        options: names of the options that it takes, including ``kernel_size`` and ``dim``.
    """

    make: Callable[..., nn.Module]
    name: str
    title: str
    options: frozenset[str]
    uses_edge_weight: bool
    uses_pseudo: bool
    adds_self_loops: bool
    needs_spirals: bool
    needs_batch_norm: bool
    without_center: Mapping[str, Any]

    @property
    def has_kernel_size(self) -> bool:
        """Whether the operator takes a kernel size; GCN and GIN have one weight matrix."""
        return "kernel_size" in self.options

    def spiral_length(self, kernel_size: int | None, options: Mapping[str, Any]) -> int | None:
        """How long the graph's spirals must be; None if the operator needs none."""
        if not self.needs_spirals:
            return None
        return getattr(self.make, "spiral_length", Operator.spiral_length)(kernel_size or 1, **options)


FACTS = ("uses_edge_weight", "uses_pseudo", "adds_self_loops", "needs_spirals", "needs_batch_norm", "without_center")


def operator_info(name: str) -> OperatorInfo:
    """The facts about an operator; ``name`` as in :func:`make_operator`."""
    make = OPERATORS.get(name)
    if not callable(make):
        raise ValueError(f"operator: {name!r} is not a class of modules, but {make!r}")
    facts = {fact: getattr(make, fact, getattr(Operator, fact)) for fact in FACTS}
    options = frozenset(signature(make).parameters) - {"in_channels", "out_channels"}
    title = getattr(make, "title", "") or getattr(make, "__name__", name)
    return OperatorInfo(make, name, title, options, **facts)


def make_operator(
    name: str,
    in_channels: int,
    out_channels: int,
    *,
    kernel_size: int | tuple[int, ...] | None = None,
    dim: int | None = None,
    **options: Any,
) -> nn.Module:
    """An operator by its name.

    Args:
        name: cheb, feast, gcn, gin, monet, spiral or spline; the entry point of an installed package; or
            ``module:Name``, such as ``mypackage.conv:MyConv``, a class of modules that are called as
            ``conv(x, graph)``.
        in_channels: channels of x.
        out_channels: channels of y.
        kernel_size: the paper's M, the number of weight matrices (for splines, m in each dimension). GCN and GIN have
            one matrix and take none.
        dim: dimension of the graphs' pseudo-coordinates. Operators that do not use them ignore it.
        options: further options of the operator. The paper's † is ``center=False`` for cheb and spiral, and
            ``self_loops=False`` for feast.
    """
    info = operator_info(name)
    if info.has_kernel_size and kernel_size is None:
        raise ValueError(f"kernel_size: {name} needs one, the number of its weight matrices, such as 9")
    if kernel_size is not None and not info.has_kernel_size:
        raise ValueError(f"kernel_size: {name} has one weight matrix and takes none, got {kernel_size}; leave it out")
    for option in options:
        if option not in info.options:
            others = ", ".join(sorted(info.options - {"kernel_size", "dim"})) or "none"
            raise ValueError(f"{option}: {name} has no such option; it has {others}")
    for key, value in {"kernel_size": kernel_size, "dim": dim}.items():
        if key in info.options and value is not None:
            options[key] = value
    conv = info.make(in_channels, out_channels, **options)
    if not isinstance(conv, nn.Module):
        raise TypeError(f"operator: {name} must make a torch.nn.Module, got a {type(conv).__name__}")
    return conv
