r"""GIN: sums over neighbors and a small network, as discriminative as the Weisfeiler-Lehman test.

Xu et al., `How powerful are graph neural networks? <https://arxiv.org/abs/1810.00826>`_, ICLR 2019.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from geoskip.arguments import real_number, whole_number
from geoskip.graphs import Graph, weighted_edges
from geoskip.kernels import perceptron_convolution
from geoskip.operators.base import OPERATORS, Operator, glorot, weight_dtype, zeros


@OPERATORS.register
class GINConv(Operator):
    r"""The sum of the neighbors and the vertex itself, then a network of two layers with a ReLU between them:

    .. math:: y_i = \gamma\Big((1+\epsilon)\, x_i + \sum_{j \in \mathcal N(i)} w_{ij}\, x_j\Big)

    with the edge weights :math:`w_{ij}`, 1 if there are none. PyTorch Geometric's GINConv takes no weights; its
    GraphConv sums in this way. In the code: γ is ``theta``, ``hidden_bias``, ``theta_out`` and ``bias``. The center
    term belongs to the definition. ε = 0 and fixed by default, the paper's GIN-0; γ's last bias is the block's one
    bias. A self-loop that the graph has is one more neighbor, in addition to the center term.
    Parameters: in·hidden + hidden + hidden·out + out (and 1 for a trained ε).

    Args:
        in_channels: channels of x.
        out_channels: channels of y.
        hidden_channels: width of the network, ``out_channels`` if not given.
        epsilon: ε, or its initial value.
        train_epsilon: whether ε is learned.
    """

    name = "gin"
    title = "GIN-0"
    uses_edge_weight = True
    needs_batch_norm = True

    epsilon: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden_channels: int | None = None,
        epsilon: float = 0.0,
        train_epsilon: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels)
        hidden = self.out_channels
        if hidden_channels is not None:
            hidden = whole_number("hidden_channels", hidden_channels, "GINConv")
        self.initial_epsilon = real_number("epsilon", epsilon, "GINConv")
        self.theta = nn.Parameter(torch.empty(self.in_channels, hidden))
        self.hidden_bias = nn.Parameter(torch.empty(hidden))
        self.theta_out = nn.Parameter(torch.empty(hidden, self.out_channels))
        self.add_bias(True)
        if train_epsilon:
            self.epsilon = nn.Parameter(torch.empty(()))
        else:
            self.register_buffer("epsilon", torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot(self.theta)
        glorot(self.theta_out)
        zeros(self.hidden_bias)
        zeros(self.bias)
        nn.init.constant_(self.epsilon, self.initial_epsilon)

    def convolve(self, x: Tensor, graph: Graph, skip: Tensor | None) -> Tensor:
        pattern, weights = weighted_edges(graph, weight_dtype(x))
        names = "epsilon", "theta", "hidden_bias", "theta_out", "bias"
        epsilon, theta, hidden_bias, theta_out, bias = self._tensors(*names)
        return perceptron_convolution(x, weights, epsilon, theta, pattern, hidden_bias, theta_out, skip, bias)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, hidden_channels={self.theta.shape[1]}"
