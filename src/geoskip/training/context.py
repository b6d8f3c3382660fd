"""What a model needs of its training data to be used without them, in one safetensors file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from geoskip.records.atomic import write_whole
from geoskip.training.trees import apart


@dataclass(frozen=True, eq=False)
class Context:
    """Constants as a task gives them, and facts.

    constants: tensors, such as mean and deviation of the positions, or the faces.
    facts: plain JSON, such as the length of a unit, names of classes, the hash of the topology.
    """

    constants: Mapping[str, Tensor] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def write_context(path: Path, context: Context) -> None:
    write_whole(path, save(apart(context.constants), {"facts": json.dumps(context.facts, allow_nan=False)}))


def read_context(path: Path) -> Context:
    """What :func:`write_context` wrote; ValueError, naming the file, if it is damaged or another kind of file."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {})["facts"])
            names = file.keys()
            return Context({name: file.get_tensor(name) for name in names}, facts)
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: damaged, or not the context of a run ({error!r})") from error
