"""What the three skips have in common: a convolution, a function of the vertex alone, and the sum of the two."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter, is_lazy

from geoskip.arguments import whole_number
from geoskip.blocks.channels import (
    check_features,
    check_same_vertices,
    features_at,
    features_of,
    home_of,
    own_bias,
    read_channels,
    receiving_features,
    why_unfit,
    with_features,
)
from geoskip.operators.checks import check_device_and_dtype, refuse_to_hetero
from geoskip.registry import Registry
from geoskip.shapes import Float


class LateParameters(nn.Module, ABC):
    """A module whose own parameters map some channels to others, once those are known.

    Until then they are torch's uninitialized parameters, as in ``torch.nn.LazyLinear``: they move with ``.to()``,
    are copied and saved, become ordinary ones at the first call or when a checkpoint that has them is loaded, and
    stay the same objects then.

    Attributes:
        skip_channels: channels of input and output; ``None`` until they are known.
    """

    skip_channels: tuple[int, int] | None

    # The matrices on the way from the input to the output: their shapes in a checkpoint tell the channels.
    _matrices: ClassVar[tuple[str, ...]] = ()

    # Names of the parameters.
    _late_names: tuple[str, ...] = ()

    @abstractmethod
    def _shapes(self, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters."""

    @abstractmethod
    def _reset_skip(self) -> None:
        """Draw their initial values."""

    def _add_late(self, names: tuple[str, ...], home: dict[str, Any]) -> None:
        self._late_names = names
        shapes = None if self.skip_channels is None else self._shapes(*self.skip_channels)
        for name in names:
            # register_parameter would mistake an attribute of this name that is looked up elsewhere for our own.
            self._parameters[name] = (
                cast(nn.Parameter, UninitializedParameter(**home))
                if shapes is None
                else nn.Parameter(torch.empty(shapes[name], **home))
            )
        if shapes is not None:
            self._reset_skip()

    def _materialize(self, inputs: int, outputs: int) -> None:
        self.skip_channels = inputs, outputs
        shapes = self._shapes(inputs, outputs)
        for name, parameter in self._parameters.items():
            if isinstance(parameter, UninitializedParameter):
                parameter.materialize(shapes[name])
        self._reset_skip()

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        if self.skip_channels is not None:
            return super()._save_to_state_dict(destination, prefix, keep_vars)
        # torch detaches what it saves, which an uninitialized parameter does not allow.
        return destination.update({prefix + name: p for name, p in self._parameters.items() if p is not None})

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        if self.skip_channels is None and self._matrices:
            first, last = (state_dict.get(prefix + self._matrices[end]) for end in (0, -1))
            if isinstance(first, Tensor) and isinstance(last, Tensor) and not (is_lazy(first) or is_lazy(last)):
                self._materialize(first.shape[0], last.shape[-1])
        super()._load_from_state_dict(state_dict, prefix, *rest)


def adopt_plain_keys(conv: nn.Module, own: set[str], state_dict: dict[str, Any], prefix: str) -> bool:
    """Where ``state_dict`` holds the bare convolution at ``prefix``, move its keys to ``prefix + "conv."``.

    Returns whether it does hold that, and not the block. All keys together decide, since a convolution may have a
    parameter ``weight``, as a skip has, or a child ``conv``: they are taken for the one that they resemble more.
    ``own`` are the names of the skip's own parameters.
    """
    present = {key.removeprefix(prefix) for key in state_dict if key.startswith(prefix)}
    bare = set(conv.state_dict(keep_vars=True))
    block = {f"conv.{key}" for key in bare} | own
    if _likeness(present, bare) <= _likeness(present, block):
        return False
    # All taken out before any is put back: one's new key may be another's old.
    values = {key: state_dict.pop(prefix + key) for key in sorted(present)}
    state_dict.update({f"{prefix}conv.{key}": value for key, value in values.items()})
    return True


def _likeness(these: set[str], those: set[str]) -> float:
    """Keys in common, as a share of all: 1 for equal sets, 0 for sets that share nothing."""
    return len(these & those) / len(these | those) if these | those else 1.0


class Skip(LateParameters):
    r"""A block: a convolution, which aggregates the neighbors, plus a function P of the vertex itself.

    .. math:: y_i = \mathrm{conv}(x, \dots)_i + P(x_i)

    Call it like the convolution, ``block(x, *args, **kwargs)``: all arguments are passed on. From a pair
    ``(x_src, x_dst)`` P uses ``x_dst``. If the convolution returns a tuple, only its first element changes.
    Public attributes that the block does not have are forwarded to ``conv``, for reading, setting and deleting:
    ``block.normalize = False`` changes the convolution.

    **One bias.** If ``conv.bias`` is a parameter, it is the block's b; otherwise the skip adds b. In both cases it is
    part of P: ``affine(x)`` and ``convolution(x, …)`` add up to the block.

    **Channels** are the given ones, or those that the module declares, or are inferred at the first call. In the last
    case, call the block once before you create the optimizer or use ``torch.compile``.

    A checkpoint of the bare convolution loads into the block, also with ``strict=True``; the skip keeps its values.

    A subclass declares its name, and ``@SKIPS.register`` makes it available by that name.

    Attributes:
        skip_name: what users write: ``--skip affine``. (The prefix ``skip_`` keeps it apart from the attributes of the
            convolution.)
        skip_title: what it is called in text: ``"affine skip"``.
        skip_prefix: what tables print before the operator: ``"Aff-"``.
        conv: the convolution.
        part: ``"both"``, or the one part that is computed; see :func:`~geoskip.blocks.only`.
        skip_channels: channels that P maps from and to; ``None`` until they are known.
    """

    skip_name: ClassVar[str] = ""
    skip_title: ClassVar[str] = ""
    skip_prefix: ClassVar[str] = ""

    conv: nn.Module
    bias: nn.Parameter | None

    # Defaults, so that an attribute of the convolution with one of these names is never taken for the block's.
    skip_channels: tuple[int, int] | None = None
    brings_bias: bool = False
    part: str = "both"
    _learned_channels: bool = False

    def __init__(
        self,
        conv: nn.Module,
        in_channels: int | None = None,
        out_channels: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if not isinstance(conv, nn.Module):
            raise TypeError(f"conv: {name} wraps a torch.nn.Module, got a {type(conv).__name__}")
        if (reason := why_unfit(conv)) is not None:
            raise TypeError(f"conv: {name} does not fit around {type(conv).__name__}: {reason}")
        if in_channels is not None:
            in_channels = whole_number("in_channels", in_channels, name)
        if out_channels is not None:
            out_channels = whole_number("out_channels", out_channels, name)
        said = read_channels(conv)
        inputs, outputs = in_channels or said[0], out_channels or said[1]
        self.skip_channels = None if inputs is None or outputs is None else (inputs, outputs)
        self.conv = conv
        self._features_at = features_at(conv)
        self._bias_counts = own_bias(conv) is not None or getattr(conv, "bias", None) is None
        self.brings_bias = bias and own_bias(conv) is None
        self.training = conv.training

    @property
    def conv_has_bias(self) -> bool:
        """Whether the block's b is the convolution's own."""
        return self._bias_counts and not self.brings_bias and getattr(self.conv, "bias", None) is not None

    @property
    def _b(self) -> Tensor:
        return cast(Tensor, self.bias if self.brings_bias else self.conv.bias)

    def _make_parameters(self, *names: str) -> None:
        if self.brings_bias:
            names = *names, "bias"
        elif not hasattr(self.conv, "bias"):
            self._parameters["bias"] = None
        self._add_late(names, home_of(self.conv))

    @abstractmethod
    def shortcut(self, x: Float[Tensor, "*batch vertices channels"]) -> Float[Tensor, "*batch vertices out"]:
        """P(x) - b."""

    def affine(self, x: Float[Tensor, "*batch vertices channels"]) -> Float[Tensor, "*batch vertices out"]:
        """P(x) alone, with the block's b; ``x`` are the features of the receiving vertices."""
        self._known_channels()
        check_features(x, self._label())
        self._check_input(x)
        return self._biased(self.shortcut(x), self.brings_bias or self.conv_has_bias)

    def convolution(self, *args: Any, **kwargs: Any) -> Any:
        """The convolution alone, without the block's b."""
        out = self.conv(*args, **kwargs)
        if not self.conv_has_bias:
            return out
        return with_features(out, features_of(out, self._label()) - self._b)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        advice = "Transform the model without skips, then call add_skips on the result"
        refuse_to_hetero(self._label, advice, args, kwargs)
        return super().__call__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.part == "affine":
            return self.affine(self._received(args, kwargs))
        if self.part == "convolution":
            return self.convolution(*args, **kwargs)
        return self._sum(*args, **kwargs)

    def _received(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Features of the receiving vertices among the convolution's arguments."""
        at = self._features_at
        return receiving_features(args[at] if at < len(args) else kwargs.get("x"), self._label())

    def _sum(self, *args: Any, **kwargs: Any) -> Any:
        received = self._received(args, kwargs)
        self._check_input(received)
        out = self.conv(*args, **kwargs)
        y = features_of(out, self._label())
        check_same_vertices(received, y, self._label())
        if self.skip_channels is None:
            self._materialize(received.shape[-1], y.shape[-1])
            self._learned_channels = True
        self._check_output(y)
        return with_features(out, y + self._biased(self.shortcut(received), self.brings_bias).to(y.dtype))

    def _biased(self, y: Tensor, wanted: bool) -> Tensor:
        if not wanted:
            return y
        return y + self._b

    def _known_channels(self) -> tuple[int, int]:
        if self.skip_channels is None:
            raise ValueError(
                f"{self._label()}: its channels are not known yet; call the block once, or make it with in_channels "
                "and out_channels"
            )
        return self.skip_channels

    def _check_input(self, x: Tensor) -> None:
        if self._late_names and self.skip_channels is not None:
            check_device_and_dtype("x", x, self, self._label())
        if self.skip_channels is not None and x.shape[-1] != self.skip_channels[0]:
            if self._learned_channels:
                raise ValueError(
                    f"x: {self._label()} met {self.skip_channels[0]} channels at its first call and {x.shape[-1]} now; "
                    "a convolution that is used at several widths needs a block for each of them"
                )
            raise ValueError(
                f"x: {self._label()} maps {self.skip_channels[0]} channels, got {x.shape[-1]}; if the convolution "
                f"takes them, say {type(self).__name__}(conv, in_channels={x.shape[-1]})"
            )

    def _check_output(self, y: Tensor) -> None:
        if self.skip_channels is not None and y.shape[-1] != self.skip_channels[1]:
            raise ValueError(
                f"conv: {self._label()} maps to {self.skip_channels[1]} channels, the convolution gave {y.shape[-1]}; "
                f"say {type(self).__name__}(conv, out_channels={y.shape[-1]})"
            )

    def reset_parameters(self) -> None:
        """Draw new initial values, also for the convolution."""
        if callable(reset := getattr(self.conv, "reset_parameters", None)):
            reset()
        if self.skip_channels is not None:
            self._reset_skip()

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if not self._may_be_of_conv(name):
                raise
            return getattr(self.conv, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._is_of_conv(name):
            setattr(self.conv, name, value)
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if self._is_of_conv(name):
            delattr(self.conv, name)
        else:
            super().__delattr__(name)

    def _may_be_of_conv(self, name: str) -> bool:
        # Not the private ones: copying, for one, asks every object for its own __deepcopy__. Nor the block's own
        # parameters: torch's parametrizations delete them for a moment.
        return not name.startswith("_") and name not in self._late_names and "conv" in self.__dict__.get("_modules", ())

    def _is_of_conv(self, name: str) -> bool:
        """Whether an attribute is the convolution's, since the block lacks it."""
        if not self._may_be_of_conv(name) or name in self.__dict__ or hasattr(type(self), name):
            return False
        own = (self._parameters, self._buffers, self._modules)
        return not any(name in names for names in own) and hasattr(self.conv, name)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, metadata: Any, strict: bool, missing: list[str], *rest: Any
    ) -> None:
        own = {name for name, parameter in self._parameters.items() if parameter is not None}
        plain = adopt_plain_keys(self.conv, own, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, *rest)
        if plain:
            missing[:] = [key for key in missing if key not in {prefix + name for name in own}]

    def _label(self) -> str:
        return f"{type(self).__name__}({type(self.conv).__name__})"

    def extra_repr(self) -> str:
        return "channels at the first call" if self.skip_channels is None else "{} → {}".format(*self.skip_channels)


SKIPS: Registry[type[Skip]] = Registry("skip", entry_points="geoskip.skips", attribute="skip_name")
NO_SKIP = "none"
