r"""The affine skip, the block that the paper proposes.

Gong, Bahri et al., `Geometrically principled connections in graph neural networks
<https://arxiv.org/abs/2004.02658>`_, CVPR 2020, section 4.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from geoskip.blocks.base import SKIPS, Skip
from geoskip.blocks.initial import check_init, start
from geoskip.operators import Operator
from geoskip.operators.initial import zeros
from geoskip.shapes import Float


@SKIPS.register
class AffineSkip(Skip):
    r"""A convolution and an affine map of the vertex's own features, as a thin plate spline has one:

    .. math:: y_i = \mathrm{conv}(x, \dots)_i + x_i A + b

    In the code: A is ``weight``, ``[in, out]``; b is ``bias``, which is the convolution's own where it has one, so
    that a block has one bias, as the paper counts. Added parameters: in·out (and out for b, if the convolution has
    no bias). Around our own operators A goes into the kernel as one more basis function; around any other module
    the product is added to its output.

    Args:
        conv: any module that maps vertex features: an operator, a convolution of PyTorch Geometric, your own.
        in_channels: channels of the receiving vertices' features, if ``conv`` does not say.
        out_channels: channels of the output, if ``conv`` does not say.
        init: ``"glorot"``, or ``"zeros"``: then the block starts as the bare convolution, to the bit.
        bias: whether to bring b where the convolution has no ``bias``. Some keep theirs elsewhere (PyTorch
            Geometric's SAGEConv in ``lin_l``): pass ``False`` there to save a second one.
    """

    skip_name = "affine"
    skip_title = "affine skip"
    skip_prefix = "Aff-"

    weight: nn.Parameter
    init: str = "glorot"
    _matrices = ("weight",)

    def __init__(
        self,
        conv: nn.Module,
        in_channels: int | None = None,
        out_channels: int | None = None,
        *,
        init: str = "glorot",
        bias: bool = True,
    ) -> None:
        super().__init__(conv, in_channels, out_channels, bias)
        self.init = check_init(init, "AffineSkip")
        if isinstance(conv, Operator) and self.skip_channels != (conv.in_channels, conv.out_channels):
            raise ValueError(
                f"in_channels, out_channels: {self._say()} was given {in_channels}, {out_channels}, but the operator "
                f"maps {conv.in_channels} to {conv.out_channels}; leave them out"
            )
        self._make_parameters("weight")

    def _shapes(self, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
        return {"weight": (inputs, outputs), "bias": (outputs,)}

    def _reset_skip(self) -> None:
        start(self.weight, self.init)
        if self.brings_bias:
            zeros(self.bias)

    def shortcut(self, x: Float[Tensor, "*batch vertices channels"]) -> Float[Tensor, "*batch vertices out"]:
        return x @ self.weight

    def _sum(self, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(self.conv, Operator):
            return super()._sum(*args, **kwargs)
        y = self.conv(*args, skip=self.weight, **kwargs)
        return self._biased(y, self.brings_bias).to(y.dtype)
