"""What all skips have in common: a convolution, a function of the vertex alone, and the sum of the two."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter, is_lazy

from geoskip.arguments import check_type, whole_number
from geoskip.blocks.channels import (
    check_same_vertices,
    check_skip_input,
    device_and_dtype,
    features_at,
    output_features,
    own_bias,
    read_channels,
    receiving_features,
    why_unfit,
    with_features,
)
from geoskip.operators import Operator
from geoskip.operators.base import glorot, zeros
from geoskip.operators.input_checks import check_device_and_dtype, refuse_to_hetero
from geoskip.registry import Registry, check_choice
from geoskip.shapes import Float

# Initial values of the last matrix of a skip.
INITS = ("glorot", "zeros")
SKIPS: Registry[type[Skip]] = Registry("skip", entry_points="geoskip.skips", attribute="skip_name")


class Skip(nn.Module, ABC):
    r"""A block: a convolution, which aggregates the neighbors, plus a function P of the vertex itself.

    .. math:: y_i = \mathrm{conv}(x, \dots)_i + P(x_i)

    Call it like the convolution, ``block(x, *args, **kwargs)``: all arguments are passed on. From a pair
    ``(x_src, x_dst)`` P uses ``x_dst``. If the convolution returns a tuple, only its first element changes.
    Public attributes that the block does not have are forwarded to ``conv``, for reading, setting and deleting:
    ``block.normalize = False`` changes the convolution.

    **One bias.** If ``conv.bias`` is a parameter, it is the block's b; otherwise the skip adds b. In both cases it is
    part of P: ``affine(x)`` and ``convolution(x, …)`` add up to the block.

    **Channels** are the given ones, or those that the module declares, or are inferred at the first call. In the last
    case, call the block once before you create the optimizer or use ``torch.compile``: until then the skip's parameters
    are uninitialized, as in ``torch.nn.LazyLinear``.

    A checkpoint of the bare convolution loads into the block, also with ``strict=True``; the skip keeps its values.

    A subclass declares its name, :meth:`parameter_shapes` and :meth:`shortcut`; ``@SKIPS.register`` makes it available
    by that name.

    Args:
        conv: any module that maps vertex features: an operator, a convolution of PyTorch Geometric, your own.
        in_channels: channels of the receiving vertices' features, if ``conv`` does not declare them.
        out_channels: channels of the output, if ``conv`` does not declare them.
        init: initial values of the skip's last matrix. ``"glorot"``, or ``"zeros"``: then the block starts bitwise
            equal to the convolution. Other matrices are Glorot, vectors 0.
        bias: whether to add b if the convolution has no ``bias``. Some keep theirs elsewhere (PyTorch Geometric's
            SAGEConv in ``lin_l``): pass ``False`` there to avoid a second one.

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
    init: str = "glorot"
    adds_bias: bool = False
    part: str = "both"
    _own_names: tuple[str, ...] = ()
    _learned_channels: bool = False

    def __init__(
        self,
        conv: nn.Module,
        in_channels: int | None = None,
        out_channels: int | None = None,
        *,
        init: str = "glorot",
        bias: bool = True,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        check_type("conv", conv, nn.Module)
        if (reason := why_unfit(conv)) is not None:
            raise TypeError(f"conv: {name} does not fit around {type(conv).__name__}: {reason}")
        check_choice("init", init, INITS)
        self.init = init
        self.skip_channels = self._choose_channels(conv, in_channels, out_channels)
        self.conv = conv
        self._features_at = features_at(conv)
        self._bias_counts = own_bias(conv) is not None or getattr(conv, "bias", None) is None
        self.adds_bias = bias and own_bias(conv) is None
        self.training = conv.training
        self._add_parameters()

    def _choose_channels(
        self, conv: nn.Module, in_channels: int | None, out_channels: int | None
    ) -> tuple[int, int] | None:
        name = type(self).__name__
        if in_channels is not None:
            in_channels = whole_number("in_channels", in_channels, name)
        if out_channels is not None:
            out_channels = whole_number("out_channels", out_channels, name)
        declared = read_channels(conv)
        channels = in_channels or declared[0], out_channels or declared[1]
        if isinstance(conv, Operator) and channels != declared:
            raise ValueError(
                f"in_channels, out_channels: {name}({type(conv).__name__}) was given {in_channels}, {out_channels}, "
                f"but the operator maps {conv.in_channels} to {conv.out_channels}; leave them out"
            )
        return None if None in channels else cast(tuple[int, int], channels)

    def parameter_shapes(self, in_channels: int, out_channels: int) -> dict[str, tuple[int, ...]]:
        """The parameters of P, except b: their names and shapes, from the first matrix to the last."""
        return {}

    @abstractmethod
    def shortcut(self, x: Float[Tensor, "*batch vertices channels"]) -> Float[Tensor, "*batch vertices out"]:
        """P(x) - b."""

    @property
    def conv_has_bias(self) -> bool:
        """Whether the block's b is the convolution's own."""
        return self._bias_counts and not self.adds_bias and getattr(self.conv, "bias", None) is not None

    @property
    def _b(self) -> Tensor:
        return cast(Tensor, self.bias if self.adds_bias else self.conv.bias)

    def affine(self, x: Float[Tensor, "*batch vertices channels"]) -> Float[Tensor, "*batch vertices out"]:
        """P(x) alone, with the block's b; ``x`` are the features of the receiving vertices."""
        self._known_channels()
        check_skip_input(x, self._label())
        self._check_input(x)
        return self.shortcut(x) + self._b if self.adds_bias or self.conv_has_bias else self.shortcut(x)

    def convolution(self, *args: Any, **kwargs: Any) -> Any:
        """The convolution alone, without the block's b."""
        out = self.conv(*args, **kwargs)
        if not self.conv_has_bias:
            return out
        return with_features(out, output_features(out, self._label()) - self._b)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not args or not isinstance(args[0], Tensor):
            advice = "Transform the model without skips, then call add_skips on the result"
            refuse_to_hetero(self._label, advice, args, kwargs)
        return super().__call__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.part == "convolution":
            return self.convolution(*args, **kwargs)
        received = self._received(args, kwargs)
        if self.part == "affine":
            return self.affine(received)
        self._check_input(received)
        out = self.conv(*args, **kwargs)
        y = output_features(out, self._label())
        check_same_vertices(received, y, self._label())
        if self.skip_channels is None:
            self._materialize(received.shape[-1], y.shape[-1])
            self._learned_channels = True
        self._check_output(y)
        p = self.shortcut(received)
        p = p + self._b if self.adds_bias else p
        return with_features(out, y + p.to(y.dtype))

    def _received(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Features of the receiving vertices among the convolution's arguments."""
        at = self._features_at
        return receiving_features(args[at] if at < len(args) else kwargs.get("x"), self._label())

    def _known_channels(self) -> tuple[int, int]:
        if self.skip_channels is None:
            raise ValueError(
                f"{self._label()}: its channels are not known yet; call the block once, or make it with in_channels "
                "and out_channels"
            )
        return self.skip_channels

    def _check_input(self, x: Tensor) -> None:
        if self.skip_channels is None:
            return
        if self._own_names:
            check_device_and_dtype("x", x, self, self._label())
        expected, given = self.skip_channels[0], x.shape[-1]
        if given == expected:
            return
        if self._learned_channels:
            raise ValueError(
                f"x: {self._label()} was first called with {expected} channels, now with {given}; a convolution that "
                "is used at several widths needs a block for each of them, or none (where=… of add_skips)"
            )
        raise ValueError(
            f"x: {self._label()} maps {expected} channels, got {given}; if the convolution takes them, say "
            f"{type(self).__name__}(conv, in_channels={given})"
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

    def _add_parameters(self) -> None:
        channels = self.skip_channels or (1, 1)
        shapes = self.parameter_shapes(*channels) | ({"bias": channels[1:]} if self.adds_bias else {})
        kind = device_and_dtype(self.conv)
        self._own_names = tuple(shapes)
        for name, shape in shapes.items():
            known = self.skip_channels is not None
            parameter = nn.Parameter(torch.empty(shape, **kind)) if known else UninitializedParameter(**kind)
            # register_parameter would refuse a name that the convolution has too.
            self._parameters[name] = cast(nn.Parameter, parameter)
        if not self.adds_bias and not hasattr(self.conv, "bias"):
            self._parameters["bias"] = None
        if self.skip_channels is not None:
            self._reset_skip()

    def _materialize(self, in_channels: int, out_channels: int) -> None:
        self.skip_channels = in_channels, out_channels
        shapes = self.parameter_shapes(in_channels, out_channels) | {"bias": (out_channels,)}
        for name, parameter in self._parameters.items():
            if isinstance(parameter, UninitializedParameter):
                parameter.materialize(shapes[name])
        self._reset_skip()

    def _matrices(self) -> list[str]:
        """The matrices of P, in the order in which they are applied."""
        return [name for name, shape in self.parameter_shapes(1, 1).items() if len(shape) == 2]

    def _reset_skip(self) -> None:
        """Draw the initial values of the skip's parameters."""
        matrices = self._matrices()
        for name in self._own_names:
            starts_at_zero = name not in matrices or (name == matrices[-1] and self.init == "zeros")
            (zeros if starts_at_zero else glorot)(getattr(self, name))

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
        # Not the private ones: copying, for one, asks every object for its own __deepcopy__.
        if name.startswith("_") or "conv" not in self.__dict__.get("_modules", ()):
            return False
        # Nor what torch's pruning, weight norms and parametrizations make of the block's own parameters: they look for
        # parametrizations, add weight_mask, and delete weight for a moment.
        return name != "parametrizations" and not any(
            name == own or name.startswith(f"{own}_") for own in self._own_names
        )

    def _is_of_conv(self, name: str) -> bool:
        """Whether an attribute is the convolution's, since the block lacks it."""
        if not self._may_be_of_conv(name) or name in self.__dict__ or hasattr(type(self), name):
            return False
        own = (self._parameters, self._buffers, self._modules)
        return not any(name in names for names in own) and hasattr(self.conv, name)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        if self.skip_channels is not None:
            return super()._save_to_state_dict(destination, prefix, keep_vars)
        # torch detaches what it saves, which an uninitialized parameter does not allow.
        return destination.update({prefix + name: p for name, p in self._parameters.items() if p is not None})

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, metadata: Any, strict: bool, missing: list[str], *rest: Any
    ) -> None:
        own = {name for name, parameter in self._parameters.items() if parameter is not None}
        is_plain = self._adopt_plain_keys(own, state_dict, prefix)
        if self.skip_channels is None and (matrices := self._matrices()):
            first, last = state_dict.get(prefix + matrices[0]), state_dict.get(prefix + matrices[-1])
            if isinstance(first, Tensor) and isinstance(last, Tensor) and not (is_lazy(first) or is_lazy(last)):
                self._materialize(first.shape[0], last.shape[-1])
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, *rest)
        if is_plain:
            missing[:] = [key for key in missing if key not in {prefix + name for name in own}]

    def _adopt_plain_keys(self, own: set[str], state_dict: dict[str, Any], prefix: str) -> bool:
        """If ``state_dict`` has the bare convolution at ``prefix``, move its keys to ``prefix + "conv."``.

        A convolution may have a parameter ``weight``, as a skip has, or a child ``conv``. So all keys together decide:
        the checkpoint is that of the module with which it shares more of them.
        """
        present = {key.removeprefix(prefix) for key in state_dict if key.startswith(prefix)}
        plain = set(self.conv.state_dict(keep_vars=True))
        block = {f"conv.{key}" for key in plain} | own
        if _overlap(present, plain) <= _overlap(present, block):
            return False
        # First take out all, then put them back: the new key of one may be the old key of another.
        values = {key: state_dict.pop(prefix + key) for key in sorted(present)}
        state_dict.update({f"{prefix}conv.{key}": value for key, value in values.items()})
        return True

    def _label(self) -> str:
        return f"{type(self).__name__}({type(self.conv).__name__})"

    def extra_repr(self) -> str:
        return "channels at the first call" if self.skip_channels is None else "{} → {}".format(*self.skip_channels)


def _overlap(one: set[str], other: set[str]) -> float:
    """Keys in common, as a share of all: 1 for equal sets, 0 for sets that share nothing."""
    return len(one & other) / len(one | other) if one | other else 1.0
