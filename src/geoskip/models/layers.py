"""The layers that the paper's networks have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from geoskip.blocks import make_block
from geoskip.kernels import linear
from geoskip.operators import make_operator
from geoskip.operators.base import glorot, zeros
from geoskip.shapes import Float

MakeLayer = Callable[[int, int], nn.Module]


def layer_maker(
    operator: str | MakeLayer,
    skip: str,
    kernel_size: int | tuple[int, ...] | None,
    dim: int | None,
    options: Mapping[str, Any],
) -> MakeLayer:
    """A function of the input and output channels that makes the operator with its skip around it.

    ``operator`` is a name, or a user's own function from channels to a module that is called as ``conv(x, graph)``.
    """
    if callable(operator):
        own = operator
        if kernel_size is not None or options:
            extra = ["kernel_size"] * (kernel_size is not None) + sorted(options)
            raise ValueError(
                f"{', '.join(extra)}: for an operator given by name; a function of your own sets them itself"
            )
        return lambda i, o: make_block(own(i, o), skip=skip)
    return lambda i, o: make_block(
        make_operator(operator, i, o, kernel_size=kernel_size, dim=dim, **options), skip=skip
    )


class GlorotLinear(nn.Linear):
    """``nn.Linear`` with the initial values of the paper's appendix; the paper's Lin and FC."""

    def reset_parameters(self) -> None:
        glorot(self.weight)
        zeros(self.bias)

    def forward(self, x: Float[Tensor, "*rows channels"]) -> Float[Tensor, "*rows out"]:
        return linear(x, self.weight, self.bias)
