"""What a model needs of its training data to be used without them, in one safetensors file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from geoskip.data.correspondence_set import CorrespondenceSet
from geoskip.data.graph_set import GraphSet
from geoskip.data.mesh_set import MeshSet
from geoskip.records.atomic import write_whole
from geoskip.training.tasks.base import Task
from geoskip.training.trees import apart


@dataclass(frozen=True, eq=False)
class Context:
    """Constants as a task gives them, and facts.

    constants: tensors, such as mean and deviation of the positions, or the faces.
    facts: plain JSON, such as the length of a unit, names of classes, the hash of the topology.
    """

    constants: Mapping[str, Tensor] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def context_of(task: Task) -> Context:
    """What the task says, and of its data what use alone asks for: faces to write meshes with, radius of graphs."""
    data = getattr(task, "data", None)
    constants, facts = dict(task.constants()), dict(task.facts())
    if isinstance(data, MeshSet):
        constants["faces"] = torch.tensor(data.template.faces)
    elif isinstance(data, CorrespondenceSet):
        constants["target_verts"] = torch.tensor(data.target.verts)
        constants["target_faces"] = torch.tensor(data.target.faces)
        facts["dim"] = 3 if task.config.pseudo == "position" else 1
    elif isinstance(data, GraphSet):
        dim = data.levels[0].pos.shape[1] if task.config.pseudo == "position" else 1
        facts |= {"in_channels": data.x.shape[1], "dim": max(dim, 1), "radius": data.levels[0].to("cpu").longest_edge}
        facts["vertices"] = int(data.levels[0].offsets.diff().max())
        facts["extent"] = data.levels[0].pos.amax(0).tolist()
    if content := getattr(data, "content", ""):
        facts["content"] = content
    return Context(constants, facts)


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
