r"""GCN: one weight matrix after a step of Laplacian smoothing.

Kipf and Welling, `Semi-supervised classification with graph convolutional networks
<https://arxiv.org/abs/1609.02907>`_, ICLR 2017.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from geoskip.graphs import Graph, gcn_edges
from geoskip.kernels import basis_convolution
from geoskip.operators.base import OPERATORS, Operator, weight_dtype


@OPERATORS.register
class GCNConv(Operator):
    r"""The neighbors and the vertex itself, weighted by the inverse roots of their degrees:

    .. math::
        y_i = \sum_{j \in \mathcal N(i) \cup \{i\}} \frac{w_{ij}\, x_j}{\sqrt{\tilde d_i \tilde d_j}} \Theta + b,
        \qquad \tilde d_i = \sum_{j \in \mathcal N(i) \cup \{i\}} w_{ij}

    with the edge weights :math:`w_{ij}`; without them all are 1, and :math:`\tilde d_i = |\mathcal N(i)| + 1`. The
    self-loop belongs to the definition; it shares Θ with the neighbors, so it is no separate term for the center
    vertex. Its weight is 1, or that of the self-loop that the graph already has (of several, the last one's).
    Duplicate edges count as often as they occur. As in PyTorch Geometric, a vertex with :math:`\tilde d_i = 0`
    neither sends nor receives.
    Parameters: in·out + out.

    Args:
        in_channels: channels of x.
        out_channels: channels of y.
        bias: whether to add b.
        renormalize: whether degrees count the self-loops, as above. Without, the matrix is
            :math:`I + D^{-1/2} A D^{-1/2}`. The paper sets the two equal; Kipf and Welling replace the second by the
            first.
    """

    name = "gcn"
    title = "GCN"
    uses_edge_weight = True
    adds_self_loops = True

    def __init__(self, in_channels: int, out_channels: int, *, bias: bool = True, renormalize: bool = True) -> None:
        super().__init__(in_channels, out_channels)
        self.renormalize = renormalize
        self.theta = nn.Parameter(torch.empty(self.in_channels, self.out_channels))
        self.add_bias(bias)
        self.reset_parameters()

    def convolve(self, x: Tensor, graph: Graph, skip: Tensor | None) -> Tensor:
        pattern, weights = gcn_edges(graph, weight_dtype(x), self.renormalize)
        theta, bias = self._tensors("theta", "bias")
        return basis_convolution(x, weights, theta, pattern, skip, bias)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}"
