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
from geoskip.graphs.checks import values_readable
from geoskip.kernels import basis_convolution
from geoskip.operators.base import OPERATORS, Operator, weight_dtype
from geoskip.operators.input_checks import pseudo_of
from geoskip.shapes import Float


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
        self.theta = nn.Parameter(torch.empty(math.prod(sizes), self.in_channels, self.out_channels))
        self.add_bias(bias)
        self.reset_parameters()

    def _check_splines(self) -> None:
        if self.degree not in (1, 2, 3):
            raise ValueError(f"degree: SplineConv has B-splines of degree 1, 2 and 3, got {self.degree}")
        for name, values in [("kernel_size", self.sizes), ("closed", self.closed)]:
            if len(values) != self.dim:
                raise ValueError(f"{name}: expected one value for each of {self.dim} dimensions, got {values}")
        for size, closed in zip(self.sizes, self.closed, strict=True):
            if not closed and 1 < size <= self.degree:
                raise ValueError(
                    f"kernel_size: {size} open B-splines cannot have degree {self.degree}; take 1, or at least "
                    f"{self.degree + 1}"
                )

    def convolve(self, x: Tensor, graph: Graph, skip: Tensor | None) -> Tensor:
        pseudo, dtype = pseudo_of(graph, self.dim, "SplineConv"), weight_dtype(x)

        def build() -> Tensor:
            ones = torch.ones_like(graph.pattern.senders, dtype=dtype)
            shares = mean_weights(WeightedEdges(graph.pattern, ones))
            products = bspline_products(pseudo.to(dtype), self.sizes, self.degree, self.closed) * shares.unsqueeze(1)
            return products.t().contiguous().t()

        weights = graph.remember(("spline", self.sizes, self.degree, self.closed, dtype), build, of=pseudo)
        theta, bias = self._tensors("theta", "bias")
        return basis_convolution(x, weights, theta, graph.pattern, skip, bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, dim={self.dim}, degree={self.degree}, closed={self.closed}"


def bspline_products(
    pseudo: Float[Tensor, "edges dim"], sizes: tuple[int, ...], degree: int, closed: tuple[bool, ...]
) -> Float[Tensor, "edges slots"]:
    r""":math:`B_{k_1 \dots k_d}(u) = \prod_d b_{k_d}(u_d)`, all :math:`\prod_d m_d` of them, the last dimension
    running fastest. They are non-negative and sum to 1."""
    _check_range(pseudo)
    product = pseudo.new_ones(pseudo.shape[0], 1)
    for axis, (size, loop) in enumerate(zip(sizes, closed, strict=True)):
        factor = bspline(pseudo[:, axis], size, degree, loop)
        product = (product.unsqueeze(2) * factor.unsqueeze(1)).flatten(1)
    return product


def bspline(u: Float[Tensor, " edges"], size: int, degree: int, closed: bool) -> Float[Tensor, "edges size"]:
    r"""The ``size`` B-splines of a degree at u; of each u, ``degree + 1`` neighbors are non-zero.

    Open splines have :math:`m - p` spans on [0, 1]; closed ones have m, and the last joins the first.
    One spline alone is the constant 1.
    """
    if size == 1:
        return torch.ones_like(u).unsqueeze(1)
    spans = size if closed else size - degree
    position = u * spans
    left = position.detach().floor()
    values = _local(position - left, degree)
    index = (left.long().unsqueeze(1) + torch.arange(degree + 1, device=u.device)) % size
    return values.new_zeros(u.shape[0], size).scatter_add(1, index, values)


def _local(t: Tensor, degree: int) -> Tensor:
    """The degree + 1 splines that are non-zero on a span, at t in [0, 1) along it."""
    if degree == 1:
        pieces = [1 - t, t]
    elif degree == 2:
        pieces = [(1 - t) ** 2 / 2, (1 + 2 * t - 2 * t**2) / 2, t**2 / 2]
    else:
        pieces = [
            (1 - t) ** 3 / 6,
            (3 * t**3 - 6 * t**2 + 4) / 6,
            (-3 * t**3 + 3 * t**2 + 3 * t + 1) / 6,
            t**3 / 6,
        ]
    return torch.stack(pieces, dim=1)


def _check_range(pseudo: Tensor) -> None:
    if not values_readable(pseudo):
        return
    low, high = (float(value) for value in torch.aminmax(pseudo.detach()))
    if not (low >= 0 and high <= 1):
        raise ValueError(
            f"pseudo: B-splines are defined on [0, 1], the pseudo-coordinates run from {low:g} to {high:g}; "
            "normalize them, as geoskip.graphs.cartesian does"
        )
