r"""The polynomial skip, which the paper mentions beside the affine one and leaves untried.

Gong, Bahri et al., `Geometrically principled connections in graph neural networks
<https://arxiv.org/abs/2004.02658>`_, CVPR 2020, section 4.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from geoskip.arguments import whole_number
from geoskip.blocks.base import SKIPS, Skip
from geoskip.blocks.initial import check_init, start
from geoskip.operators.initial import glorot, zeros
from geoskip.shapes import Float


@SKIPS.register
class PolynomialSkip(Skip):
    r"""A convolution and a small network on the vertex's own features:

    .. math:: y_i = \mathrm{conv}(x, \dots)_i + \mathrm{ELU}(x_i W + c)\, V + b

    An affine map is the polynomial of degree 1 beside a radial basis; "the fully connected layer could be replaced
    by an MLP to obtain polynomial connections", says the paper, meaning higher order. With an ELU, the
    activation of the paper's networks, P is no polynomial in the strict sense, but smooth and as flexible as one.

    In the code: W is ``weight``, ``[in, hidden]``; c ``hidden_bias``; V ``weight_out``, ``[hidden, out]``; b ``bias``,
    the convolution's own where it has one. Added parameters: in·hidden + hidden + hidden·out (and out for b, if
    the convolution has no bias).

    Args:
        conv: any module that maps vertex features.
        in_channels: channels of the receiving vertices' features, if ``conv`` does not say.
        out_channels: channels of the output, if ``conv`` does not say.
        hidden_channels: width of the network, the output's channels if not given, as in GIN's.
        init: ``"glorot"``, or ``"zeros"`` for V: then the block starts as the bare convolution, to the bit. (W is
            drawn when the channels are known; if that is the first call, dropout draws other numbers in it.)
        bias: whether to bring b where the convolution has no ``bias``.
    """

    skip_name = "polynomial"
    skip_title = "polynomial skip"
    skip_prefix = "Poly-"

    weight: nn.Parameter
    hidden_bias: nn.Parameter
    weight_out: nn.Parameter
    hidden_channels: int | None = None
    init: str = "glorot"
    _matrices = ("weight", "weight_out")

    def __init__(
        self,
        conv: nn.Module,
        in_channels: int | None = None,
        out_channels: int | None = None,
        *,
        hidden_channels: int | None = None,
        init: str = "glorot",
        bias: bool = True,
    ) -> None:
        super().__init__(conv, in_channels, out_channels, bias)
        self.init = check_init(init, "PolynomialSkip")
        if hidden_channels is not None:
            hidden_channels = whole_number("hidden_channels", hidden_channels, "PolynomialSkip")
        self.hidden_channels = hidden_channels
        self._make_parameters("weight", "hidden_bias", "weight_out")

    def _shapes(self, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
        hidden = self.hidden_channels or outputs
        return {
            "weight": (inputs, hidden),
            "hidden_bias": (hidden,),
            "weight_out": (hidden, outputs),
            "bias": (outputs,),
        }

    def _reset_skip(self) -> None:
        glorot(self.weight)
        zeros(self.hidden_bias)
        start(self.weight_out, self.init)
        if self.brings_bias:
            zeros(self.bias)

    def shortcut(self, x: Float[Tensor, "*batch vertices channels"]) -> Float[Tensor, "*batch vertices out"]:
        return F.elu(x @ self.weight + self.hidden_bias) @ self.weight_out
