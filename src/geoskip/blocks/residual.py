r"""The residual skip, which the paper compares with.

He et al., `Deep residual learning for image recognition <https://arxiv.org/abs/1512.03385>`_, CVPR 2016.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geoskip.blocks.base import SKIPS, Skip
from geoskip.blocks.channels import home_of
from geoskip.shapes import Float


@SKIPS.register
class ResidualSkip(Skip):
    r"""A convolution and the vertex's own features as they are:

    .. math:: y_i = \mathrm{conv}(x, \dots)_i + x_i I_{in \times out}

    with the rectangular identity: zeros fill up where channels grow, the leading channels count where they shrink.
    It adds no parameters, the paper's figures for Res-blocks say so; in He et al. that is their option A.

    Args:
        conv: any module that maps vertex features.
        in_channels: channels of the receiving vertices' features, if ``conv`` does not say.
        out_channels: channels of the output, if ``conv`` does not say.
    """

    skip_name = "residual"
    skip_title = "residual skip"
    skip_prefix = "Res-"

    def __init__(self, conv: nn.Module, in_channels: int | None = None, out_channels: int | None = None) -> None:
        super().__init__(conv, in_channels, out_channels, bias=False)
        self._make_parameters()

    @property
    def weight(self) -> Float[Tensor, "channels out"] | None:
        """The rectangular identity, with which an affine skip would do the same; ``None`` until channels are known."""
        return None if self.skip_channels is None else torch.eye(*self.skip_channels, **home_of(self.conv))

    def _shapes(self, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
        return {}

    def _reset_skip(self) -> None:
        """There is nothing to draw."""

    def shortcut(self, x: Float[Tensor, "*batch vertices channels"]) -> Float[Tensor, "*batch vertices out"]:
        inputs, outputs = self._known_channels()
        return x[..., :outputs] if outputs <= inputs else F.pad(x, (0, outputs - inputs))
