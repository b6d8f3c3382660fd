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
from geoskip.operators.base import Operator, glorot, weight_dtype, zeros
from geoskip.operators.input_checks import pseudo_of
from geoskip.operators.monet import MoNetConv
from geoskip.rbf.interpolant import RBFInterpolant
from geoskip.rbf.radial_kernels import RadialKernel, is_polyharmonic, make_kernel


class RBFConv(Operator):
    r"""Neighbors weighted by a filter that is an RBF network in their pseudo-coordinates:

    .. math::
        y_i = \sum_{j \in \mathcal N(i)} G(u_{ij})^\top x_j + b, \qquad
        G(u) = \sum_{m=1}^M \varphi\big(\lVert (u - \mu_m) / \sigma_m \rVert\big)\, \Theta_m

    In the code: Θ is ``theta``, μ ``mean``, σ ``scale``, u ``graph.pseudo``, M ``kernel_size``, φ ``kernel``. With the
    Gaussian :math:`e^{-r^2}` and σ larger by √2 this is MoNet. The other kernels are not in the paper; they are for
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
        if isinstance(kernel, str):
            # σ is the width, so the kernel's own is 1; polyharmonic kernels have none.
            kernel = make_kernel(kernel, None if is_polyharmonic(kernel) else 1.0, self.dim)
        self.kernel = kernel
        self.theta = nn.Parameter(torch.empty(self.kernel_size, self.in_channels, self.out_channels))
        self.mean = nn.Parameter(torch.empty(self.kernel_size, self.dim))
        self.scale = nn.Parameter(torch.empty(self.kernel_size, self.dim))
        self.add_bias(bias)
        self.reset_parameters()

    @classmethod
    def from_monet(cls, conv: MoNetConv) -> RBFConv:
        """The same function, seen as an RBF network."""
        slots, inputs, outputs = conv.theta.shape
        rbf = cls(inputs, outputs, kernel_size=slots, dim=conv.dim, bias=conv.bias is not None).to(conv.theta)
        rbf.load_state_dict(conv.state_dict() | {"scale": conv.scale * sqrt(2)})
        return rbf

    @classmethod
    def from_interpolant(cls, interpolant: RBFInterpolant, in_channels: int, out_channels: int) -> RBFConv:
        """The operator whose filter G is an interpolant over pseudo-coordinates, with in·out values; no bias.

        The interpolant has no polynomial part, because in a block that is the affine skip.
        """
        slots, dim = interpolant.centers.shape
        if interpolant.degree >= 0 or interpolant.weights.shape[1] != in_channels * out_channels:
            raise ValueError(
                f"interpolant: expected degree -1 and {in_channels}·{out_channels} outputs, got degree "
                f"{interpolant.degree} and {interpolant.weights.shape[1]}"
            )
        conv = cls(in_channels, out_channels, kernel_size=slots, dim=dim, kernel=interpolant.kernel, bias=False)
        conv = conv.to(interpolant.weights)
        with torch.no_grad():
            conv.theta.copy_(interpolant.weights.reshape(conv.theta.shape))
            conv.mean.copy_(interpolant.centers)
            conv.scale.fill_(1)
        return conv

    def reset_parameters(self) -> None:
        glorot(self.theta)
        glorot(self.mean)
        glorot(self.scale)
        zeros(self.bias)

    def convolve(self, x: Tensor, graph: Graph, skip: Tensor | None) -> Tensor:
        pseudo = pseudo_of(graph, self.dim, "RBFConv").to(weight_dtype(x))
        mean, scale = self.mean.to(pseudo.dtype), self.scale.to(pseudo.dtype)
        # The same small number as in MoNet's kernel, so that σ = 0 is no error.
        squared = (pseudo.unsqueeze(1) - mean).square() / (scale.square() + 1e-15)
        return basis_convolution(x, self.kernel(squared.sum(dim=-1)), self.theta, graph.pattern, skip, self.bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, dim={self.dim}, kernel={self.kernel.name}"
