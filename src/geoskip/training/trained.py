"""A trained model with what it needs of its training data, so that it can be used without them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin, get_type_hints

import torch
from safetensors.torch import save
from torch import Tensor, nn

from geoskip.arguments import check_value
from geoskip.records.files import read_verified
from geoskip.records.reading import ReadError, parse_json, parse_tensors
from geoskip.registry import check_choice
from geoskip.training.checkpoint import cpu_copies
from geoskip.training.config import Config

if TYPE_CHECKING:
    from geoskip.training.tasks.base import Task

LARGEST = 1e30  # far inside float32
Weights = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False, kw_only=True)
class Context:
    """What a trained model needs to know about its training data. It is stored with the weights.

    A task that needs more declares a subclass with more fields: tensors, or values that JSON can hold. They are checked
    against their annotations when a context is read; ``__post_init__`` can check more.

    arguments: arguments of the model that follow from the data, such as ``num_classes``.
    content: identifies the data, see :class:`~geoskip.data.MeshSet`. Empty: unknown.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    content: str = ""

    @property
    def constants(self) -> dict[str, Tensor]:
        """The tensors, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    @property
    def facts(self) -> dict[str, Any]:
        """All other values, by name."""
        return {name: value for name, value in vars(self).items() if not isinstance(value, Tensor)}

    @classmethod
    def from_parts(cls, constants: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Context:
        """What :attr:`constants` and :attr:`facts` gave; ValueError, naming the entry, for one that does not fit."""
        given, hints = {**constants, **facts}, get_type_hints(cls)
        if missing := sorted(hints.keys() - given.keys() - {"arguments", "content"}):
            raise ValueError(f"context: {missing[0]} is missing")
        for name, value in given.items():
            check_choice("context", name, list(hints))
            check_value(f"context.{name}", value, hints[name])
        # JSON has lists only.
        tuples = {name: tuple(value) for name, value in facts.items() if get_origin(hints[name]) is tuple}
        return cls(**given | tuples)

    def check_model(self, model: nn.Module) -> None:
        """ValueError unless the context has the sizes of the model."""

    def _check_rows(self, name: str, dtype: torch.dtype) -> None:
        """ValueError unless a field is a finite tensor with three columns."""
        tensor: Tensor = getattr(self, name)
        if tensor.dim() != 2 or tensor.shape[1] != 3 or tensor.dtype != dtype:
            raise ValueError(f"context: {name} must be a tensor of {dtype} with three columns")
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"context: {name} is not finite")

    def _check_range(self, name: str, *, positive: bool) -> None:
        """ValueError unless a field, one number or several, is in the range of usable numbers."""
        value = getattr(self, name)
        numbers = value if isinstance(value, Sequence) else [value]
        if positive and not all(number > 0 for number in numbers):
            raise ValueError(f"context: {name} must be positive, got {value!r:.200}")
        if not all(abs(number) <= LARGEST for number in numbers):
            raise ValueError(f"context: {name} is too large: {value!r:.200}")


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model with everything that is needed to use it.

    config: the configuration of the run.
    model: the model, in evaluation mode.
    context: what the model needs to know about its training data.
    folder: the run or export that it was loaded from.
    """

    config: Config
    model: nn.Module
    context: Context
    folder: Path

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def to(self, device: str | torch.device) -> Trained:
        """Move the model, as modules do; the context stays where it is."""
        self.model.to(device)
        return self

    def checked(self, output: Tensor) -> Tensor:
        """``output`` of the model; ValueError, naming the folder, if it is not finite or too large to use."""
        if not bool((output.abs() <= LARGEST).all()):
            raise ValueError(
                f"{self.folder}: the model's output is not finite; its weights are damaged or do not suit this input"
            )
        return output


def context_bytes(context: Context) -> bytes:
    """A context as a safetensors file."""
    return save(cpu_copies(context.constants), {"facts": json.dumps(context.facts, allow_nan=False)})


def read_context(path: Path, kind: type[Context]) -> Context:
    """What :func:`context_bytes` made; ValueError, naming the file, if it is damaged or of another kind."""
    try:
        constants, metadata = parse_tensors(read_verified(path))
        facts = parse_json(metadata["facts"])
    except (ReadError, KeyError) as error:
        raise ValueError(f"{path}: damaged, or not the context of a run ({error!r})") from error
    try:
        return kind.from_parts(constants, facts)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error


def rebuild(task: type[Task], config: Config, weights: Weights, context: Context, folder: Path) -> Trained:
    """The trained model that ``folder`` stores, on the CPU; ValueError if the weights are not of such a model."""
    try:
        task.check_config(config)
        arguments = task.stored_arguments(config, context, weights)
        # First without memory for the parameters: a configuration may ask for more than the weights have.
        with torch.device("meta"):
            check_weights(task.build(config, arguments).state_dict(), weights)
        model = task.build(config, arguments)
        model.load_state_dict(weights)
    except (KeyError, IndexError, RuntimeError, ValueError, TypeError) as error:
        raise ValueError(f"weights: not those of the configured {config.task} model: {error}") from error
    context.check_model(model)
    return Trained(config, model.eval(), context, folder)


def weights_sha256(weights: Weights) -> str:
    """Checksum of the names, types, shapes and values of weights."""
    digest = sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def check_weights(expected: Weights, weights: Weights) -> None:
    """ValueError, naming the tensor, unless weights are finite and have the names, types and shapes expected."""
    if odd := sorted(expected.keys() ^ weights.keys()):
        raise ValueError(f"{odd[0]} is {'missing' if odd[0] in expected else 'not part of the model'}")
    for name, tensor in weights.items():
        if tensor.shape != expected[name].shape or tensor.dtype != expected[name].dtype:
            wanted = f"{list(expected[name].shape)} of {expected[name].dtype}"
            raise ValueError(f"{name} is {list(tensor.shape)} of {tensor.dtype}, but the model has {wanted}")
        if not tensor.isfinite().all():
            raise ValueError(f"{name} is not finite: the file is damaged")
