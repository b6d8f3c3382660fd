"""A trained model with what it needs of its training data, so that it can be used without them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from geoskip.data import CorrespondenceSet, GraphSet, MeshSet
from geoskip.graphs import Graph
from geoskip.graphs.hierarchy import Hierarchy, SparseMatrix
from geoskip.graphs.validation import check_record
from geoskip.kernels import Pattern
from geoskip.meshes.mesh import Mesh
from geoskip.models import CorrespondenceNet, GraphClassifier, MeshAutoencoder
from geoskip.operators import operator_info
from geoskip.records.files import read_verified
from geoskip.records.reading import ReadError, parse_json, parse_tensors
from geoskip.training.checkpoint import cpu_copies
from geoskip.training.config import Config, described, fits
from geoskip.training.tasks.base import Task, spiral_length, task_class

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
    return save(cpu_copies(context.constants), {"facts": json.dumps(context.facts, allow_nan=False)})


def read_context(path: Path) -> Context:
    """What :func:`context_bytes` made; ValueError, naming the file, if it is damaged or another kind of file."""
    try:
        constants, metadata = parse_tensors(read_verified(path))
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


Weights = Mapping[str, Tensor]
# Arguments of a configuration that are about the data, not the network.
NOT_THE_MODELS = ("factors",)


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model with everything that is needed to use it.

    config: how it was made.
    model: the model, in evaluation mode.
    context: constants and facts of the data it was trained on.
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
        """The model moves, as modules do; constants stay where they are."""
        self.model.to(device)
        return self

    def checked(self, output: Tensor) -> Tensor:
        """``output`` of the model; ValueError, naming the folder, if it is not finite or too large to use."""
        if not bool((output.abs() <= LARGEST).all()):
            raise ValueError(
                f"{self.folder}: the model's output is not finite; its weights are damaged or do not suit this input"
            )
        return output


def rebuild(config: Config, weights: Weights, context: Context, folder: Path) -> Trained:
    """Check what ``folder`` stores of a trained model and build it. ValueError says what does not fit."""
    check_context(config.task, context)
    model = rebuild_model(config, weights, context.facts)
    check_sizes(context, model)
    return Trained(config, model, context, folder)


def rebuild_model(config: Config, weights: Weights, facts: Mapping[str, Any]) -> nn.Module:
    """The trained model, on the CPU, in evaluation mode.

    ``facts`` are the task's; of them a classifier's ``in_channels`` and ``dim`` count, which its weights do not tell.
    ValueError if the weights are not of such a model.
    """
    try:
        task_class(config.task).check_network(config)
        # First without memory for the parameters: a configuration may ask for more than the weights have.
        with torch.device("meta"):
            expected = _BUILDERS[config.task](config, weights, facts).state_dict()
        _check_weights(expected, weights)
        model = _BUILDERS[config.task](config, weights, facts)
        model.load_state_dict(weights)
    except (KeyError, IndexError, RuntimeError, ValueError, TypeError) as error:
        raise ValueError(f"weights: not those of the configured {config.task} model: {error}") from error
    return model.eval()


def _check_weights(expected: Weights, weights: Weights) -> None:
    if odd := sorted(expected.keys() ^ weights.keys()):
        fault = "missing" if odd[0] in expected else "not part of the model"
        raise ValueError(f"{odd[0]} is {fault}")
    for name, tensor in weights.items():
        if tensor.shape != expected[name].shape or tensor.dtype != expected[name].dtype:
            wanted = f"{list(expected[name].shape)} of {expected[name].dtype}"
            raise ValueError(f"{name} is {list(tensor.shape)} of {tensor.dtype}, and the model has {wanted}")
        if not tensor.isfinite().all():
            raise ValueError(f"{name} is not finite: the file is damaged")


def _autoencoder(config: Config, weights: Weights, facts: Mapping[str, Any]) -> nn.Module:
    hierarchy = _hierarchy(weights, "hierarchy.")
    _check_levels(config, hierarchy)
    return MeshAutoencoder(hierarchy, **_chosen(config))


def _check_levels(config: Config, hierarchy: Hierarchy) -> None:
    """ValueError unless every level has what the operator looks at."""
    length = spiral_length(config)
    for k, level in enumerate(hierarchy.levels):
        if length is not None and (level.spirals is None or level.spirals.shape[1] < length):
            raise ValueError(f"hierarchy.levels[{k}]: spirals of {length} vertices are needed")
        widths = [None if graph.pseudo is None else graph.pseudo.shape[1] for graph in (level, hierarchy.levels[0])]
        if widths[0] != widths[1] or (operator_info(config.operator).uses_pseudo and widths[0] is None):
            raise ValueError(f"hierarchy.levels[{k}]: other pseudo-coordinates than the operator needs")


def _correspondence(config: Config, weights: Weights, facts: Mapping[str, Any]) -> nn.Module:
    graph = _graph(weights, "fixed_graph.") if "fixed_graph.order" in weights else None
    if graph is not None:
        check_record(graph, "fixed_graph")
    sizes = {"num_classes": len(weights["output.weight"]), "in_channels": weights["lift.weight"].shape[1]}
    return CorrespondenceNet(graph=graph, **sizes | _dim(facts) | _chosen(config))


def _classifier(config: Config, weights: Weights, facts: Mapping[str, Any]) -> nn.Module:
    sizes = {"num_classes": len(weights["output.weight"]), "in_channels": facts["in_channels"]}
    return GraphClassifier(**sizes | _dim(facts) | _chosen(config))


_BUILDERS = {
    "reconstruction": _autoencoder,
    "correspondence": _correspondence,
    "classification": _classifier,
}


def _dim(facts: Mapping[str, Any]) -> dict[str, int]:
    return {"dim": facts["dim"]} if "dim" in facts else {}


def _chosen(config: Config) -> dict[str, Any]:
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in config.model.items()}
    operator = {"operator": config.operator, "skip": config.skip, "kernel_size": config.kernel_size}
    return {
        **operator,
        **config.options,
        **{name: value for name, value in given.items() if name not in NOT_THE_MODELS},
    }


def _hierarchy(weights: Weights, prefix: str) -> Hierarchy:
    """The hierarchy that :class:`geoskip.graphs.RecordBuffers` stored; buffers are named by the path to them."""
    levels = takewhile(lambda k: f"{prefix}levels__{k}__order" in weights, count())
    steps = range(len(graphs := tuple(_graph(weights, f"{prefix}levels__{k}__") for k in levels)) - 1)
    down, up = (tuple(_matrix(weights, f"{prefix}{name}__{k}__") for k in steps) for name in ("down", "up"))
    hierarchy = Hierarchy(graphs, down, up)
    check_record(hierarchy, prefix.rstrip("."))
    return hierarchy


def _graph(weights: Weights, prefix: str) -> Graph:
    names = [entry.name for entry in fields(Graph) if not entry.name.startswith("_")]
    given: dict[str, Any] = {name: weights.get(prefix + name) for name in names}
    return Graph(**given | {"pattern": _pattern(weights, prefix), "order": weights[f"{prefix}order"]})


def _matrix(weights: Weights, prefix: str) -> SparseMatrix:
    return SparseMatrix(_pattern(weights, prefix), weights[f"{prefix}values"])


def _pattern(weights: Weights, prefix: str) -> Pattern:
    given: dict[str, Any] = {entry.name: weights.get(f"{prefix}pattern__{entry.name}") for entry in fields(Pattern)}
    if missing := [name for name, tensor in given.items() if tensor is None and name != "groups_of"]:
        raise KeyError(f"{prefix}pattern__{missing[0]}")
    return Pattern(**given)
