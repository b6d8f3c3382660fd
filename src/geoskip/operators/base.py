"""The base class of all operators: channels, the two ways to call one, checks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from geoskip.arguments import whole_number
from geoskip.graphs import Graph
from geoskip.graphs.checks import as_tensor
from geoskip.operators.checks import (
    check_features,
    check_home,
    check_is_tensor,
    check_order,
    refuse_to_hetero,
    with_edge_values,
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
    ``edge_index`` and replace those that the graph carries. Edge weights that the operator does not use raise an error.

    ``skip`` is the matrix :math:`A` of an affine skip, ``[in, out]``: :math:`y_i` gains :math:`x_i A`.
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

    bias: nn.Parameter | None

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        name = type(self).__name__
        self.in_channels = whole_number("in_channels", in_channels, name)
        self.out_channels = whole_number("out_channels", out_channels, name)
        self.kernel_size = whole_number("kernel_size", kernel_size, name)

    def _make_bias(self, wanted: bool) -> None:
        self.register_parameter("bias", nn.Parameter(torch.empty(self.out_channels)) if wanted else None)

    @classmethod
    def spiral_length(cls, kernel_size: int, **options: Any) -> int | None:
        """How long the graph's spirals must be for an operator with these options; None if it needs none."""
        return None

    @abstractmethod
    def reset_parameters(self) -> None:
        """Draw new initial values."""

    @abstractmethod
    def convolve(
        self,
        x: Float[Tensor, "*batch vertices channels"],
        graph: Graph,
        skip: Float[Tensor, "channels out"] | None,
    ) -> Float[Tensor, "*batch vertices out"]:
        """The formula, on checked input."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        remedy = "Build the model with PyTorch Geometric's convolutions, transform it, then call add_skips"
        refuse_to_hetero(self._say, remedy, args, kwargs)
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
        check_order(x, graph, "conv")
        self._check_features(x)
        if isinstance(graph, np.ndarray):
            graph = as_tensor("edge_index", graph, x.device)
        if isinstance(graph, Tensor):
            graph = Graph.from_edge_index(graph, x.shape[-2])
        elif not isinstance(graph, Graph):
            raise TypeError(
                f"graph: expected a Graph or an edge_index, got {type(graph).__name__}; see Graph.from_edge_index, "
                "from_faces and from_pyg"
            )
        self._check_graph(x, graph)
        graph = with_edge_values(self, graph, edge_values, edge_weight, pseudo)
        if skip is not None:
            self._check_skip(skip)
        return self.convolve(x, graph, skip)

    def _check_features(self, x: Tensor) -> None:
        check_features("x", x, self.in_channels, self, self._say())

    def _check_graph(self, x: Tensor, graph: Graph) -> None:
        if graph.num_vertices != x.shape[-2]:
            raise ValueError(
                f"x: has {x.shape[-2]} vertices, the graph {graph.num_vertices}; pass the graph that x belongs to"
            )
        if graph.device != x.device:
            raise ValueError(f"graph: is on {graph.device}, x on {x.device}; move one with .to()")

    def _check_skip(self, skip: Tensor) -> None:
        check_is_tensor("skip", skip, self, self._say())
        wanted = [self.in_channels, self.out_channels]
        if list(skip.shape) != wanted:
            raise ValueError(f"skip: {self._say()} expects a matrix of shape {wanted}, got {list(skip.shape)}")
        check_home("skip", skip, self, self._say())

    def _say(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels})"

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"


def weight_dtype(x: Tensor) -> torch.dtype:
    """Precision of basis weights that the graph gives: that of ``x``, but never less than float32."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32
