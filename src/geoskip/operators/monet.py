r"""MoNet: Gaussian mixtures over pseudo-coordinates.

Monti et al., `Geometric deep learning on graphs and manifolds using mixture model CNNs
<https://arxiv.org/abs/1611.08402>`_, CVPR 2017.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from geoskip.arguments import whole_number
from geoskip.graphs import Graph
from geoskip.kernels import gaussian_convolution
from geoskip.operators.base import INITS, OPERATORS, Operator, glorot, weight_dtype, zeros
from geoskip.operators.input_checks import pseudo_of
from geoskip.registry import check_choice


@OPERATORS.register
class MoNetConv(Operator):
    r"""Each weight matrix acts on the neighbors that lie near its center in pseudo-coordinate space:

    .. math::
        y_i = \sum_{m=1}^M \Big( \sum_{j \in \mathcal N(i)} w_m(u_{ij})\, x_j \Big) \Theta_m + b, \qquad
        w_m(u) = \exp\Big(-\tfrac12 \sum_d \frac{(u_d - \mu_{md})^2}{\sigma_{md}^2}\Big)

    In the code: Θ is ``theta``, μ ``mean``, σ ``scale``, u ``graph.pseudo``, M ``kernel_size``. The sum runs over
    the neighbors alone: there is no term for the center vertex, and it is not divided by their number. The kernel
    divides by :math:`\sigma^2 + 10^{-15}`, so that σ = 0 is no error.
    Parameters: M·in·out + 2·M·dim + out.

    Args:
        in_channels: channels of x.
        out_channels: channels of y.
        kernel_size: M, the number of Gaussians.
        dim: dimension of the pseudo-coordinates.
        bias: whether to add b.
        init: initial values of Θ. ``"paper"``: Glorot over the whole stack, as in the paper's appendix.
            ``"authors"``: uniform in ±1/sqrt(in), PyTorch's default for linear layers, as in the authors' public
            code. μ and σ are Glorot in both.
    """

    name = "monet"
    title = "MoNet"
    uses_pseudo = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        kernel_size: int,
        dim: int = 3,
        bias: bool = True,
        init: str = "paper",
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size)
        self.dim = whole_number("dim", dim, "MoNetConv")
        check_choice("init", init, INITS)
        self.init = init
        self.theta = nn.Parameter(torch.empty(self.kernel_size, self.in_channels, self.out_channels))
        self.mean = nn.Parameter(torch.empty(self.kernel_size, self.dim))
        self.scale = nn.Parameter(torch.empty(self.kernel_size, self.dim))
        self.add_bias(bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.init == "paper":
            glorot(self.theta)
        else:
            bound = 1 / math.sqrt(self.in_channels)
            nn.init.uniform_(self.theta, -bound, bound)
        glorot(self.mean)
        glorot(self.scale)
        zeros(self.bias)

    def convolve(self, x: Tensor, graph: Graph, skip: Tensor | None) -> Tensor:
        pseudo, dtype = pseudo_of(graph, self.dim, "MoNetConv"), weight_dtype(x)
        if pseudo.dtype is not dtype:
            pseudo = pseudo.to(dtype)
        mean, scale, theta, bias = self._tensors("mean", "scale", "theta", "bias")
        return gaussian_convolution(x, pseudo, mean, scale, theta, graph.pattern, skip, bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, dim={self.dim}"
