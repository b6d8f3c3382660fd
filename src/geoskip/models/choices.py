"""The one place that turns the name of an operator into a layer of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

from torch import nn

from geoskip.blocks import make_block
from geoskip.operators import ChebConv, FeaStConv, GCNConv, GINConv, MoNetConv, Operator, SpiralConv, SplineConv

OPERATORS: dict[str, type[Operator]] = {
    "cheb": ChebConv,
    "feast": FeaStConv,
    "gcn": GCNConv,
    "gin": GINConv,
    "monet": MoNetConv,
    "spiral": SpiralConv,
    "spline": SplineConv,
}

MakeLayer = Callable[[int, int], nn.Module]


def make_operator(
    name: str,
    in_channels: int,
    out_channels: int,
    kernel_size: int | tuple[int, ...] | None = None,
    dim: int | None = None,
    **options: Any,
) -> Operator:
    """An operator by its name, one of ``OPERATORS``.

    Args:
        name: cheb, feast, gcn, gin, monet, spiral or spline.
        in_channels: channels of x.
        out_channels: channels of y.
        kernel_size: the paper's M, the number of weight matrices (for splines, m in each dimension). GCN and GIN have
            one matrix and take none.
        dim: dimension of the graphs' pseudo-coordinates; operators that do not look at them ignore it.
        options: what else the operator takes. The paper's † is ``centre=False`` for cheb and spiral,
            ``self_loops=False`` for feast.
    """
    if not isinstance(name, str) or name not in OPERATORS:
        raise ValueError(f"operator: unknown name {name!r}; choose from {', '.join(sorted(OPERATORS))}")
    known = set(signature(OPERATORS[name]).parameters) - {"in_channels", "out_channels"}
    _check_kernel_size(name, kernel_size, wanted="kernel_size" in known)
    for option in options:
        if option not in known:
            others = ", ".join(sorted(known - {"kernel_size", "dim"}))
            raise ValueError(f"{option}: {name} has no such option; it has {others}")
    sizes = {"kernel_size": kernel_size, "dim": dim}
    given: dict[str, Any] = {key: value for key, value in sizes.items() if key in known and value is not None}
    return OPERATORS[name](in_channels, out_channels, **given, **options)


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
    return lambda i, o: make_block(make_operator(operator, i, o, kernel_size, dim, **options), skip=skip)


def _check_kernel_size(name: str, kernel_size: int | tuple[int, ...] | None, wanted: bool) -> None:
    if wanted and kernel_size is None:
        raise ValueError(f"kernel_size: {name} needs one, the number of its weight matrices, such as 9")
    if not wanted and kernel_size is not None:
        raise ValueError(f"kernel_size: {name} has one weight matrix and takes none, got {kernel_size}; leave it out")
