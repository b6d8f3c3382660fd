"""What a model needs of its training data to be used without them, in one safetensors file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from geoskip.data.correspondence_set import CorrespondenceSet
from geoskip.data.graph_set import GraphSet
from geoskip.data.mesh_set import MeshSet
from geoskip.meshes.mesh import Mesh
from geoskip.models import CorrespondenceNet, GraphClassifier, MeshAutoencoder
from geoskip.records.manifest import read_checked
from geoskip.records.reading import ReadError, parse_json, parse_tensors
from geoskip.training.checks import described, fits
from geoskip.training.tasks.base import Task
from geoskip.training.trees import apart

LARGEST = 1e30  # far inside float32
# What use needs: facts with their kinds; constants, of three columns each, with their types.
FACTS: dict[str, dict[str, Any]] = {
    "reconstruction": {"unit_mm": float},
    "correspondence": {"unit_mm": float, "dim": int},
    "classification": {
        "class_names": Sequence[str],
        "largest": Sequence[float],
        "in_channels": int,
        "dim": int,
        "radius": float,
        "vertices": int,
        "extent": Sequence[float],
    },
}
CONSTANTS: dict[str, dict[str, torch.dtype]] = {
    "reconstruction": {"mean": torch.float32, "deviation": torch.float32, "faces": torch.int64},
    "correspondence": {"target_verts": torch.float64, "target_faces": torch.int64},
    "classification": {},
}


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


def context_bytes(context: Context) -> bytes:
    """A context as a safetensors file."""
    return save(apart(context.constants), {"facts": json.dumps(context.facts, allow_nan=False)})


def read_context(path: Path) -> Context:
    """What :func:`context_bytes` made; ValueError, naming the file, if it is damaged or another kind of file."""
    try:
        constants, metadata = parse_tensors(read_checked(path))
        return Context(constants, parse_json(metadata["facts"]))
    except (ReadError, KeyError) as error:
        raise ValueError(f"{path}: damaged, or not the context of a run ({error!r})") from error


def check_context(task: str, context: Context) -> None:
    """ValueError, naming the entry, unless a context holds what using a model of ``task`` needs, in its kind."""
    constants, facts = context.constants, context.facts
    if not isinstance(facts, Mapping):
        raise ValueError("context: its facts are not an object with names")
    for name, kind in FACTS[task].items():
        if name not in facts or not fits(facts[name], kind):
            raise ValueError(f"context: {name} must be {described(kind)}, got {facts.get(name, 'nothing')!r:.200}")
    for name, dtype in CONSTANTS[task].items():
        tensor = constants.get(name)
        if tensor is None or tensor.dim() != 2 or tensor.shape[1] != 3 or tensor.dtype != dtype:
            raise ValueError(f"context: {name} must be a tensor of {dtype} with three columns")
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"context: {name} is not finite")
    for name in FACTS[task].keys() - {"class_names", "extent", "radius"}:
        if not all(0 < value <= LARGEST for value in _numbers(facts[name])):
            raise ValueError(f"context: {name} must be positive, got {facts[name]!r:.200}")
    for name in FACTS[task].keys() & {"extent", "radius"}:
        if not all(abs(value) <= LARGEST for value in _numbers(facts[name])):
            raise ValueError(f"context: {name} is too large: {facts[name]!r:.200}")
    if task == "reconstruction":
        # Made once for nothing: it checks the faces.
        Mesh(constants["mean"].double().cpu().numpy(), constants["faces"].cpu().numpy())
        if constants["deviation"].shape != constants["mean"].shape or not bool((constants["deviation"] > 0).all()):
            raise ValueError("context: deviation must be positive, one number for each of mean")
    elif task == "correspondence":
        Mesh(constants["target_verts"].double().cpu().numpy(), constants["target_faces"].cpu().numpy())


def _numbers(value: Any) -> Sequence[float]:
    return value if isinstance(value, Sequence) else [value]


def check_sizes(context: Context, model: nn.Module) -> None:
    """ValueError unless a checked context is one of meshes, or classes, of the model's sizes."""
    if isinstance(model, MeshAutoencoder):
        sizes = "vertices", len(context.constants["mean"]), model.hierarchy().sizes[0]
    elif isinstance(model, CorrespondenceNet):
        sizes = "target vertices", len(context.constants["target_verts"]), model.output.out_features
    else:
        assert isinstance(model, GraphClassifier)
        sizes = "classes", len(context.facts["class_names"]), model.output.out_features
        if len(context.facts["largest"]) != len(model.convs):
            raise ValueError(f"context: largest must have {len(model.convs)} numbers, one for each level")
    if sizes[1] != sizes[2]:
        raise ValueError(f"context: {sizes[1]} {sizes[0]}, and the model has {sizes[2]}")
