r"""SplineCNN: a continuous kernel made of B-splines over pseudo-coordinates.

Fey et al., `SplineCNN: Fast geometric deep learning with continuous B-spline kernels
<https://arxiv.org/abs/1711.08920>`_, CVPR 2018.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from geoskip.arguments import whole_number, whole_numbers
from geoskip.graphs import Graph, WeightedEdges, mean_weights
from geoskip.kernels import basis_convolution
from geoskip.operators.base import OPERATORS, Operator, weight_dtype
from geoskip.operators.bspline import bspline_products, check_size
from geoskip.operators.checks import pseudo_of
from geoskip.operators.initial import glorot, zeros
from geoskip.shapes import Float


def spline(
    x: Float[Tensor, "*batch vertices channels"],
    graph: Graph,
    theta: Float[Tensor, "slots channels out"],
    sizes: tuple[int, ...],
    degree: int = 1,
    closed: tuple[bool, ...] | None = None,
    bias: Float[Tensor, " out"] | None = None,
    skip: Float[Tensor, "channels out"] | None = None,
) -> Float[Tensor, "*batch vertices out"]:
    """See :class:`SplineConv`."""
    closed = (False,) * len(sizes) if closed is None else closed
    pseudo = pseudo_of(graph, len(sizes), "SplineConv")
    dtype = weight_dtype(x)

    def build() -> Tensor:
        ones = torch.ones_like(graph.pattern.senders, dtype=dtype)
        shares = mean_weights(WeightedEdges(graph.pattern, ones))
        return bspline_products(pseudo.to(dtype), sizes, degree, closed) * shares.unsqueeze(1)

    key = ("spline", sizes, degree, closed, dtype)
    weights = graph.remember(key, build, of=pseudo)
    return basis_convolution(x, weights, theta, graph.pattern, skip, bias)


@OPERATORS.register
class SplineConv(Operator):
    r"""Each weight matrix belongs to a product of B-splines over pseudo-coordinate space:

    .. math::
        y_i = \frac1{|\mathcal N(i)|} \sum_{m=1}^M \sum_{j \in \mathcal N(i)} B_m(u_{ij})\, x_j \Theta_m + b,
        \qquad B_m(u) = \prod_d b_{m_d}(u_d)

    In the code: Θ is ``theta``, u ``graph.pseudo``, in [0, 1]. ``kernel_size`` is the number of splines in each
    dimension, so :math:`M = m^d`, of which :math:`(p + 1)^d` are non-zero on an edge; with m = 1 the kernel is
    constant. There is no term for the center vertex (the SplineCNN of its authors, and of PyTorch Geometric,
    adds one by default, which is a linear skip). A vertex without neighbors has y = b.
    Parameters: M·in·out + out.

    Args:
        in_channels: channels of x.
        out_channels: channels of y.
        kernel_size: splines per dimension, one number for all or a tuple.
        dim: dimension of the pseudo-coordinates.
        degree: degree p of the splines, 1 to 3.
        closed: whether the splines close up to a loop, one for all dimensions or a tuple.
        bias: whether to add b.
    """

    kernel_size: int | tuple[int, ...]  # type: ignore[assignment]
    name = "spline"
    title = "SplineCNN"
    uses_pseudo = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        kernel_size: int | tuple[int, ...],
        dim: int = 3,
        degree: int = 1,
        closed: bool | tuple[bool, ...] = False,
        bias: bool = True,
    ) -> None:
        dim = whole_number("dim", dim, "SplineConv")
        if isinstance(kernel_size, (tuple, list)):
            sizes = kernel_size = whole_numbers("kernel_size", kernel_size, "SplineConv")
        else:
            kernel_size = whole_number("kernel_size", kernel_size, "SplineConv")
            sizes = (kernel_size,) * dim
        super().__init__(in_channels, out_channels, math.prod(sizes))
        self.kernel_size = kernel_size
        self.dim = dim
        self.degree = whole_number("degree", degree, "SplineConv", least=0)
        self.sizes = sizes
        self.closed = tuple(closed) if isinstance(closed, (tuple, list)) else (closed,) * dim
        self._check_splines()
        self.theta = nn.Parameter(torch.empty(math.prod(self.sizes), self.in_channels, self.out_channels))
        self._make_bias(bias)
        self.reset_parameters()

    def _check_splines(self) -> None:
        if self.degree not in (1, 2, 3):
            raise ValueError(f"degree: SplineConv has B-splines of degree 1, 2 and 3, got {self.degree}")
        for name, values in [("kernel_size", self.sizes), ("closed", self.closed)]:
            if len(values) != self.dim:
                raise ValueError(f"{name}: expected one value for each of {self.dim} dimensions, got {values}")
        for size, closed in zip(self.sizes, self.closed, strict=True):
            check_size(size, self.degree, closed)

    def reset_parameters(self) -> None:
        glorot(self.theta)
        zeros(self.bias)

    def convolve(self, x: Tensor, graph: Graph, skip: Tensor | None) -> Tensor:
        return spline(x, graph, self.theta, self.sizes, self.degree, self.closed, self.bias, skip)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, dim={self.dim}, degree={self.degree}, closed={self.closed}"
