r"""ChebNet: filters that are polynomials of the graph Laplacian.

Defferrard et al., `Convolutional neural networks on graphs with fast localized spectral filtering
<https://arxiv.org/abs/1606.09375>`_, NeurIPS 2016.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from geoskip.graphs import Graph, laplacian_edges
from geoskip.kernels import chebyshev_convolution
from geoskip.operators.base import OPERATORS, Operator, weight_dtype


@OPERATORS.register
class ChebConv(Operator):
    r"""Chebyshev polynomials of the Laplacian, with one weight matrix for each:

    .. math::
        y = \sum_{m=0}^{M-1} T_m(L)\, x\, \Theta_m + b, \qquad
        T_0 = I,\ T_1 = L,\ T_k = 2 L T_{k-1} - T_{k-2}, \qquad L = -D^{-1/2} A D^{-1/2}

    (the normalized Laplacian, rescaled with :math:`\lambda_{max} = 2`). In the code: Θ is ``theta``, M
    ``kernel_size``. The term :math:`x \Theta_0` of the center vertex belongs to the definition; the paper's
    ChebNet† is ``center=False``, which takes :math:`T_1 \dots T_M` instead and has as many parameters. Self-loops of
    the graph are left out.

    A holds 1 for each edge, or the edge weights. In a directed graph without weights :math:`d_i` counts the edges that
    i receives, but at least 1, so that a vertex that only sends still counts. With weights, L is PyTorch
    Geometric's: :math:`d_i` sums the weights that i sends, and a vertex where they sum to 0 is left out.
    Parameters: M·in·out + out.

    Args:
        in_channels: channels of x.
        out_channels: channels of y.
        kernel_size: M, the number of polynomials.
        center: whether the polynomials start with T_0.
        bias: whether to add b.
    """

    name = "cheb"
    title = "ChebNet"
    uses_edge_weight = True
    without_center: ClassVar[Mapping[str, Any]] = {"center": False}

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        kernel_size: int,
        center: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size)
        self.center = center
        self.theta = nn.Parameter(torch.empty(self.kernel_size, self.in_channels, self.out_channels))
        self.add_bias(bias)
        self.reset_parameters()

    def convolve(self, x: Tensor, graph: Graph, skip: Tensor | None) -> Tensor:
        pattern, weights = laplacian_edges(graph, weight_dtype(x))
        theta, bias = self._tensors("theta", "bias")
        return chebyshev_convolution(x, weights, theta, pattern, 0 if self.center else 1, skip, bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, center={self.center}"
