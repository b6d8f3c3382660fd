r"""SpiralNet++: neighbors enumerated along a spiral, a weight matrix for each place on it.

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
from geoskip.operators.initial import glorot, zeros
from geoskip.shapes import Bool, Float


def spiral(
    x: Float[Tensor, "*batch vertices channels"],
    graph: Graph,
    theta: Float[Tensor, "slots channels out"],
    dilation: int = 1,
    center: bool = True,
    bias: Float[Tensor, " out"] | None = None,
    skip: Float[Tensor, "channels out"] | None = None,
) -> Float[Tensor, "*batch vertices out"]:
    """See :class:`SpiralConv`."""
    places = _places(graph, theta.shape[0], dilation, center)
    pattern, present = graph.remember(("spiral", places.start, places.stop, places.step), lambda: _edges(graph, places))
    return basis_convolution(x, present.to(weight_dtype(x)).unsqueeze(1), theta, pattern, skip, bias)


def _places(graph: Graph, kernel_size: int, dilation: int, center: bool) -> slice:
    first = 0 if center else 1
    needed = SpiralConv.spiral_length(kernel_size, dilation=dilation, center=center)
    if graph.spirals is None:
        raise ValueError(
            "graph: SpiralConv needs spirals, which only a mesh has; attach them with graph.with_spirals(...)"
        )
    if graph.spirals.shape[1] < needed:
        raise ValueError(
            f"spirals: SpiralConv with kernel_size={kernel_size}, dilation={dilation}, center={center} needs "
            f"spirals of length {needed}, the graph's have {graph.spirals.shape[1]}; make longer ones"
        )
    return slice(first, needed, dilation)


def _edges(graph: Graph, places: slice) -> tuple[Pattern, Bool[Tensor, " edges"]]:
    """One set of edges per place: vertex i hears the vertex at that place of its spiral.

    Where the mesh has ended (-1), the vertex hears itself with weight 0, so that the number of edges is fixed.
    """
    assert graph.spirals is not None
    spirals = graph.spirals[:, places].t()
    groups, num_vertices = spirals.shape
    receivers = torch.arange(num_vertices, device=graph.device).expand_as(spirals)
    place = torch.arange(groups, device=graph.device).unsqueeze(1).expand_as(spirals)
    senders = torch.where(spirals < 0, receivers, spirals)
    pattern, order = sort_edges(
        senders.flatten(), receivers.flatten(), num_vertices, num_vertices, place.flatten(), groups
    )
    return pattern, (spirals >= 0).flatten()[order]


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
        kernel_size: M, the number of places.
        dilation: every how many vertices of the spiral a place lies.
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
        self._make_bias(bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot(self.theta)
        zeros(self.bias)

    def convolve(self, x: Tensor, graph: Graph, skip: Tensor | None) -> Tensor:
        return spiral(x, graph, self.theta, self.dilation, self.center, self.bias, skip)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, dilation={self.dilation}, center={self.center}"
