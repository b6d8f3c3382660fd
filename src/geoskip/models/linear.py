"""The fully connected layer of the paper: Glorot weights, biases 0."""

from torch import nn

from geoskip.operators.initial import glorot, zeros


class GlorotLinear(nn.Linear):
    """``nn.Linear`` with the initial values of the paper's appendix; the paper's Lin and FC."""

    def reset_parameters(self) -> None:
        glorot(self.weight)
        zeros(self.bias)
