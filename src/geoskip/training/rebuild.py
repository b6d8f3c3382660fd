"""A model from its configuration and its weights alone: sizes and topology are read off the stored tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from itertools import count, takewhile
from typing import Any

import torch
from torch import Tensor, nn

from geoskip.graphs import Graph
from geoskip.graphs.hierarchy import Hierarchy, SparseMatrix
from geoskip.graphs.validation import check_record
from geoskip.kernels import Pattern
from geoskip.models import CorrespondenceNet, GraphClassifier, MeshAutoencoder
from geoskip.models.correspondence import with_current_keys
from geoskip.operators import operator_info
from geoskip.training.config import Config
from geoskip.training.tasks.base import spiral_length
from geoskip.training.tasks.choices import task_class

Weights = Mapping[str, Tensor]
# Arguments of a configuration that are about the data, not the network.
NOT_THE_MODELS = ("factors",)


def rebuild_model(config: Config, weights: Weights, facts: Mapping[str, Any]) -> nn.Module:
    """The trained model, on the CPU, in evaluation mode.

    ``facts`` are the task's; of them a classifier's ``in_channels`` and ``dim`` count, which its weights do not tell.
    ValueError if the weights are not of such a model.
    """
    weights = with_current_keys(dict(weights))
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
