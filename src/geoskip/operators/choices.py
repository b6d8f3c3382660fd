"""Operators by name: what they declare, and how to make one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

from torch import nn

from geoskip.operators.base import OPERATORS, Operator


@dataclass(frozen=True)
class OperatorInfo:
    """What an operator declares about itself; see :class:`~geoskip.operators.Operator`.

    Any module class that is called as ``conv(x, graph)`` can be used by ``module:Name``. If it is not a subclass of
    :class:`~geoskip.operators.Operator`, the facts that it does not declare have that class's defaults.

    Attributes:
        make: the class, called with ``in_channels``, ``out_channels`` and options.
        options: names of the options that it takes, including ``kernel_size`` and ``dim``.
    """

    make: Callable[..., nn.Module]
    name: str
    title: str
    uses_edge_weight: bool
    uses_pseudo: bool
    adds_self_loops: bool
    needs_spirals: bool
    needs_batch_norm: bool
    without_center: Mapping[str, Any]
    options: frozenset[str]

    @property
    def has_kernel_size(self) -> bool:
        """Whether the operator takes a kernel size; GCN and GIN have one weight matrix."""
        return "kernel_size" in self.options

    def spiral_length(self, kernel_size: int | None, options: Mapping[str, Any]) -> int | None:
        """How long the graph's spirals must be; None if the operator needs none."""
        if not self.needs_spirals:
            return None
        return getattr(self.make, "spiral_length", Operator.spiral_length)(kernel_size or 1, **options)


FACTS = ("uses_edge_weight", "uses_pseudo", "adds_self_loops", "needs_spirals", "needs_batch_norm", "without_center")


def operator_info(name: str) -> OperatorInfo:
    """The facts about an operator; ``name`` as in :func:`make_operator`."""
    make = OPERATORS.get(name)
    if not callable(make):
        raise ValueError(f"operator: {name!r} is not a class of modules, but {make!r}")
    facts = {fact: getattr(make, fact, getattr(Operator, fact)) for fact in FACTS}
    options = frozenset(signature(make).parameters) - {"in_channels", "out_channels"}
    title = getattr(make, "title", "") or getattr(make, "__name__", name)
    return OperatorInfo(make, name, title, options=options, **facts)


def make_operator(
    name: str,
    in_channels: int,
    out_channels: int,
    *,
    kernel_size: int | tuple[int, ...] | None = None,
    dim: int | None = None,
    **options: Any,
) -> nn.Module:
    """An operator by its name.

    Args:
        name: cheb, feast, gcn, gin, monet, spiral or spline; the entry point of an installed package; or
            ``module:Name``, such as ``mypackage.conv:MyConv``, a class of modules that are called as
            ``conv(x, graph)``.
        in_channels: channels of x.
        out_channels: channels of y.
        kernel_size: the paper's M, the number of weight matrices (for splines, m in each dimension). GCN and GIN have
            one matrix and take none.
        dim: dimension of the graphs' pseudo-coordinates. Operators that do not use them ignore it.
        options: further options of the operator. The paper's † is ``center=False`` for cheb and spiral, and
            ``self_loops=False`` for feast.
    """
    info = operator_info(name)
    _check_kernel_size(name, kernel_size, wanted=info.has_kernel_size)
    for option in options:
        if option not in info.options:
            others = ", ".join(sorted(info.options - {"kernel_size", "dim"})) or "none"
            raise ValueError(f"{option}: {name} has no such option; it has {others}")
    sizes = {"kernel_size": kernel_size, "dim": dim}
    given: dict[str, Any] = {key: value for key, value in sizes.items() if key in info.options and value is not None}
    made = info.make(in_channels, out_channels, **given, **options)
    if not isinstance(made, nn.Module):
        raise TypeError(f"operator: {name} must make a torch.nn.Module, and made a {type(made).__name__}")
    return made


def _check_kernel_size(name: str, kernel_size: int | tuple[int, ...] | None, wanted: bool) -> None:
    if wanted and kernel_size is None:
        raise ValueError(f"kernel_size: {name} needs one, the number of its weight matrices, such as 9")
    if not wanted and kernel_size is not None:
        raise ValueError(f"kernel_size: {name} has one weight matrix and takes none, got {kernel_size}; leave it out")
