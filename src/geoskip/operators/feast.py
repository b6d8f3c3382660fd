r"""FeaStNet: neighbors are softly assigned to weight matrices by their features.

Verma et al., `FeaStNet: Feature-steered graph convolutions for 3D shape analysis
<https://arxiv.org/abs/1706.05206>`_, CVPR 2018.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from geoskip.graphs import Graph, WeightedEdges, mean_weights, with_self_loops
from geoskip.kernels import softmax_convolution
from geoskip.operators.base import INITS, OPERATORS, Operator, weight_dtype, zeros
from geoskip.registry import check_choice


@OPERATORS.register
class FeaStConv(Operator):
    r"""A softmax over the weight matrices assigns each neighbor to them:

    .. math::
        y_i = \frac1{|\mathcal N(i)|} \sum_{m=1}^M \sum_{j \in \mathcal N(i)} q_m(x_i, x_j)\, x_j \Theta_m + b,
        \qquad q_m(x_i, x_j) = \operatorname{softmax}_m\big(\langle a_m, x_j - x_i\rangle + c_m\big)

    In the code: Θ is ``theta``, a ``attention``, c ``offset``, M ``kernel_size``. The paper takes
    :math:`i \in \mathcal N(i)`: that is ``self_loops``; its FeaStNet† is ``self_loops=False``. Without
    ``translation_invariant`` the logits are :math:`\langle a_m, x_j\rangle + \langle a'_m, x_i\rangle + c_m` with
    a' ``receiver_attention``. A self-loop that the graph has is merged with that of ``self_loops``; with
    ``self_loops=False`` it is a neighbor like any other. A vertex without neighbors has y = b.
    Parameters: M·in·out + M·in + M + out (and M·in for a').

    Args:
        in_channels: channels of x.
        out_channels: channels of y.
        kernel_size: M, the number of weight matrices.
        self_loops: whether a vertex is its own neighbor.
        translation_invariant: whether the assignment depends on x_j - x_i alone.
        bias: whether to add b.
        init: initial value of b. ``"paper"``: 0. ``"authors"``: drawn from N(0, 0.1) like all other parameters, as in
            the authors' public code.
    """

    name = "feast"
    title = "FeaStNet"
    adds_self_loops = True
    without_center: ClassVar[Mapping[str, Any]] = {"self_loops": False}

    receiver_attention: nn.Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        kernel_size: int,
        self_loops: bool = True,
        translation_invariant: bool = True,
        bias: bool = True,
        init: str = "paper",
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size)
        self.self_loops = self_loops
        check_choice("init", init, INITS)
        self.init = init
        self.theta = nn.Parameter(torch.empty(self.kernel_size, self.in_channels, self.out_channels))
        self.attention = nn.Parameter(torch.empty(self.kernel_size, self.in_channels))
        self.offset = nn.Parameter(torch.empty(self.kernel_size))
        steered = None if translation_invariant else nn.Parameter(torch.empty(self.kernel_size, self.in_channels))
        self.register_parameter("receiver_attention", steered)
        self.add_bias(bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for name, parameter in self.named_parameters():
            if name == "bias" and self.init == "paper":
                zeros(parameter)
            else:
                nn.init.normal_(parameter, std=0.1)

    def convolve(self, x: Tensor, graph: Graph, skip: Tensor | None) -> Tensor:
        pattern, shares = self._edges(graph, weight_dtype(x))
        names = "attention", "receiver_attention", "offset", "theta", "bias"
        attention, receiver_attention, offset, theta, bias = self._tensors(*names)
        return softmax_convolution(x, attention, receiver_attention, offset, shares, theta, pattern, skip, bias)

    def _edges(self, graph: Graph, dtype: torch.dtype) -> WeightedEdges:
        """The edges, each with the weight 1/|N(i)|."""

        def build() -> WeightedEdges:
            if self.self_loops:
                edges = with_self_loops(graph, dtype)
            else:
                edges = WeightedEdges(graph.pattern, torch.ones_like(graph.pattern.senders, dtype=dtype))
            return WeightedEdges(edges.pattern, mean_weights(edges))

        return graph.remember(("feast", self.self_loops, dtype), build)

    def extra_repr(self) -> str:
        invariant = self.receiver_attention is None
        return f"{super().extra_repr()}, self_loops={self.self_loops}, translation_invariant={invariant}"
