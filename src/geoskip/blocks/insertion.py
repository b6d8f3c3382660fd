"""Adds skips to an existing model, in one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from geoskip.arguments import check_type, short_repr
from geoskip.blocks.base import INITS, Skip
from geoskip.blocks.channels import device_and_dtype, is_convolution, why_unfit
from geoskip.blocks.skips import find_skip, takes_option
from geoskip.registry import check_choice


@dataclass(frozen=True)
class SummaryRow:
    """A convolution that was given a skip, or left unchanged.

    Attributes:
        name: where it is in the model; several names, with commas, if the model shares it.
        convolution: its class.
        reason: why it was left unchanged; empty if it was given a skip.
        in_channels: channels that the skip maps from; ``None`` if they are inferred at the first call.
        out_channels: channels that it maps to, likewise.
        num_parameters: parameters that the skip adds, likewise.
    """

    name: str
    convolution: str
    reason: str = ""
    in_channels: int | None = None
    out_channels: int | None = None
    num_parameters: int | None = None

    def __str__(self) -> str:
        if self.reason:
            return f"left: {self.reason}"
        if self.num_parameters is None:
            return "channels at the first call"
        return f"{self.in_channels} → {self.out_channels}, +{self.num_parameters:,}"


@dataclass(frozen=True)
class SkipSummary:
    """The convolutions that were wrapped, and those that were left as they are, in the model's order."""

    kind: str
    wrapped: tuple[SummaryRow, ...]
    left: tuple[SummaryRow, ...]

    @property
    def num_parameters(self) -> int:
        """Parameters added, as far as they are known."""
        return sum(row.num_parameters or 0 for row in self.wrapped)

    def __str__(self) -> str:
        late = any(row.num_parameters is None for row in self.wrapped)
        more = ", and more at the first call" if late else ""
        skips = "skip" if len(self.wrapped) == 1 else "skips"
        lines = [f"{len(self.wrapped)} {self.kind} {skips} added: {self.num_parameters:,} parameters{more}"]
        rows = (*self.wrapped, *self.left)
        first = max((len(row.name) for row in rows), default=0)
        second = max((len(row.convolution) for row in rows), default=0)
        return "\n".join(lines + [f"  {row.name:<{first}}  {row.convolution:<{second}}  {row}" for row in rows])


Choice = Callable[[str, nn.Module], bool]


@dataclass(frozen=True)
class _Convolution:
    """A convolution, bare or with a skip, and everywhere that it is registered: ``parent._modules[key]``."""

    module: nn.Module
    names: list[str] = field(default_factory=list)
    parents: list[tuple[nn.Module, str]] = field(default_factory=list)


def add_skips(
    model: nn.Module,
    kind: str = "affine",
    init: str = "glorot",
    where: str | list[str] | Choice | None = None,
) -> SkipSummary:
    """Put a skip around every graph convolution of geoskip or PyTorch Geometric in a model, in place.

    ``print(add_skips(model))`` shows what was changed. Convolutions that have a skip already keep it, so a second call
    does nothing. A convolution that the model uses in several places gets one skip and stays shared; a call with other
    channels than at the first is an error. A convolution inside another one gets no skip. With ``init="zeros"`` the
    output of the model stays bitwise the same until it is trained. Checkpoints of the plain model still load, also with
    ``strict=True``; the skips keep their values. Call PyTorch Geometric's ``to_hetero`` before ``add_skips``.

    Create the optimizer afterwards, or pass the new parameters to ``add_param_group``. If the summary says "at the
    first call", call the model once before that.

    Args:
        model: any model; its convolutions may be in lists, ``Sequential`` containers or models inside.
        kind: ``"affine"``, ``"polynomial"`` or ``"residual"``; the entry point of an installed package; or
            ``module:Name``.
        init: ``"glorot"`` or ``"zeros"``. A residual skip has no parameters, so nothing starts at zero.
        where: the convolutions that get a skip, by default all: a pattern for their names in the model, such as
            ``"encoder.*"``, a list of patterns, or a function of name and module.
    """
    skip = _check(model, kind, init)
    convs = _find(model)
    is_chosen = _choice(where, [name for conv in convs for name in conv.names])
    reasons = [_why_left(conv, is_chosen) for conv in convs]
    options: dict[str, Any] = {"init": init} if takes_option(skip, "init") else {}
    wrapped, left = [], []
    for conv, reason in zip(convs, reasons, strict=True):
        name, module = ", ".join(conv.names), conv.module
        if reason:
            inner = module.conv if isinstance(module, Skip) else module
            left.append(SummaryRow(name, type(inner).__name__, reason))
            continue
        block = skip(module, **options)
        if not [*module.parameters(), *module.buffers()]:
            # A convolution without tensors has no device and dtype: take those of the model.
            block.to(**device_and_dtype(model))
        for parent, key in conv.parents:
            parent._modules[key] = block
        wrapped.append(_summarize(name, block))
    return SkipSummary(kind, tuple(wrapped), tuple(left))


def _check(model: nn.Module, kind: str, init: str) -> type[Skip]:
    check_type("model", model, nn.Module)
    skip = find_skip(kind, "kind")
    check_choice("init", init, INITS)
    if init == "zeros" and not takes_option(skip, "init"):
        raise ValueError(f"init: a {kind} skip has no parameters that could start at zero; use kind='affine'")
    if any(isinstance(part, DistributedDataParallel) for part in model.modules()):
        raise ValueError(
            "model: DistributedDataParallel would not average the gradients of parameters that are added later; call "
            "add_skips before you wrap the model"
        )
    if is_convolution(model):
        raise ValueError(
            f"model: {type(model).__name__} is itself a convolution, which cannot be replaced in place; write "
            f"model = {skip.__name__}(model)"
        )
    return skip


def _find(model: nn.Module) -> list[_Convolution]:
    """Every convolution of the model once; those inside another convolution belong to it."""
    convs: dict[int, _Convolution] = {}
    visited: set[int] = set()

    def visit(parent: nn.Module, prefix: str) -> None:
        if id(parent) in visited or isinstance(parent, Skip):
            return
        visited.add(id(parent))
        for key, module in parent._modules.items():
            if isinstance(module, Skip) or (module is not None and is_convolution(module)):
                conv = convs.setdefault(id(module), _Convolution(module))
                conv.names.append(prefix + key)
                conv.parents.append((parent, key))
            elif module is not None:
                visit(module, f"{prefix}{key}.")

    visit(model, "")
    if not convs and not isinstance(model, Skip):
        raise ValueError(
            f"model: {type(model).__name__} has no graph convolutions of geoskip or PyTorch Geometric; wrap other "
            "modules one by one, as AffineSkip(module)"
        )
    return list(convs.values())


def _choice(where: str | list[str] | Choice | None, names: list[str]) -> Choice:
    if where is None:
        return lambda name, module: True
    if callable(where):
        return where
    patterns = [where] if isinstance(where, str) else where
    if not isinstance(patterns, (list, tuple)) or not all(isinstance(pattern, str) for pattern in patterns):
        raise TypeError(f"where: expected a pattern, a list of patterns or a function, got {short_repr(where)}")
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"where: {pattern!r} matches no convolution; the model has {', '.join(map(repr, names))}")
    return lambda name, module: any(fnmatchcase(name, pattern) for pattern in patterns)


def _why_left(conv: _Convolution, is_chosen: Choice) -> str:
    if isinstance(conv.module, Skip):
        return f"has {type(conv.module).__name__} already"
    if not any(is_chosen(name, conv.module) for name in conv.names):
        return "not chosen by where"
    return why_unfit(conv.module) or ""


def _summarize(name: str, block: Skip) -> SummaryRow:
    convolution = type(block.conv).__name__
    if block.skip_channels is None:
        return SummaryRow(name, convolution)
    num_parameters = sum(parameter.numel() for parameter in block.parameters(recurse=False))
    return SummaryRow(name, convolution, "", *block.skip_channels, num_parameters)
