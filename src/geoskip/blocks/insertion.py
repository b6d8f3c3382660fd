"""Adds skips to an existing model, in one line."""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import torch
from torch import fx, nn

from geoskip.arguments import check_type, short_repr
from geoskip.blocks.base import Skip
from geoskip.blocks.channels import home_of, is_convolution, takes_any_width, why_unfit
from geoskip.blocks.skips import check_init, find_skip, takes_init


@dataclass(frozen=True)
class Wrapped:
    """A convolution that was given a skip.

    Attributes:
        name: where it is in the model; several names, with commas, if the model shares it.
        convolution: its class.
        in_channels: channels that the skip maps from; ``None`` if only the first call will tell.
        out_channels: channels that it maps to, likewise.
        num_parameters: parameters that the skip adds, likewise.
    """

    name: str
    convolution: str
    in_channels: int | None
    out_channels: int | None
    num_parameters: int | None


@dataclass(frozen=True)
class Left:
    """A convolution that was left as it is, and why."""

    name: str
    convolution: str
    reason: str


@dataclass(frozen=True)
class SkipSummary:
    """What was wrapped, and what was left, in the model's order."""

    kind: str
    init: str
    wrapped: tuple[Wrapped, ...]
    left: tuple[Left, ...]

    @property
    def num_parameters(self) -> int:
        """Parameters added, as far as they are known."""
        return sum(row.num_parameters or 0 for row in self.wrapped)

    def __str__(self) -> str:
        late = any(row.num_parameters is None for row in self.wrapped)
        more = ", and more at the first call" if late else ""
        skips = "skip" if len(self.wrapped) == 1 else "skips"
        title = f"{len(self.wrapped)} {self.kind} {skips} added: {self.num_parameters:,} parameters{more}"
        rows = [(row.name, row.convolution, *_sizes(row)) for row in self.wrapped]
        rows += [(row.name, row.convolution, f"left: {row.reason}", "") for row in self.left]
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
        lines = [f"  {name:<{widths[0]}}  {conv:<{widths[1]}}  {size}{added}" for name, conv, size, added in rows]
        return "\n".join([title, *lines])


def _sizes(row: Wrapped) -> tuple[str, str]:
    if row.num_parameters is None:
        return "channels at the first call", ""
    return f"{row.in_channels} → {row.out_channels}", f", +{row.num_parameters:,}"


def is_called_at_several_widths(model: nn.Module, name: str, calls: Counter[str]) -> bool:
    """Whether the module ``name`` takes any width and may meet different ones in one forward pass.

    That is so if its parent calls it several times. Called once, it meets as many widths as the parent does, and one
    only if the parent has a weight matrix.
    """
    while name and takes_any_width(model.get_submodule(name)):
        parent = name.rpartition(".")[0]
        while parent and not calls[parent]:  # lists and dictionaries of modules are not called themselves
            parent = parent.rpartition(".")[0]
        if calls[name] > calls[parent]:
            return True
        name = parent
    return False


def count_calls(model: nn.Module) -> Counter[str]:
    """Calls of each module in one forward pass, by name; the model's own name is "".

    The forward pass is traced with stand-ins for tensors, in training and in evaluation mode, with and without the
    optional arguments; the largest count is returned. Where tracing fails, calls up to there are counted.
    """
    calls: Counter[str] = Counter()
    for training in (True, False):
        for defaults in (True, False):
            calls |= _traced_calls(model, training, defaults)
    return calls | Counter({"": 1})


class _CountingTracer(fx.Tracer):
    def __init__(self, names: dict[nn.Module, str]) -> None:
        super().__init__()
        self.names = names
        self.calls: Counter[str] = Counter()

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, Skip) or is_convolution(m) or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, *rest: Any) -> Any:
        self.calls[self.names.get(m, "")] += 1
        return super().call_module(m, *rest)


def _traced_calls(model: nn.Module, training: bool, defaults: bool) -> Counter[str]:
    calls: Counter[str] = Counter()
    # Any model may be given, and tracing runs its code: whatever goes wrong there is not the caller's concern.
    with suppress(Exception), torch.random.fork_rng(devices=[]):
        # A copy that shares the parameters, since a forward pass may keep what it computes in attributes.
        traced = copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})
        traced.train(training)
        tracer = _CountingTracer({module: name for name, module in traced.named_modules()})
        calls = tracer.calls
        tracer.trace(traced, _defaults(traced) if defaults else None)
    return calls


def _defaults(model: nn.Module) -> dict[str, Any]:
    parameters = inspect.signature(model.forward).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


Choice = Callable[[str, nn.Module], bool]


class _Place(NamedTuple):
    """Where a module is registered: ``parent._modules[key]``, called ``name`` in the model."""

    name: str
    parent: nn.Module
    key: str


def add_skips(
    model: nn.Module,
    kind: str = "affine",
    init: str = "glorot",
    where: str | list[str] | Choice | None = None,
) -> SkipSummary:
    """Put a skip around every graph convolution of a model, in place: our operators and PyTorch Geometric's.

    ``print(add_skips(model))`` shows what was changed. Convolutions that have a skip already keep it, so a second call
    does nothing. A convolution that the model uses in several places gets one skip and stays shared; if it accepts any
    number of channels, that is an error, because one skip may not fit. A convolution inside another one gets no skip.
    With ``init="zeros"`` the output of the model stays bitwise the same until it is trained. Checkpoints of the plain
    model still load, also with ``strict=True``; the skips keep their values. Call PyTorch Geometric's ``to_hetero``
    before ``add_skips``.

    Create the optimizer afterwards, or pass the new parameters to ``add_param_group``. If the summary says "at the
    first call", call the model once before that.

    Args:
        model: any model; its convolutions may be in lists, ``Sequential`` containers or models inside.
        kind: ``"affine"``, ``"polynomial"`` or ``"residual"``.
        init: ``"glorot"`` or ``"zeros"``; a residual skip has nothing to start from zero.
        where: which convolutions: a pattern for their names in the model, such as ``"encoder.*"``, a list of
            patterns, or a function of name and module. All, if not given.
    """
    _check(model, kind, init)
    places = _find(model)
    chosen = _choice(where, [place.name for found in places.values() for place in found[1]])
    reasons = {key: _why_left(module, at, chosen) for key, (module, at) in places.items()}
    _check_widths(model, [found for key, found in places.items() if reasons[key] is None], kind)
    wrapped, left = [], []
    for key, (module, at) in places.items():
        name = ", ".join(place.name for place in at)
        if (reason := reasons[key]) is not None:
            inner = module.conv if isinstance(module, Skip) else module
            left.append(Left(name, type(inner).__name__, reason))
            continue
        block = _wrap(module, kind, init, model)
        for place in at:
            place.parent._modules[place.key] = block
        wrapped.append(_describe(name, block))
    return SkipSummary(kind, init, tuple(wrapped), tuple(left))


def _check(model: nn.Module, kind: str, init: str) -> None:
    check_type("model", model, nn.Module)
    skip = find_skip(kind, "kind")
    if check_init(init, "add_skips") == "zeros" and not takes_init(skip):
        raise ValueError(f"init: a {kind} skip has no parameters that could start at zero; use kind='affine'")
    if is_convolution(model):
        raise ValueError(
            f"model: {type(model).__name__} is itself a convolution, which cannot be replaced in place; write "
            f"model = {skip.__name__}(model)"
        )


def _find(model: nn.Module) -> dict[int, tuple[nn.Module, list[_Place]]]:
    """Every convolution, bare or with a skip, and all its places."""
    found: dict[int, tuple[nn.Module, list[_Place]]] = {}
    for module, place in _walk(model, "", set()):
        found.setdefault(id(module), (module, []))[1].append(place)
    if not found and not isinstance(model, Skip):
        raise ValueError(
            f"model: {type(model).__name__} has no graph convolutions of geoskip or PyTorch Geometric; wrap other "
            "modules one by one, as AffineSkip(module)"
        )
    return found


def _walk(parent: nn.Module, prefix: str, seen: set[int]) -> Iterator[tuple[nn.Module, _Place]]:
    if id(parent) in seen or isinstance(parent, Skip):
        return
    seen.add(id(parent))
    for key, module in parent._modules.items():
        if module is None:
            continue
        if isinstance(module, Skip) or is_convolution(module):
            yield module, _Place(prefix + key, parent, key)
        else:
            yield from _walk(module, f"{prefix}{key}.", seen)


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


def _why_left(module: nn.Module, at: list[_Place], chosen: Choice) -> str | None:
    if isinstance(module, Skip):
        return f"has {type(module).__name__} already"
    if not any(chosen(place.name, module) for place in at):
        return "not chosen by where"
    return why_unfit(module)


def _check_widths(model: nn.Module, chosen: list[tuple[nn.Module, list[_Place]]], kind: str) -> None:
    """A skip maps from one number of channels to one other; a convolution may have no channels of its own."""
    free = [(conv, at) for conv, at in chosen if takes_any_width(conv)]
    if not free:
        return
    calls = count_calls(model)
    for conv, at in free:
        names = " and ".join(repr(place.name) for place in at)
        if len(at) > 1 or is_called_at_several_widths(model, at[0].name, calls):
            used = "the model has it in several places" if len(at) > 1 else "a forward pass calls it several times"
            raise ValueError(
                f"model: {names} ({type(conv).__name__}) takes any number of channels and {used}, so one skip may not "
                "fit them all. Use one convolution per call, leave it out with where=…, or, if the channels never "
                f"change, replace it by {find_skip(kind).__name__}(conv, in_channels, out_channels)"
            )


def _wrap(conv: nn.Module, kind: str, init: str, model: nn.Module) -> Skip:
    skip = find_skip(kind)
    block = skip(conv, init=init) if takes_init(skip) else skip(conv)  # type: ignore[call-arg]
    bare = next(conv.parameters(), None) is None and next(conv.buffers(), None) is None
    # A convolution without tensors cannot tell where the model lives.
    return block.to(**home_of(model)) if bare else block


def _describe(name: str, block: Skip) -> Wrapped:
    inputs, outputs = block.skip_channels or (None, None)
    late = block.skip_channels is None
    own = None if late else sum(p.numel() for p in block.parameters(recurse=False))
    return Wrapped(name, type(block.conv).__name__, inputs, outputs, own)
