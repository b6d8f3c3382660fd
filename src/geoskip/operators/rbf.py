r"""Convolution whose filter is a radial basis function network over pseudo-coordinate space.

MoNet's filter is one with Gaussian kernels; section 3 of Gong, Bahri et al., `Geometrically principled connections in
graph neural networks <https://arxiv.org/abs/2004.02658>`_, CVPR 2020, starts from there.
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn

from geoskip.arguments import whole_number
from geoskip.graphs import Graph
from geoskip.kernels import basis_convolution
from geoskip.operators.base import Operator, weight_dtype
from geoskip.operators.checks import pseudo_of
from geoskip.operators.initial import glorot, zeros
from geoskip.operators.monet import MoNetConv
from geoskip.rbf.interpolant import RBFInterpolant
from geoskip.rbf.kernels import RadialKernel, make_kernel
from geoskip.shapes import Float


def rbf_basis(
    pseudo: Float[Tensor, "edges dim"],
    mean: Float[Tensor, "slots dim"],
    scale: Float[Tensor, "slots dim"],
    kernel: RadialKernel,
) -> Float[Tensor, "edges slots"]:
    r"""φ(‖(u - μ_m) / σ_m‖) for every edge and every m."""
    # The same small number as in MoNet's kernel, so that σ = 0 is no error.
    squared = (pseudo.unsqueeze(1) - mean).square() / (scale.square() + 1e-15)
    return kernel(squared.sum(dim=-1))


class RBFConv(Operator):
    r"""Neighbors weighted by a filter that is an RBF network in their pseudo-coordinates:

    .. math::
        y_i = \sum_{j \in \mathcal N(i)} G(u_{ij})^\top x_j + b, \qquad
        G(u) = \sum_{m=1}^M \varphi\big(\lVert (u - \mu_m) / \sigma_m \rVert\big)\, \Theta_m

    In the code: Θ is ``theta``, μ ``mean``, σ ``scale``, u ``graph.pseudo``, M ``kernel_size``, φ ``kernel``. With the
    Gaussian :math:`e^{-r^2}` and σ larger by √2 it is MoNet, of which the paper has this one case; the others are for
    the analogy and for experiments. The basis is edge-sized here: to train the Gaussian use
    :class:`~geoskip.operators.MoNetConv`.
    Parameters: M·in·out + 2·M·dim + out.

    Args:
        in_channels: channels of x.
        out_channels: channels of y.
        kernel_size: M, the number of centers.
        dim: dimension of the pseudo-coordinates.
        kernel: φ, by a name of ``geoskip.rbf.KERNEL_NAMES`` or as a :class:`~geoskip.rbf.RadialKernel`.
        bias: whether to add b.
    """

    name = "rbf"
    title = "RBF"
    uses_pseudo = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        kernel_size: int,
        dim: int = 3,
        kernel: str | RadialKernel = "gaussian",
        bias: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size)
        self.dim = whole_number("dim", dim, "RBFConv")
        self.kernel = _unit(kernel, self.dim) if isinstance(kernel, str) else kernel
        self.theta = nn.Parameter(torch.empty(self.kernel_size, self.in_channels, self.out_channels))
        self.mean = nn.Parameter(torch.empty(self.kernel_size, self.dim))
        self.scale = nn.Parameter(torch.empty(self.kernel_size, self.dim))
        self._make_bias(bias)
        self.reset_parameters()

    @classmethod
    def from_monet(cls, conv: MoNetConv) -> RBFConv:
        """The same function, seen as an RBF network."""
        slots, inputs, outputs = conv.theta.shape
        made = cls(inputs, outputs, kernel_size=slots, dim=conv.dim, bias=conv.bias is not None).to(conv.theta)
        made.load_state_dict(conv.state_dict() | {"scale": conv.scale * sqrt(2)})
        return made

    @classmethod
    def from_interpolant(cls, interpolant: RBFInterpolant, in_channels: int, out_channels: int) -> RBFConv:
        """With an interpolant over pseudo-coordinates for G, its in·out values a matrix [in, out]; no bias.

        It has no polynomial part: in the block that is the affine skip's place.
        """
        slots, dim = interpolant.centers.shape
        if interpolant.degree >= 0 or interpolant.weights.shape[1] != in_channels * out_channels:
            raise ValueError(
                f"interpolant: expected degree -1 and {in_channels}·{out_channels} outputs, got degree "
                f"{interpolant.degree} and {interpolant.weights.shape[1]}"
            )
        made = cls(in_channels, out_channels, kernel_size=slots, dim=dim, kernel=interpolant.kernel, bias=False).to(
            interpolant.weights
        )
        with torch.no_grad():
            made.theta.copy_(interpolant.weights.reshape(made.theta.shape))
            made.mean.copy_(interpolant.centers)
            made.scale.fill_(1)
        return made

    def reset_parameters(self) -> None:
        glorot(self.theta)
        glorot(self.mean)
        glorot(self.scale)
        zeros(self.bias)

    def convolve(self, x: Tensor, graph: Graph, skip: Tensor | None) -> Tensor:
        pseudo = pseudo_of(graph, self.dim, "RBFConv").to(weight_dtype(x))
        weights = rbf_basis(pseudo, self.mean.to(pseudo.dtype), self.scale.to(pseudo.dtype), self.kernel)
        return basis_convolution(x, weights, self.theta, graph.pattern, skip, self.bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, dim={self.dim}, kernel={self.kernel.name}"


def _unit(name: str, dim: int) -> RadialKernel:
    """Of width 1, as σ is the width; the polyharmonic ones have none."""
    try:
        return make_kernel(name, 1.0, dim)
    except ValueError:
        return make_kernel(name, None, dim)
