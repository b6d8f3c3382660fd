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
from geoskip.blocks.base import NO_SKIP, SKIPS, Skip
from geoskip.blocks.channels import home_of
from geoskip.operators import Operator
from geoskip.operators.base import glorot, zeros
from geoskip.registry import unknown_name
from geoskip.shapes import Float

_STARTS = {"glorot": glorot, "zeros": zeros}


def check_init(init: str, block: str) -> str:
    if not isinstance(init, str) or init not in _STARTS:
        raise ValueError(f"init: {block} starts with one of {sorted(_STARTS)}, got {init!r}")
    return init


def start(matrix: Tensor, init: str) -> None:
    _STARTS[init](matrix)


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
                f"in_channels, out_channels: {self._label()} was given {in_channels}, {out_channels}, but the operator "
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


def takes_init(kind: type[Skip]) -> bool:
    """Whether a skip has initial values to choose; a residual skip has none."""
    return "init" in signature(kind).parameters


@contextmanager
def only(model: nn.Module, part: str) -> Iterator[None]:
    """Within the context every block of ``model`` computes one part alone.

    ``with only(autoencoder.decoder, "affine"): …`` decodes through the affine skips, as the paper's figure of what
    they learn does; ``"convolution"`` leaves the skips out. The block's bias belongs to the affine part. A block
    that returns a tuple, with attention weights say, returns the features alone in its affine part.
    """
    check_type("model", model, nn.Module)
    if part not in ("affine", "convolution"):
        raise ValueError(f"part: a block has the parts 'affine' and 'convolution', got {part!r}")
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
