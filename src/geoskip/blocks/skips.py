r"""Skips: the affine skip that the paper proposes, the residual skip it compares with, and the polynomial skip.

Gong, Bahri et al., `Geometrically principled connections in graph neural networks
<https://arxiv.org/abs/2004.02658>`_, CVPR 2020, section 4, which mentions the polynomial skip without trying it.
He et al., `Deep residual learning for image recognition <https://arxiv.org/abs/1512.03385>`_, CVPR 2016.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from geoskip.arguments import check_type, whole_number
from geoskip.blocks.base import SKIPS, Skip
from geoskip.operators import Operator
from geoskip.registry import check_choice, unknown_name
from geoskip.shapes import Float

NO_SKIP = "none"


@SKIPS.register
class AffineSkip(Skip):
    r"""A convolution plus an affine map of the vertex's own features, as in a thin plate spline:

    .. math:: y_i = \mathrm{conv}(x, \dots)_i + x_i A + b

    .. code-block:: python

        block = AffineSkip(GATConv(8, 16))
        y = block(x, edge_index)  # called like the convolution

    In the code: A is ``weight``, ``[in, out]``; b is ``bias``, which is the convolution's own if it has one, because a
    block of the paper has one bias. Added parameters: in·out (and out for b, if the convolution has no bias). Around an
    operator of geoskip, A goes into the kernel as one more basis function; around any other module the product is added
    to its output. :class:`~geoskip.blocks.Skip` says more.

    Args:
        conv: any module that maps vertex features: an operator, a convolution of PyTorch Geometric, your own.
        in_channels: channels of the receiving vertices' features, if ``conv`` does not declare them.
        out_channels: channels of the output, if ``conv`` does not declare them.
        init: initial values of A. ``"glorot"``, or ``"zeros"``: then the block starts bitwise equal to the convolution.
        bias: whether to add b if the convolution has no ``bias``.
    """

    skip_name = "affine"
    skip_title = "affine skip"
    skip_prefix = "Aff-"

    weight: nn.Parameter

    def parameter_shapes(self, in_channels: int, out_channels: int) -> dict[str, tuple[int, ...]]:
        return {"weight": (in_channels, out_channels)}

    def shortcut(self, x: Float[Tensor, "*batch vertices channels"]) -> Float[Tensor, "*batch vertices out"]:
        return x @ self.weight

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        # Not as attributes, whose lookup in a module runs in Python; a parametrized weight is one.
        conv, weight = self._modules["conv"], self._parameters.get("weight")
        if self.part != "both" or not isinstance(conv, Operator):
            return super().forward(*args, **kwargs)
        y = conv(*args, skip=self.weight if weight is None else weight, **kwargs)
        return (y + self._b).to(y.dtype) if self.adds_bias else y


@SKIPS.register
class ResidualSkip(Skip):
    r"""A convolution plus the vertex's own features:

    .. math:: y_i = \mathrm{conv}(x, \dots)_i + x_i I_{in \times out}

    with the rectangular identity: padded with zeros if channels grow, cut to the leading channels if they shrink. It
    adds no parameters, as the paper's counts for Res-blocks show; it is option A of He et al.

    Args:
        conv: any module that maps vertex features.
        in_channels: channels of the receiving vertices' features, if ``conv`` does not declare them.
        out_channels: channels of the output, if ``conv`` does not declare them.
    """

    skip_name = "residual"
    skip_title = "residual skip"
    skip_prefix = "Res-"

    def __init__(self, conv: nn.Module, in_channels: int | None = None, out_channels: int | None = None) -> None:
        super().__init__(conv, in_channels, out_channels, bias=False)

    def shortcut(self, x: Float[Tensor, "*batch vertices channels"]) -> Float[Tensor, "*batch vertices out"]:
        inputs, outputs = self._known_channels()
        x = x if x.layout is torch.strided else x.to_dense()
        return x[..., :outputs] if outputs <= inputs else F.pad(x, (0, outputs - inputs))


@SKIPS.register
class PolynomialSkip(Skip):
    r"""A convolution plus a small network on the vertex's own features:

    .. math:: y_i = \mathrm{conv}(x, \dots)_i + \mathrm{ELU}(x_i W + c)\, V + b

    The affine map of a thin plate spline is its polynomial of degree 1. The paper suggests that "the fully connected
    layer could be replaced by an MLP to obtain polynomial connections" of higher order. With an ELU, the activation of
    the paper's networks, P is not a polynomial in the strict sense, but smooth and as flexible as one.

    In the code: W is ``weight``, ``[in, hidden]``; c ``hidden_bias``; V ``weight_out``, ``[hidden, out]``; b ``bias``,
    the convolution's own if it has one. Added parameters: in·hidden + hidden + hidden·out (and out for b, if the
    convolution has no bias).

    Args:
        conv: any module that maps vertex features.
        in_channels: channels of the receiving vertices' features, if ``conv`` does not declare them.
        out_channels: channels of the output, if ``conv`` does not declare them.
        hidden_channels: width of the network; by default the output's channels, as in GIN.
        init: initial values of V. ``"glorot"``, or ``"zeros"``: then the block starts bitwise equal to the
            convolution. (W is drawn when the channels are known; if that is the first call, dropout in it draws other
            numbers.)
        bias: whether to add b if the convolution has no ``bias``.
    """

    skip_name = "polynomial"
    skip_title = "polynomial skip"
    skip_prefix = "Poly-"

    weight: nn.Parameter
    hidden_bias: nn.Parameter
    weight_out: nn.Parameter
    hidden_channels: int | None = None

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
        # First, because parameter_shapes uses it.
        if hidden_channels is not None:
            self.hidden_channels = whole_number("hidden_channels", hidden_channels, "PolynomialSkip")
        super().__init__(conv, in_channels, out_channels, init=init, bias=bias)

    def parameter_shapes(self, in_channels: int, out_channels: int) -> dict[str, tuple[int, ...]]:
        hidden = self.hidden_channels or out_channels
        return {"weight": (in_channels, hidden), "hidden_bias": (hidden,), "weight_out": (hidden, out_channels)}

    def shortcut(self, x: Float[Tensor, "*batch vertices channels"]) -> Float[Tensor, "*batch vertices out"]:
        return F.elu(x @ self.weight + self.hidden_bias) @ self.weight_out


def skip_names() -> tuple[str, ...]:
    """Everything that ``--skip`` accepts by name: ``"none"`` and the registered skips."""
    return (NO_SKIP, *SKIPS.names())


def skip_prefix(skip: str) -> str:
    """What tables print before the operator: ``"Aff-"`` for the affine skip, nothing without a skip."""
    return "" if skip == NO_SKIP else find_skip(skip).skip_prefix


def find_skip(skip: str, argument: str = "skip") -> type[Skip]:
    """A skip by its name, the entry point of an installed package, or ``module:Name``."""
    if not isinstance(skip, str) or (":" not in skip and skip not in SKIPS):
        choices = skip_names() if argument == "skip" else SKIPS.names()
        raise ValueError(f"{argument}: {unknown_name(skip, choices)}")
    kind = SKIPS.get(skip)
    if not isinstance(kind, type) or not issubclass(kind, Skip):
        raise ValueError(f"skip: {skip} is not a subclass of geoskip.blocks.Skip")
    return kind


def make_block(conv: nn.Module, skip: str = NO_SKIP, **options: Any) -> nn.Module:
    """``conv`` with a skip around it: ``"none"`` (``conv`` itself), ``"residual"``, ``"affine"`` or ``"polynomial"``.

    ``options`` are those of the skip's class; ``"none"`` has none.
    """
    if skip == NO_SKIP:
        if options:
            raise ValueError(f"make_block: skip='none' takes no options, got {sorted(options)}")
        return conv
    return find_skip(skip)(conv, **options)


def takes_option(kind: type[Skip], name: str) -> bool:
    """Whether a skip has an option: a residual skip has neither ``init`` nor ``bias``."""
    return name in signature(kind).parameters


@contextmanager
def only(model: nn.Module, part: str) -> Iterator[None]:
    """A context in which every block of ``model`` computes one part only.

    ``with only(autoencoder.decoder, "affine"): …`` decodes through the affine skips, as in the paper's figure of what
    they learn; ``"convolution"`` leaves the skips out. The block's bias belongs to the affine part. A block whose
    convolution returns a tuple, for example with attention weights, returns only the features in its affine part.
    """
    check_type("model", model, nn.Module)
    check_choice("part", part, ("affine", "convolution"))
    blocks = [module for module in model.modules() if isinstance(module, Skip)]
    if not blocks:
        raise ValueError(f"model: {type(model).__name__} has no blocks with skips; add some with add_skips(model)")
    before = [block.part for block in blocks]
    try:
        for block in blocks:
            block.part = part
        yield
    finally:
        for block, old in zip(blocks, before, strict=True):
            block.part = old
