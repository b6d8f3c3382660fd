"""The fully connected layer of the paper: Glorot weights, biases 0."""

from torch import Tensor, nn

from geoskip.kernels import linear
from geoskip.operators.initial import glorot, zeros
from geoskip.shapes import Float


class GlorotLinear(nn.Linear):
    """``nn.Linear`` with the initial values of the paper's appendix; the paper's Lin and FC."""

    def reset_parameters(self) -> None:
        glorot(self.weight)
        zeros(self.bias)

    def forward(self, x: Float[Tensor, "*rows channels"]) -> Float[Tensor, "*rows out"]:
        return linear(x, self.weight, self.bias)
