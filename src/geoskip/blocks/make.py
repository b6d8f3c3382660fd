"""From the name of a skip to a block."""

from __future__ import annotations

from inspect import signature
from typing import Any

from torch import nn

from geoskip.blocks.base import NO_SKIP, SKIPS, Skip
from geoskip.registry import unknown_name


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
