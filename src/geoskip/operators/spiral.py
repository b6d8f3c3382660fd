r"""SpiralNet++: neighbors enumerated along a spiral, a weight matrix for each step along it.

Gong et al., `SpiralNet++: A fast and highly efficient mesh convolution operator
<https://arxiv.org/abs/1911.05856>`_, ICCV workshops 2019.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from geoskip.arguments import whole_number
from geoskip.graphs import Graph
from geoskip.kernels import Pattern, basis_convolution, sort_edges
from geoskip.operators.base import OPERATORS, Operator, weight_dtype
from geoskip.shapes import Float, Int


@OPERATORS.register
class SpiralConv(Operator):
    r"""The vertices of the spiral :math:`S(i) = (i, s_1, s_2, \dots)` around each vertex, concatenated:

    .. math:: y_i = \sum_{m=0}^{M-1} x_{S(i)_{m \delta}} \Theta_m + b

    In the code: Θ is ``theta``, M ``kernel_size``, δ ``dilation``, S ``graph.spirals``. The center vertex is the
    first of the sequence and so has a matrix of its own; the paper's SpiralNet++† is ``center=False``, one step
    down the spiral, :math:`S(i)_{1 + m\delta}`, with as many parameters. Beyond the end of a mesh the features are 0.
    Parameters: M·in·out + out.

    Args:
        in_channels: channels of x.
        out_channels: channels of y.
        kernel_size: M, the number of steps.
        dilation: δ, the number of vertices from one step to the next.
        center: whether the sequence starts with the vertex itself.
        bias: whether to add b.
    """

    name = "spiral"
    title = "SpiralNet++"
    needs_spirals = True
    without_center: ClassVar[Mapping[str, Any]] = {"center": False}

    @classmethod
    def spiral_length(cls, kernel_size: int, **options: Any) -> int:
        first = 0 if options.get("center", True) else 1
        return first + (kernel_size - 1) * options.get("dilation", 1) + 1

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        kernel_size: int,
        dilation: int = 1,
        center: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size)
        self.dilation = whole_number("dilation", dilation, "SpiralConv")
        self.center = center
        self.theta = nn.Parameter(torch.empty(self.kernel_size, self.in_channels, self.out_channels))
        self.add_bias(bias)
        self.reset_parameters()

    def convolve(self, x: Tensor, graph: Graph, skip: Tensor | None) -> Tensor:
        dtype = weight_dtype(x)
        key = "spiral", self.kernel_size, self.dilation, self.center, dtype
        pattern, weights = graph.remember(key, lambda: self._edges(graph, dtype))
        theta, bias = self._tensors("theta", "bias")
        return basis_convolution(x, weights, theta, pattern, skip, bias)

    def _edges(self, graph: Graph, dtype: torch.dtype) -> tuple[Pattern, Float[Tensor, "edges 1"]]:
        """One set of edges per step, of weight 1: vertex i receives from the vertex at that step of its spiral.

        Beyond the end of the mesh (-1) a vertex receives from itself with weight 0, so that the number of edges is
        fixed.
        """
        steps = self._spirals(graph).t()
        num_steps, num_vertices = steps.shape
        receivers = torch.arange(num_vertices, device=graph.device).expand_as(steps)
        groups = torch.arange(num_steps, device=graph.device).unsqueeze(1).expand_as(steps)
        senders = torch.where(steps < 0, receivers, steps)
        pattern, order = sort_edges(
            senders.flatten(), receivers.flatten(), num_vertices, num_vertices, groups.flatten(), num_steps
        )
        return pattern, (steps >= 0).flatten()[order].to(dtype).unsqueeze(1)

    def _spirals(self, graph: Graph) -> Int[Tensor, "vertices slots"]:
        """The part of the graph's spirals that the operator uses."""
        needed = self.spiral_length(self.kernel_size, dilation=self.dilation, center=self.center)
        if graph.spirals is None:
            raise ValueError(
                "graph: SpiralConv needs spirals, which only a mesh has; attach them with graph.with_spirals(...)"
            )
        if graph.spirals.shape[1] < needed:
            raise ValueError(
                f"spirals: SpiralConv with kernel_size={self.kernel_size}, dilation={self.dilation}, "
                f"center={self.center} needs spirals of length {needed}, the graph's have {graph.spirals.shape[1]}; "
                "make longer ones"
            )
        return graph.spirals[:, 0 if self.center else 1 : needed : self.dilation]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, dilation={self.dilation}, center={self.center}"
