"""Nested dictionaries and lists with tensors in them, as plain JSON beside named tensors: no pickle.

A tensor becomes ``{"$tensor": name}``, its name the dotted way to it: ``optimiser.state.0.exp_avg``. What JSON would
change on the way is marked likewise: ``{"$tuple": […]}``, and ``{"$numbered": {…}}`` for a dictionary whose keys are
whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

Tensors = dict[str, Tensor]


def flatten(tree: Any, name: str = "") -> tuple[Any, Tensors]:
    """``tree`` as plain JSON, and its tensors by name; ValueError names what fits in neither."""
    tensors: Tensors = {}
    return _plain(tree, name, tensors), tensors


def unflatten(plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    """What :func:`flatten` was given; KeyError where a tensor is missing."""
    if isinstance(plain, list):
        return [unflatten(value, tensors) for value in plain]
    if not isinstance(plain, dict):
        return plain
    if "$tensor" in plain:
        return tensors[plain["$tensor"]]
    if "$tuple" in plain:
        return tuple(unflatten(value, tensors) for value in plain["$tuple"])
    if "$numbered" in plain:
        return {int(key): unflatten(value, tensors) for key, value in plain["$numbered"].items()}
    return {key: unflatten(value, tensors) for key, value in plain.items()}


def apart(tensors: Mapping[str, Tensor]) -> Tensors:
    """Contiguous copies on the CPU that share no memory: safetensors takes nothing else."""
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}


def _plain(value: Any, name: str, tensors: Tensors) -> Any:
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"$tensor": name}
    if isinstance(value, Mapping):
        return _plain_mapping(value, name, tensors)
    if isinstance(value, list | tuple):
        items = [_plain(item, _below(name, place), tensors) for place, item in enumerate(value)]
        return {"$tuple": items} if isinstance(value, tuple) else items
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(f"{name}: only tensors and finite plain values can be stored, not {value!r}")


def _plain_mapping(value: Mapping[Any, Any], name: str, tensors: Tensors) -> Any:
    items = {str(key): _plain(item, _below(name, key), tensors) for key, item in value.items()}
    if value and all(type(key) is int for key in value):
        return {"$numbered": items}
    if not all(isinstance(key, str) and not key.startswith("$") for key in value):
        raise ValueError(f"{name}: keys must be all words that do not begin with $, or all whole numbers")
    return items


def _below(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)
