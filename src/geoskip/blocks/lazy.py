"""Parameters whose shapes are known when the module is made, or only at its first call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter, is_lazy


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
